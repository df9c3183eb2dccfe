"""From records and prices to a statement: clip, split at price changes, add, round once.

A run is charged for its elapsed time net of suspension, on the cards it held. Within a run the
suspension is placed at its end, since a record says how long it lasted but not when; only where
a run crosses the edge of a period or a change of price does that matter, and it is noted.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, localcontext

from msgspec import Struct

from slurmwrap.billing.period import Period
from slurmwrap.billing.prices import PriceBook, PriceSpan, Usage
from slurmwrap.billing.runs import Holder, Run, RunTable
from slurmwrap.billing.statement import Statement, StatementLine
from slurmwrap.model import AccountingRecord
from slurmwrap.units import SECONDS_PER_HOUR, round_money

# Digits enough for every product of a price and the card-seconds of a century.
_PRECISION = 60

_LineKey = tuple[str, str, str, str, str, Decimal | None]


class _LineSum:
    """A line while it is added up."""

    __slots__ = ("card_seconds", "jobs", "last_job")

    def __init__(self) -> None:
        self.card_seconds = 0
        self.jobs = 0
        self.last_job: tuple[str, int] | None = None

    def add(self, job: tuple[str, int], card_seconds: int) -> None:
        self.card_seconds += card_seconds
        if job != self.last_job:  # runs come sorted, so a job's runs are neighbours
            self.last_job = job
            self.jobs += 1


class Rater:
    """Adds records up to one period's statement.

    Args:
        book: the prices; None: nothing has one.
        period: what the statement is about.
        currency: of the statement when ``book`` is None.
        until: nothing after this moment counts; None: no such limit.
    """

    def __init__(
        self,
        book: PriceBook | None,
        period: Period,
        *,
        currency: str = "",
        until: int | None = None,
    ) -> None:
        self._book = book
        self._period = period
        self._currency = book.currency if book is not None else currency
        self._end = period.end if until is None else min(period.end, until)
        self._table = RunTable()
        self._no_prices = (PriceSpan(period.start, period.end, None),)
        self._spans: dict[Usage, tuple[PriceSpan, ...]] = {}

    def add(self, record: AccountingRecord) -> None:
        """Take a record. One that never started, or starts after the period, has no part."""
        if record.start is None or record.start >= self._end or not record.cards:
            return
        self._table.add(record)

    def statement(self, *, rejected_records: int = 0) -> Statement:
        """The statement of everything that was added.

        Raises:
            PriceTieError: two prices of the same rank match something that was used.
        """
        sums: dict[_LineKey, _LineSum] = {}
        in_flight = placed = 0
        for run in self._table.runs():
            held = min(run.start + run.elapsed_seconds, self._end)
            begin = max(run.start, self._period.start)
            if held <= begin:
                continue
            split = False
            for gpu_type, count in run.holder.cards:
                spans = self._spans_of(run.holder, gpu_type)
                self._add_cards(sums, run, gpu_type, count, (begin, held), spans)
                split |= run.suspended_seconds > 0 and _sees_change(run, spans)
            if run.end is None:
                cards = sum(count for _, count in run.holder.cards)
                in_flight += cards * (held - begin)
            placed += run.suspended_seconds > 0 and (split or self._crosses_edge(run))
        return self._make_statement(sums, rejected_records, in_flight, placed)

    def _add_cards(
        self,
        sums: dict[_LineKey, _LineSum],
        run: Run,
        gpu_type: str,
        count: int,
        use: tuple[int, int],
        spans: tuple[PriceSpan, ...],
    ) -> None:
        """Adds one type's cards, at the price of each moment."""
        holder = run.holder
        for span in spans:
            begin, finish = max(use[0], span.start), min(use[1], span.end)
            if finish <= begin:
                continue
            # Shares of cards cost nothing yet: without a card no entry can be right or tied.
            price = span.price() if count else None
            key = (holder.account, holder.user, holder.partition, holder.qos, gpu_type, price)
            line = sums.get(key)
            if line is None:
                line = sums[key] = _LineSum()
            line.add((holder.cluster, run.job_id), count * (finish - begin))

    def _crosses_edge(self, run: Run) -> bool:
        wall_end = run.start + run.elapsed_seconds + run.suspended_seconds
        return run.start < self._period.start or wall_end > self._period.end

    def _spans_of(self, holder: Holder, gpu_type: str) -> tuple[PriceSpan, ...]:
        if self._book is None:
            return self._no_prices
        usage = _usage(holder, gpu_type)
        spans = self._spans.get(usage)
        if spans is None:
            spans = self._book.spans(usage, self._period.start, self._period.end)
            self._spans[usage] = spans
        return spans

    def _make_statement(
        self, sums: dict[_LineKey, _LineSum], rejected: int, in_flight: int, placed: int
    ) -> Statement:
        lines = [_make_line(key, sums[key]) for key in sorted(sums, key=_sort_key)]
        notes = []
        if placed:
            notes.append(
                f"{placed} suspended run(s) cross the edge of the period or a change of price:"
                " their suspension is placed at their end"
            )
        return Statement(
            period=self._period,
            currency=self._currency,
            lines=tuple(line for line in lines if line.unit_price is not None),
            unpriced=tuple(line for line in lines if line.unit_price is None),
            card_seconds=sum(line.card_seconds for line in lines),
            amount=sum((line.amount for line in lines if line.amount is not None), Decimal("0.00")),
            rejected_records=rejected,
            in_flight_card_seconds=in_flight,
            notes=tuple(notes),
        )


