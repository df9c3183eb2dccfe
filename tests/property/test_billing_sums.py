"""Charges add up over any split of time, in any order, to the last card-second."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from slurmwrap.billing.budgets import Budget, measure_use
from slurmwrap.billing.period import Period
from slurmwrap.billing.prices import PriceBook, PriceEntry
from slurmwrap.billing.rating import cost_of, rate
from slurmwrap.model import AccountingRecord

# Moments on a short scale, so that edges meet often.
MOMENTS = st.integers(1000, 1060)


def period(start: int, end: int) -> Period:
    return Period(name="p", start=start, end=end, timezone="UTC")


@st.composite
def records(draw: st.DrawFn) -> AccountingRecord:
    start = draw(MOMENTS)
    elapsed = draw(st.integers(0, 60))
    suspended = draw(st.sampled_from([0, 0, 7]))
    is_running = draw(st.booleans())
    return AccountingRecord(
        cluster=draw(st.sampled_from(["c", "d"])),
        job_id=draw(st.integers(1, 5)),
        user=draw(st.sampled_from(["alice", "bob"])),
        account="chem",
        partition=draw(st.sampled_from(["gpu", "spot"])),
        qos="normal",
        state="RUNNING" if is_running else "COMPLETED",
        submit=None,
        start=start,
        end=None if is_running else start + elapsed + suspended,
        elapsed_seconds=elapsed,
        suspended_seconds=suspended,
        time_limit_seconds=draw(st.sampled_from([None, 30, 90])),
        cards=draw(st.sampled_from([{"a": 2}, {"a": 1, "b": 3}, {"": 8}, {}, {"shard": 0}])),
    )


@st.composite
def books(draw: st.DrawFn) -> PriceBook:
    """Prices of type a that change at random moments, and one of everything in gpu."""
    cuts = sorted(draw(st.sets(MOMENTS, max_size=3)))
    edges = [None, *cuts, None]
    changing = [
        PriceEntry(
            number=number,
            per_card_hour=Decimal(draw(st.integers(0, 5000))) / 100,
            gpu_type=("a",),
            partition=("gpu",),
            valid_from=edges[number],
            valid_until=edges[number + 1],
        )
        for number in range(len(edges) - 1)
        if draw(st.booleans())
    ]
    base = PriceEntry(number=99, per_card_hour=Decimal("1.25"), partition=("gpu",))
    return PriceBook(currency="CNY", entries=(*changing, base))


@given(st.lists(records(), max_size=8), books(), st.sets(MOMENTS, max_size=5))
@settings(max_examples=150, deadline=None)
def test_card_seconds_add_up_over_any_split(
    runs: list[AccountingRecord], book: PriceBook, cuts: set[int]
) -> None:
    """The card-seconds of a period are those of its parts, priced or not, in flight or not."""
    edges = [900, *sorted(cuts), 1300]
    whole = rate(runs, book, period(edges[0], edges[-1]))
    parts = [rate(runs, book, period(start, end)) for start, end in pairwise(edges) if start < end]
    for figure in ("card_seconds", "unpriced_card_seconds", "in_flight_card_seconds"):
        assert getattr(whole, figure) == sum(getattr(part, figure) for part in parts)


@given(st.lists(records(), max_size=8), books(), st.data())
@settings(max_examples=150, deadline=None)
def test_order_and_repetition_do_not_matter(
    runs: list[AccountingRecord], book: PriceBook, data: st.DataObject
) -> None:
    """Records in any order, any of them twice, give the same statement."""
    again = data.draw(st.permutations(runs + runs[::2]))
    assert rate(again, book, period(1010, 1050)) == rate(runs, book, period(1010, 1050))


@given(st.lists(records(), max_size=8, unique_by=lambda r: (r.cluster, r.job_id, r.start)), books())
@settings(max_examples=150, deadline=None)
def test_lines_and_runs_cost_the_same(runs: list[AccountingRecord], book: PriceBook) -> None:
    """The statement's card-seconds are those of its runs, and its amount differs from their
    exact cost by rounding alone: half a cent per line."""
    span = period(1010, 1050)
    statement = rate(runs, book, span)
    costs = [
        cost_of(
            run,
            book,
            max(run.start or 0, span.start),
            min((run.start or 0) + run.elapsed_seconds, span.end),
        )
        for run in runs
    ]
    assert statement.card_seconds == sum(cost.card_seconds for cost in costs)
    exact = sum((cost.amount for cost in costs), Decimal(0))
    assert abs(statement.amount - exact) <= Decimal("0.0050001") * len(statement.lines)


@given(st.lists(records(), max_size=8), books(), MOMENTS)
@settings(max_examples=150, deadline=None)
def test_no_card_second_is_in_two_classes(
    runs: list[AccountingRecord], book: PriceBook, now: int
) -> None:
    """Settled, in flight and committed use of a run never add up to more than its cards held
    over the whole period."""
    span = period(1010, 1050)
    for run in runs:
        use = measure_use(
            Budget(account="chem", card_hours=Decimal(1)),
            [run],
            book,
            span,
            accounts={"chem"},
            now=max(now, run.start or 0),
        )
        together = (use.settled + use.in_flight + use.committed) * 3600
        most = sum(run.cards.values()) * (span.end - max(span.start, run.start or 0))
        assert together <= Decimal(max(0, most)) + Decimal("0.000001")
