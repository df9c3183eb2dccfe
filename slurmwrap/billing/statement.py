"""What a statement holds: its period, lines, totals and what must be said beside them."""

from __future__ import annotations

from decimal import Decimal

from msgspec import Struct

from slurmwrap.billing.period import Period
from slurmwrap.units import card_hours


class StatementLine(Struct, frozen=True, kw_only=True):
    """The use of one account, user, partition, QOS and GPU type at one price."""

    account: str
    user: str
    partition: str
    qos: str
    gpu_type: str
    """Empty: the record names no type."""
    jobs: int
    """Different job ids of a cluster: a requeued job is one job."""
    card_seconds: int
    unit_price: Decimal | None
    """Of a card-hour; None: no price was in force."""
    amount: Decimal | None
    """Exact use times price, rounded once, half up to 0.01; None when unpriced."""

    @property
    def card_hours(self) -> Decimal:
        """For people, 4 decimals."""
        return card_hours(self.card_seconds)


class Statement(Struct, frozen=True, kw_only=True):
    """The card-hours of a period and what they cost."""

    period: Period
    currency: str
    lines: tuple[StatementLine, ...]
    """With a price, sorted by their own columns."""
    unpriced: tuple[StatementLine, ...]
    """Without one: use that nobody pays for until somebody decides."""
    card_seconds: int
    """Every card-second, priced or not."""
    amount: Decimal
    """The sum of the lines."""
    rejected_records: int
    """Records that could not be read and are therefore missing here."""
    in_flight_card_seconds: int
    """The part of ``card_seconds`` that belongs to runs without an end."""
    notes: tuple[str, ...] = ()
    """Choices that shaped the figures."""

    @property
    def card_hours(self) -> Decimal:
        """For people, 4 decimals, from the card-seconds."""
        return card_hours(self.card_seconds)

    @property
    def unpriced_card_seconds(self) -> int:
        """The card-seconds of the unpriced lines."""
        return sum(line.card_seconds for line in self.unpriced)
