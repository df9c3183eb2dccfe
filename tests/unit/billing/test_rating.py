"""Lines add up exactly: rounded once, ordered, with what was in flight and what cost nothing."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from slurmwrap.billing.period import parse_month
from slurmwrap.billing.prices import make_price_book
from slurmwrap.billing.rating import cost_of, line_amount, rate
from slurmwrap.model import AccountingRecord

UTC = ZoneInfo("UTC")
NOVEMBER = parse_month("2026-11", UTC)


def record(job: int = 1, **changes: Any) -> AccountingRecord:
    """One hour on two a100 from the second day of November on."""
    facts: dict[str, Any] = {
        "cluster": "c",
        "user": "alice",
        "account": "chem",
        "partition": "gpu",
        "qos": "normal",
        "state": "COMPLETED",
        "submit": None,
        "start": NOVEMBER.start + 86400,
        "end": NOVEMBER.start + 90000,
        "elapsed_seconds": 3600,
        "cards": {"a100": 2},
    }
    return AccountingRecord(job_id=job, **{**facts, **changes})


@pytest.mark.parametrize(
    ("card_seconds", "price", "amount"),
    [
        (3600, "35.00", "35.00"),
        (1, "35.00", "0.01"),  # 0.00972…
        (18, "1.00", "0.01"),  # exactly 0.005: half up
        (17, "1.00", "0.00"),  # 0.00472…
        (54, "1.00", "0.02"),  # exactly 0.015: half up, not half even
        (10**12, "0.000001", "277.78"),
    ],
)
def test_a_line_is_rounded_once_half_up(card_seconds: int, price: str, amount: str) -> None:
    """Amounts come from card-seconds, not from rounded hours."""
    assert line_amount(card_seconds, Decimal(price)) == Decimal(amount)


def test_a_line_rounds_its_sum_not_its_runs() -> None:
    """A thousand runs of a second cost what a thousand seconds cost: 0.28, not 0."""
    book = make_price_book({"price": [{"per_card_hour": "1.00"}]}, zone=UTC, currency="CNY")
    runs = [record(job, elapsed_seconds=1, cards={"": 1}) for job in range(1000)]
    (line,) = rate(runs, book, NOVEMBER).lines
    assert (line.jobs, line.card_seconds, str(line.amount)) == (1000, 1000, "0.28")


def test_equal_prices_written_differently_are_one_line() -> None:
    """35.0 and 35.00 are one price."""
    book = make_price_book(
        {
            "price": [
                {"per_card_hour": "35.0", "valid_until": "2026-11-15"},
                {"per_card_hour": "35.00", "valid_from": "2026-11-15"},
            ]
        },
        zone=UTC,
        currency="CNY",
    )
    late = NOVEMBER.start + 20 * 86400
    lines = rate([record(1), record(2, start=late, end=late + 3600)], book, NOVEMBER).lines
    assert [(line.jobs, line.card_seconds) for line in lines] == [(2, 14400)]


def test_lines_are_per_account_user_partition_qos_and_type() -> None:
    """Each of these five makes a line of its own, sorted."""
    runs = [
        record(1),
        record(2, account="bio"),
        record(3, user="bob"),
        record(4, partition="spot"),
        record(5, qos="high"),
        record(6, cards={"h800": 1}),
        record(7),
    ]
    lines = rate(runs, None, NOVEMBER).unpriced
    assert [
        (line.account, line.user, line.partition, line.qos, line.gpu_type, line.jobs)
        for line in lines
    ] == [
        ("bio", "alice", "gpu", "normal", "a100", 1),
        ("chem", "alice", "gpu", "high", "a100", 1),
        ("chem", "alice", "gpu", "normal", "a100", 2),
        ("chem", "alice", "gpu", "normal", "h800", 1),
        ("chem", "alice", "spot", "normal", "a100", 1),
        ("chem", "bob", "gpu", "normal", "a100", 1),
    ]


def test_clusters_are_different_runs_of_one_line() -> None:
    """The same job id on two clusters is two jobs."""
    (line,) = rate([record(1), record(1, cluster="d")], None, NOVEMBER).unpriced
    assert (line.jobs, line.card_seconds) == (2, 14400)


def test_shares_of_cards_are_listed_with_no_card_seconds() -> None:
    """A shard-only job is listed as unpriced with zero card-seconds, whatever the prices say."""
    book = make_price_book(
        {
            "price": [
                {"partition": "gpu", "per_card_hour": "1.00"},
                {"account": "chem", "per_card_hour": "1.00"},
            ]
        },
        zone=UTC,
        currency="CNY",
    )
    statement = rate([record(1, cards={"shard": 0})], book, NOVEMBER)
    assert statement.lines == ()
    assert [(line.gpu_type, line.jobs, line.card_seconds) for line in statement.unpriced] == [
        ("shard", 1, 0)
    ]


def test_runs_without_cards_make_no_line() -> None:
    """A CPU job is no part of a bill of card-hours."""
    assert rate([record(1, cards={})], None, NOVEMBER).unpriced == ()


def test_in_flight_is_recognisable_and_bounded() -> None:
    """A run without an end is in flight, and nothing after `until` counts."""
    running = record(1, end=None, state="RUNNING")
    statement = rate([running, record(2)], None, NOVEMBER, until=NOVEMBER.start + 86400 + 1800)
    assert statement.in_flight_card_seconds == 3600
    assert statement.card_seconds == 7200


def test_the_currency_is_the_price_books() -> None:
    """The prices' currency is the statement's; without prices the one that is given."""
    book = make_price_book({"currency": "EUR"}, zone=UTC, currency="CNY")
    assert rate([], book, NOVEMBER, currency="CNY").currency == "EUR"
    assert rate([], None, NOVEMBER, currency="CNY").currency == "CNY"


def test_cost_of_a_stretch() -> None:
    """What a run costs between two moments is exact, with its unpriced part apart."""
    book = make_price_book(
        {"price": [{"gpu_type": "a100", "per_card_hour": "10.00", "valid_until": "2026-11-02"}]},
        zone=UTC,
        currency="CNY",
    )
    run = record(1, cards={"a100": 2, "v100": 1})
    cost = cost_of(run, book, NOVEMBER.start + 86400 - 900, NOVEMBER.start + 86400 + 900)
    assert cost.card_seconds == 3 * 1800
    assert cost.amount == Decimal("5.00")
    assert cost.unpriced_card_seconds == 2 * 900 + 1800
    assert cost_of(run, book, 10, 10).card_seconds == 0
