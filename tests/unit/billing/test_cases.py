"""The faults that other programs were reported for, each with the value that is right.

The dumps have the columns of the reports; hours and moments were worked out by hand, moments
with `date -u -d`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from slurmwrap.billing.period import parse_month
from slurmwrap.billing.prices import make_price_book
from slurmwrap.billing.rating import rate
from slurmwrap.billing.statement import Statement
from slurmwrap.errors import PriceTieError
from slurmwrap.slurm.records import parse_records
from slurmwrap.statements import csv, json, text

HEADER = "JobIDRaw|Account|State|Submit|Start|End|ElapsedRaw|AllocTRES"
UTC = ZoneInfo("UTC")


def bill(
    rows: Iterable[str],
    month: str = "2026-11",
    *,
    zone: str = "UTC",
    header: str = HEADER,
    prices: list[dict[str, object]] | None = None,
) -> Statement:
    """The statement of a dump in a zone."""
    place = ZoneInfo(zone)
    batch = parse_records([header, *rows], zone=place)
    book = None
    if prices is not None:
        book = make_price_book({"price": prices}, zone=place, currency="CNY")
    period = parse_month(month, place)
    return rate(batch.records, book, period, rejected_records=batch.rejected_count)


def run(
    job: int,
    tres: str,
    *,
    start: str = "2026-11-03T00:00:00",
    end: str = "2026-11-03T01:00:00",
    elapsed: int = 3600,
    state: str = "COMPLETED",
) -> str:
    return f"{job}|a|{state}|{start}|{start}|{end}|{elapsed}|{tres}"


def hours(statement: Statement) -> str:
    return str(statement.card_hours)


@pytest.mark.parametrize(
    ("tres", "right"),
    [
        ("billing=3,cpu=24,gres/gpu:a100=2,gres/gpu=2", "2.0000"),  # B1
        ("gres/gpu=1,gres/gpumem=80", "1.0000"),  # B2
        ("cpu=8,gres/gpu:a100=2,node=1", "2.0000"),  # B3
        ("billing=64,cpu=64,gres/gpu:a100=16,gres/gpu=16,node=4", "16.0000"),  # B22
    ],
)
def test_cards_are_counted_once(tres: str, right: str) -> None:
    """B1, B2, B3, B22: typed and untyped entries are the same cards; nodes don't multiply."""
    assert hours(bill([run(1, tres)])) == right


def test_two_types_in_one_job() -> None:
    """B4: 2 a100 and 1 v100 for an hour are 3 card-hours, each at its own price."""
    statement = bill(
        [run(1, "gres/gpu:a100=2,gres/gpu:v100=1,gres/gpu=3")],
        prices=[
            {"gpu_type": "a100", "per_card_hour": "10.00"},
            {"gpu_type": "v100", "per_card_hour": "3.50"},
        ],
    )
    assert hours(statement) == "3.0000"
    assert [(line.gpu_type, line.card_seconds, str(line.amount)) for line in statement.lines] == [
        ("a100", 7200, "20.00"),
        ("v100", 3600, "3.50"),
    ]
    assert str(statement.amount) == "23.50"


def test_allocated_not_requested() -> None:
    """B5: --exclusive gave 8 cards to a job that had asked for none: 8 card-hours."""
    statement = bill(
        ["5|a|2026-11-03T00:00:00|2026-11-03T01:00:00|3600|cpu=1|cpu=64,gres/gpu=8"],
        header="JobIDRaw|Account|Start|End|ElapsedRaw|ReqTRES|AllocTRES",
    )
    assert hours(statement) == "8.0000"


def test_requeued() -> None:
    """B6: a job requeued after 2 h that then ran 1 h used 3 card-hours, and is one job."""
    statement = bill(
        [
            run(7, "gres/gpu=1", end="2026-11-03T02:00:00", elapsed=7200, state="REQUEUED"),
            run(7, "gres/gpu=1", start="2026-11-03T05:00:00", end="2026-11-03T06:00:00"),
        ]
    )
    assert hours(statement) == "3.0000"
    assert [line.jobs for line in statement.unpriced] == [1]


def test_resized() -> None:
    """B7: 8 cards for an hour, then 4 for another, are 12 card-hours."""
    statement = bill(
        [
            run(7, "gres/gpu=8", state="RESIZING"),
            run(7, "gres/gpu=4", start="2026-11-03T01:00:00", end="2026-11-03T02:00:00"),
        ]
    )
    assert hours(statement) == "12.0000"


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_resized_as_sacct_tells_it(order: tuple[int, ...]) -> None:
    """B7: every record of a resized job has the job's own start and elapsed time since then
    (seen on 22.05, where sreport too counted 12 for the first two). 8 cards for an hour, 4 for
    another, 2 for half an hour: 13 card-hours, in any order, and one job. The same records
    twice change nothing; cut at the month's end like any other."""
    rows = [
        run(7, "gres/gpu=8", state="RESIZING"),
        run(7, "gres/gpu=4", end="2026-11-03T02:00:00", elapsed=7200, state="RESIZING"),
        run(7, "gres/gpu=2", end="2026-11-03T02:30:00", elapsed=9000),
    ]
    statement = bill([rows[place] for place in (*order, *order)])
    assert hours(statement) == "13.0000"
    assert [line.jobs for line in statement.unpriced] == [1]
    assert hours(bill(rows[:2])) == "12.0000"


