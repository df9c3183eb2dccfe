"""Every card-second of a budget is settled, in flight or committed, and thresholds are exact."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from slurmwrap.billing.budgets import Budget, BudgetUse, assess, measure_use
from slurmwrap.billing.period import parse_month
from slurmwrap.billing.prices import make_price_book
from slurmwrap.model import AccountingRecord

UTC = ZoneInfo("UTC")
NOVEMBER = parse_month("2026-11", UTC)
START = NOVEMBER.start
HOUR = 3600


def record(**changes: Any) -> AccountingRecord:
    facts: dict[str, Any] = {
        "cluster": "c",
        "job_id": 1,
        "user": "alice",
        "account": "chem",
        "partition": "gpu",
        "qos": "normal",
        "state": "COMPLETED",
        "submit": None,
        "start": START,
        "end": START + HOUR,
        "elapsed_seconds": HOUR,
        "cards": {"a100": 2},
    }
    return AccountingRecord(**{**facts, **changes})


RUNNING = record(
    job_id=2, end=None, state="RUNNING", elapsed_seconds=HOUR, time_limit_seconds=4 * HOUR
)


def use_of(budget: Budget, *records: AccountingRecord, **options: Any) -> BudgetUse:
    book = make_price_book({"price": [{"per_card_hour": "10.00"}]}, zone=UTC, currency="CNY")
    options = {"accounts": {"chem", "chem-theory"}, "now": START + 2 * HOUR, **options}
    return measure_use(budget, records, options.pop("book", book), NOVEMBER, **options)


def test_settled_in_flight_and_committed() -> None:
    """An ended run is settled; a running one is in flight so far and committed to its limit."""
    budget = Budget(account="chem", card_hours=Decimal(10))
    use = use_of(budget, record(), RUNNING)
    assert (use.settled, use.in_flight, use.committed) == (2, 2, 6)
    in_money = use_of(Budget(account="chem", money=Decimal(100)), record(), RUNNING)
    assert (in_money.settled, in_money.in_flight, in_money.committed) == (20, 20, 60)


def test_only_the_period_counts() -> None:
    """Use before the period and after it belongs to other budgets."""
    budget = Budget(account="chem", card_hours=Decimal(10))
    before = record(start=START - HOUR, end=START + HOUR, elapsed_seconds=2 * HOUR)
    endless = record(
        job_id=2,
        end=None,
        start=NOVEMBER.end - 3 * HOUR,
        elapsed_seconds=HOUR,
        time_limit_seconds=None,
    )
    use = use_of(budget, before, endless, now=NOVEMBER.end - 2 * HOUR)
    assert (use.settled, use.in_flight, use.committed) == (2, 2, 4)


@pytest.mark.parametrize(
    ("budget", "account", "user", "counts"),
    [
        ({"account": "chem"}, "chem-theory", "bob", True),
        ({"account": "chem"}, "bio", "alice", False),
        ({"user": "alice"}, "bio", "alice", True),
        ({"user": "alice"}, "chem", "bob", False),
        ({"account": "chem", "user": "alice"}, "chem", "alice", True),
        ({"account": "chem", "user": "alice"}, "bio", "alice", False),
    ],
)
def test_what_a_budget_covers(
    budget: dict[str, str], account: str, user: str, counts: bool
) -> None:
    """An account counts with everything below it, a user everywhere or within the account."""
    use = use_of(
        Budget(**budget, card_hours=Decimal(1)),  # type: ignore[arg-type]
        record(account=account, user=user),
    )
    assert (use.settled > 0) == counts


def test_use_without_a_price_is_said() -> None:
    """A budget of money can't count what has no price: it says how much that is."""
    use = use_of(Budget(user="alice", money=Decimal(1)), record(), book=None)
    assert (use.settled, use.unpriced_card_seconds) == (0, 2 * HOUR)
    in_hours = use_of(Budget(user="alice", card_hours=Decimal(1)), record(), book=None)
    assert (in_hours.settled, in_hours.unpriced_card_seconds) == (2, 0)


@pytest.mark.parametrize(
    ("settled", "in_flight", "crossed"),
    [
        ("79.99", "0", (50,)),
        ("79.99", "0.01", (50, 80)),
        ("100", "0", (50, 80, 100)),
        ("49.9999", "0", ()),
    ],
)
def test_thresholds_are_exact(settled: str, in_flight: str, crossed: tuple[int, ...]) -> None:
    """A threshold is crossed when it is reached, not when a rounded percentage says so."""
    budget = Budget(user="alice", money=Decimal(100), thresholds=(80, 50, 100))
    use = BudgetUse(settled=Decimal(settled), in_flight=Decimal(in_flight), committed=Decimal(1000))
    assessment = assess(budget, use)
    assert assessment.crossed == crossed
    assert assessment.left == 100 - Decimal(settled) - Decimal(in_flight)


def test_overdrawn() -> None:
    """More than the limit leaves less than nothing."""
    assessment = assess(
        Budget(user="a", card_hours=Decimal(8)),
        BudgetUse(settled=Decimal(10), in_flight=Decimal(0), committed=Decimal(0)),
    )
    assert (assessment.left, assessment.percent) == (Decimal(-2), Decimal(125))
