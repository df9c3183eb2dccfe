"""What is left of a budget: settled, in flight and committed use against its limit."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from decimal import Decimal, localcontext

from msgspec import Struct

from slurmwrap.billing.period import Period
from slurmwrap.billing.prices import PriceBook
from slurmwrap.billing.rating import Cost, cost_of
from slurmwrap.model import AccountingRecord
from slurmwrap.units import SECONDS_PER_HOUR

_PRECISION = 60


class Budget(Struct, frozen=True, kw_only=True):
    """A limit on the use of an account tree, of a user, or of a user within a tree."""

    account: str = ""
    user: str = ""
    card_hours: Decimal | None = None
    """The limit; either this or ``money`` is given."""
    money: Decimal | None = None
    thresholds: tuple[int, ...] = (80,)
    """Percentages of the limit whose crossing somebody wants to know of."""

    @property
    def limit(self) -> Decimal:
        """In card-hours or in money."""
        limit = self.card_hours if self.money is None else self.money
        if limit is None:
            raise ValueError("a budget needs card_hours or money")
        return limit

    def covers(self, record: AccountingRecord, accounts: Collection[str]) -> bool:
        """Whether a run counts against the budget.

        ``accounts`` is the budget's account with everything below it in Slurm's tree; it is
        not looked at when the budget names no account.
        """
        return (not self.account or record.account in accounts) and (
            not self.user or record.user == self.user
        )


class BudgetUse(Struct, frozen=True, kw_only=True):
    """Use within the budget's period, in card-hours or money, exact."""

    settled: Decimal
    """Of runs that have ended."""
    in_flight: Decimal
    """Of runs without an end, so far."""
    committed: Decimal
    """Of the same runs, what their time limits still leave within the period."""
    unpriced_card_seconds: int = 0
    """Use that a budget of money can't count, since nothing prices it."""


class BudgetAssessment(Struct, frozen=True, kw_only=True):
    """A budget against its use."""

    limit: Decimal
    settled: Decimal
    in_flight: Decimal
    committed: Decimal
    used: Decimal
    """settled + in flight."""
    left: Decimal
    """limit - used; negative when overdrawn."""
    percent: Decimal
    """used of limit, exact."""
    crossed: tuple[int, ...]
    """The thresholds that the use has reached, rising."""
    unpriced_card_seconds: int


def measure_use(
    budget: Budget,
    records: Iterable[AccountingRecord],
    book: PriceBook | None,
    period: Period,
    *,
    accounts: Collection[str],
    now: int,
) -> BudgetUse:
    """The use that counts against a budget.

    Args:
        records: of every run that may have touched the period, each once; those without an
            end with their elapsed time so far.
        accounts: the budget's account and everything below it.
        now: UTC epoch seconds; use after it is not in flight but committed.

    Raises:
        PriceTieError: two prices of the same rank match a run, in a budget of money.
    """
    prices = book if budget.money is not None else None
    settled, in_flight, committed = _Sum(), _Sum(), _Sum()
    for record in records:
        if record.start is None or not record.cards or not budget.covers(record, accounts):
            continue
        begin = max(record.start, period.start)
        use_end = record.start + record.elapsed_seconds
        if record.end is None:
            use_end = min(use_end, now)
        finish = min(use_end, period.end)
        total = settled if record.end is not None else in_flight
        total.add(cost_of(record, prices, begin, finish))
        if record.end is None:
            limit_end = _limit_end(record, period)
            committed.add(
                cost_of(record, prices, max(use_end, period.start), min(limit_end, period.end))
            )
    in_money = budget.money is not None
    return BudgetUse(
        settled=settled.value(in_money),
        in_flight=in_flight.value(in_money),
        committed=committed.value(in_money),
        unpriced_card_seconds=(settled.unpriced + in_flight.unpriced) if in_money else 0,
    )


def assess(budget: Budget, use: BudgetUse) -> BudgetAssessment:
    """A budget against its use. Only settled and in flight use crosses thresholds."""
    limit = budget.limit
    with localcontext() as context:
        context.prec = _PRECISION
        used = use.settled + use.in_flight
        return BudgetAssessment(
            limit=limit,
            settled=use.settled,
            in_flight=use.in_flight,
            committed=use.committed,
            used=used,
            left=limit - used,
            percent=used * 100 / limit,
            crossed=tuple(
                sorted(mark for mark in set(budget.thresholds) if used * 100 >= mark * limit)
            ),
            unpriced_card_seconds=use.unpriced_card_seconds,
        )


def _limit_end(record: AccountingRecord, period: Period) -> int:
    """When the run's time limit ends it; without one it may go on to the period's end."""
    if record.start is None or record.time_limit_seconds is None:
        return period.end
    return record.start + max(record.time_limit_seconds, record.elapsed_seconds)


class _Sum:
    def __init__(self) -> None:
        self._card_seconds = 0
        self._amount = Decimal(0)
        self.unpriced = 0

    def add(self, cost: Cost) -> None:
        with localcontext() as context:
            context.prec = _PRECISION
            self._amount += cost.amount
        self._card_seconds += cost.card_seconds
        self.unpriced += cost.unpriced_card_seconds

    def value(self, in_money: bool) -> Decimal:
        with localcontext() as context:
            context.prec = _PRECISION
            return self._amount if in_money else Decimal(self._card_seconds) / SECONDS_PER_HOUR