@pytest.mark.parametrize("month", ["2026-07", "2026-08"])
def test_over_the_end_of_a_month(month: str) -> None:
    """B9: 8 cards from 31 July 12:00 to 1 August 12:00 are 96 card-hours in each month."""
    row = run(
        1, "gres/gpu=8", start="2026-07-31T12:00:00", end="2026-08-01T12:00:00", elapsed=86400
    )
    assert hours(bill([row], month)) == "96.0000"


def test_older_than_the_window_and_still_running() -> None:
    """B10: a job that began in September and still runs is clipped to October, not dropped."""
    row = run(
        1,
        "gres/gpu=2",
        start="2026-09-20T00:00:00",
        end="Unknown",
        elapsed=50 * 86400,
        state="RUNNING",
    )
    statement = bill([row], "2026-10")
    assert hours(statement) == f"{2 * 31 * 24}.0000"
    assert statement.in_flight_card_seconds == 2 * 31 * 86400


def test_the_last_second_of_a_month() -> None:
    """B11: no second is lost or doubled where one month ends and the next begins."""
    row = run(1, "gres/gpu=1", start="2026-10-31T23:59:59", end="2026-11-01T00:00:01", elapsed=2)
    assert [bill([row], month).card_seconds for month in ("2026-10", "2026-11")] == [1, 1]


def test_the_hour_that_comes_twice() -> None:
    """B12: Berlin, 25 October, from 02:30 CEST to 02:30 CET is one hour."""
    row = run(1, "gres/gpu=1", start="2026-10-25T02:30:00", end="2026-10-25T02:30:00")
    assert hours(bill([row], "2026-10", zone="Europe/Berlin")) == "1.0000"


def test_never_started() -> None:
    """B14: cancelled before it started: 0.0, and no rejected record."""
    statement = bill(
        [
            "8|a|CANCELLED by 1001|2026-11-03T00:00:00|None|2026-11-03T01:00:00|0|",
            "9|a|PENDING|2026-11-03T00:00:00|Unknown|Unknown|0|",
        ]
    )
    assert (hours(statement), statement.rejected_records) == ("0.0000", 0)


CHANGE: list[dict[str, object]] = [
    {"gpu_type": "a100", "per_card_hour": "10.00", "valid_until": "2026-11-15"},
    {"gpu_type": "a100", "per_card_hour": "8.00", "valid_from": "2026-11-15"},
]


def test_the_price_of_the_moment_of_use() -> None:
    """B16: what ran on the 10th costs the old price, also when it is billed on the 16th."""
    day = "2026-11-10T00:00:00"
    statement = bill(
        [run(1, "gres/gpu:a100=1", start=day, end="2026-11-10T01:00:00")], prices=CHANGE
    )
    assert [(str(line.unit_price), str(line.amount)) for line in statement.lines] == [
        ("10.00", "10.00")
    ]


def test_a_run_across_a_price_change_is_split() -> None:
    """B16: 3 h before and 1 h after midnight in Shanghai, each at its own price."""
    row = run(
        1,
        "gres/gpu:a100=2",
        start="2026-11-14T21:00:00",
        end="2026-11-15T01:00:00",
        elapsed=4 * 3600,
    )
    statement = bill([row], prices=CHANGE, zone="Asia/Shanghai")
    assert [
        (str(line.unit_price), line.card_seconds, str(line.amount)) for line in statement.lines
    ] == [("8.00", 2 * 3600, "16.00"), ("10.00", 6 * 3600, "60.00")]


def test_without_a_price() -> None:
    """B17: use in a partition without a price is listed with its hours, never dropped."""
    statement = bill(
        [
            "1|a|gpu|2026-11-03T00:00:00|2026-11-03T01:00:00|3600|gres/gpu=2",
            "2|a|new|2026-11-03T00:00:00|2026-11-03T03:00:00|10800|gres/gpu=1",
        ],
        header="JobIDRaw|Account|Partition|Start|End|ElapsedRaw|AllocTRES",
        prices=[{"partition": "gpu", "per_card_hour": "5.00"}],
    )
    assert [(line.partition, str(line.card_hours)) for line in statement.unpriced] == [
        ("new", "3.0000")
    ]
    assert (hours(statement), str(statement.amount)) == ("5.0000", "10.00")