def rate(
    records: Iterable[AccountingRecord],
    book: PriceBook | None,
    period: Period,
    *,
    currency: str = "",
    until: int | None = None,
    rejected_records: int = 0,
) -> Statement:
    """The statement of a period; see Rater, which takes records one at a time."""
    rater = Rater(book, period, currency=currency, until=until)
    for record in records:
        rater.add(record)
    return rater.statement(rejected_records=rejected_records)


class Cost(Struct, frozen=True, kw_only=True):
    """What a stretch of use comes to, before any rounding."""

    card_seconds: int
    """Priced or not."""
    unpriced_card_seconds: int
    amount: Decimal
    """Of the priced part, exact."""


def cost_of(record: AccountingRecord, book: PriceBook | None, start: int, end: int) -> Cost:
    """What the record's cards come to if they are held over ``[start, end)``.

    For a run's cost so far take its start and start + elapsed; for what is committed, the time
    that its limit still leaves.

    Raises:
        PriceTieError: two prices of the same rank match.
    """
    card_seconds = unpriced = 0
    total = Decimal(0)
    if end <= start:
        return Cost(card_seconds=0, unpriced_card_seconds=0, amount=total)
    with localcontext() as context:
        context.prec = _PRECISION
        for gpu_type, count in record.cards.items():
            if not count:
                continue
            spans: tuple[PriceSpan, ...] = (PriceSpan(start, end, None),)
            if book is not None:
                spans = book.spans(_usage(record, gpu_type), start, end)
            for span in spans:
                held = count * (span.end - span.start)
                price = span.price()
                card_seconds += held
                if price is None:
                    unpriced += held
                else:
                    total += price * held / SECONDS_PER_HOUR
    return Cost(card_seconds=card_seconds, unpriced_card_seconds=unpriced, amount=total)


def line_amount(card_seconds: int, unit_price: Decimal) -> Decimal:
    """What a line comes to: exact, then rounded once, half up to 0.01."""
    with localcontext() as context:
        context.prec = _PRECISION
        return round_money(unit_price * card_seconds / SECONDS_PER_HOUR)


def _sees_change(run: Run, spans: tuple[PriceSpan, ...]) -> bool:
    """Whether a price changes while the run is on nodes, its suspension included."""
    wall_end = run.start + run.elapsed_seconds + run.suspended_seconds
    return any(run.start < span.start < wall_end for span in spans)


def _usage(owner: Holder | AccountingRecord, gpu_type: str) -> Usage:
    return Usage(
        cluster=owner.cluster,
        partition=owner.partition,
        qos=owner.qos,
        account=owner.account,
        gpu_type=gpu_type,
    )


def _make_line(key: _LineKey, line: _LineSum) -> StatementLine:
    account, user, partition, qos, gpu_type, price = key
    return StatementLine(
        account=account,
        user=user,
        partition=partition,
        qos=qos,
        gpu_type=gpu_type,
        jobs=line.jobs,
        card_seconds=line.card_seconds,
        unit_price=price,
        amount=None if price is None else line_amount(line.card_seconds, price),
    )


def _sort_key(key: _LineKey) -> tuple[str, str, str, str, str, bool, Decimal]:
    *names, price = key
    account, user, partition, qos, gpu_type = names
    return (
        str(account),
        str(user),
        str(partition),
        str(qos),
        str(gpu_type),
        price is None,
        Decimal(0) if price is None else price,
    )
