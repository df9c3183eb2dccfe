"""Records: merged by run; what slurmdbd says now replaces what it said before."""

from __future__ import annotations

from typing import Any

from slurmwrap.model import AccountingRecord
from slurmwrap.store import Store


def make_record(job_id: int = 7, start: int | None = 1000, **changes: Any) -> AccountingRecord:
    values: dict[str, Any] = {
        "cluster": "c",
        "job_id": job_id,
        "db_index": "16147243821040282624",
        "user": "alice",
        "account": "vision",
        "partition": "gpu",
        "qos": "normal",
        "name": "a|b\n测试",
        "state": "COMPLETED",
        "submit": 990,
        "start": start,
        "end": 4600,
        "elapsed_seconds": 3600,
        "cards": {"a100": 2},
        **changes,
    }
    return AccountingRecord(**values)


def test_a_record_read_twice_counts_once(store: Store) -> None:
    """B18, B30: overlapping reads bring the same record again; it stays one."""
    assert store.records.merge([make_record()], 5000) == 1
    assert store.records.merge([make_record()], 5300) == 0
    assert store.records.overlapping(0, 10_000) == [make_record()]


def test_a_running_record_becomes_the_ended_one(store: Store) -> None:
    """The record of a run is replaced when it has ended, not added to."""
    store.records.merge([make_record(end=None, state="RUNNING", elapsed_seconds=60)], 1060)
    store.records.merge([make_record()], 5000)
    assert store.records.overlapping(0, 10_000) == [make_record()]


def test_runs_of_one_job_are_records_of_their_own(store: Store) -> None:
    """B6, B21: a requeued job and a recycled id are told apart by their starts."""
    store.records.merge([make_record(start=1000), make_record(start=9000, end=9600)], 10_000)
    assert len(store.records.overlapping(0, 20_000)) == 2


def test_only_runs_that_overlap_the_period_are_given(store: Store) -> None:
    """B10, B11: ended at the first second of a period is outside it; still running is inside."""
    store.records.merge(
        [
            make_record(1, start=100, end=1000),
            make_record(2, start=100, end=1001),
            make_record(3, start=100, end=None),
            make_record(4, start=2000, end=2100),
            make_record(5, start=None, end=1500, elapsed_seconds=0),
        ],
        3000,
    )
    assert [record.job_id for record in store.records.overlapping(1000, 2000)] == [2, 3]


def test_only_a_record_without_an_end_can_be_withdrawn(store: Store) -> None:
    """What slurmdbd has once told of an ended run is never forgotten."""
    running, ended = make_record(1, end=None), make_record(2)
    waiting = make_record(3, start=None, end=None)
    store.records.merge([running, ended, waiting], 5000)
    assert store.records.without_end() == [running]
    store.records.withdraw([running, ended])
    assert store.records.overlapping(0, 10_000) == [ended]
    assert store.records.without_end() == []


def test_the_watermark_is_kept(store: Store) -> None:
    """Where reading goes on after a restart."""
    assert store.records.watermark("slurmdbd") is None
    store.records.set_watermark("slurmdbd", 5)
    store.records.set_watermark("slurmdbd", 9)
    assert store.records.watermark("slurmdbd") == 9


def test_one_users_records_can_be_asked_for(store: Store) -> None:
    """A user's own bill does not read everybody's records."""
    store.records.merge([make_record(1), make_record(2, user="bob"), make_record(3, end=None)], 10)
    mine = store.records.overlapping(0, 10_000, user="alice")
    assert [record.job_id for record in mine] == [1, 3]
    assert store.records.overlapping(0, 10_000, user="") == []