def test_two_that_end_in_the_same_second() -> None:
    """B18: B is read first, A in the next read that overlaps: both count, once each."""
    first, second = run(1, "gres/gpu=1"), run(2, "gres/gpu=1")
    for order in ([second, first, second], [first, second, second, first]):
        assert bill(order).card_seconds == 7200


def test_a_recycled_id() -> None:
    """B21: the same id in another year, or later in the month, is another run."""
    rows = [
        run(3, "gres/gpu=1"),
        run(3, "gres/gpu=1", start="2017-11-03T00:00:00", end="2017-11-03T01:00:00"),
        run(3, "gres/gpu=1", start="2026-11-20T00:00:00", end="2026-11-20T01:00:00"),
    ]
    assert bill(rows).card_seconds == 7200
    assert bill(rows, "2017-11").card_seconds == 3600


def test_a_slice_at_its_own_price() -> None:
    """B24: a MIG slice is one slice at the slice's price."""
    statement = bill(
        [run(1, "gres/gpu:a100_3g.20gb=1,gres/gpu=1")],
        prices=[
            {"gpu_type": "a100", "per_card_hour": "10.50"},
            {"gpu_type": "a100_3g.20gb", "per_card_hour": "4.50"},
        ],
    )
    assert (hours(statement), str(statement.amount)) == ("1.0000", "4.50")


def test_the_same_report_twice() -> None:
    """B25: made twice, and from the records in any order, a report is the same text."""
    rows = [run(job, f"gres/gpu:a100={job},gres/gpu={job + 1}") for job in range(1, 5)]
    rows.append(rows[0])
    prices: list[dict[str, object]] = [{"gpu_type": "a100", "per_card_hour": "0.333"}]
    reports = {
        tuple(form(bill(order, prices=prices)) for form in (json.encode, csv.render, text.render))
        for order in itertools.islice(itertools.permutations(rows), 0, None, 7)
    }
    assert len(reports) == 1


def test_preempted() -> None:
    """B27: 3 h × 8 before the preemption and 1 h × 8 after it are 32 card-hours."""
    statement = bill(
        [
            run(9, "gres/gpu=8", end="2026-11-03T03:00:00", elapsed=10800, state="PREEMPTED"),
            run(9, "gres/gpu=8", start="2026-11-03T09:00:00", end="2026-11-03T10:00:00"),
        ]
    )
    assert hours(statement) == "32.0000"


def test_died_early() -> None:
    """B28: what counts is what ran, not what was asked for: 15 min on 8 cards are 2.0."""
    row = run(1, "gres/gpu=8", end="2026-11-03T00:15:00", elapsed=900, state="FAILED")
    assert hours(bill([row])) == "2.0000"


def test_the_ended_record_wins_over_the_running_one() -> None:
    """A run whose record was read while it ran, and again at its end, is one run of full length."""
    ended = run(1, "gres/gpu=1", end="2026-11-03T02:00:00", elapsed=7200)
    running = run(1, "gres/gpu=1", end="Unknown", elapsed=100, state="RUNNING")
    for order in ([running, ended], [ended, running]):
        statement = bill(order)
        assert (statement.card_seconds, statement.in_flight_card_seconds) == (7200, 0)


def test_tie() -> None:
    """Two prices of equal rank on one record are an error that names both."""
    prices: list[dict[str, object]] = [
        {"gpu_type": "a100", "per_card_hour": "1.00", "name": "by card"},
        {"account": "a", "per_card_hour": "2.00", "name": "by account"},
        {"account": "nobody", "per_card_hour": "2.00"},
    ]
    with pytest.raises(PriceTieError) as caught:
        bill([run(1, "gres/gpu:a100=1")], prices=prices)
    assert "[[price]] 1 'by card' (gpu_type=a100)" in caught.value.message
    assert "[[price]] 2 'by account' (account=a)" in caught.value.message
    # Where no record meets the tie, the book is fine.
    assert bill([run(1, "gres/gpu:h800=1")], prices=prices).amount == Decimal("2.00")


def test_suspension() -> None:
    """B19, pure part: suspended time is not charged; where it straddles, that is said."""
    header = f"{HEADER}|Suspended"
    inside = run(1, "gres/gpu=4", end="2026-11-03T02:00:00") + "|01:00:00"
    statement = bill([inside], header=header)
    assert (hours(statement), statement.notes) == ("4.0000", ())
    straddling = (
        run(1, "gres/gpu=1", start="2026-10-31T23:00:00", end="2026-11-01T02:00:00", elapsed=7200)
        + "|01:00:00"
    )
    months = [bill([straddling], month, header=header) for month in ("2026-10", "2026-11")]
    assert [month.card_seconds for month in months] == [3600, 3600]
    assert all("placed at their end" in month.notes[0] for month in months)
