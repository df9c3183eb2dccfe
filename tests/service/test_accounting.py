"""Every card-second is in one place: slurmdbd's records and slurmctld's listing, put together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from slurmwrap.clock import SteppedClock
from slurmwrap.config import Config
from slurmwrap.model import AccountingRecord, Card, CardAllocation, JobRun, RunKey
from slurmwrap.slurm.accounting import RecordBatch
from slurmwrap.store import Store
from slurmwrapd.accounting import read_accounting, records_of_period
from slurmwrapd.service import Service

NOW = 1_796_000_000
DAY = 86400
CARD = CardAllocation(card=Card("gpu1", 0), gpu_type="a100")
OTHER = CardAllocation(card=Card("gpu2", 0), gpu_type="h800")


@dataclass
class ListedRecords:
    """Answers as sacct does: what was submitted before the window's end and had not ended
    before its begin."""

    records: list[AccountingRecord] = field(default_factory=list)
    windows: list[tuple[int, int]] = field(default_factory=list)
    rejected: tuple[str, ...] = ()

    def read_records(self, since: int, until: int) -> RecordBatch:
        self.windows.append((since, until))
        found = tuple(
            record
            for record in self.records
            if (record.submit or 0) < until and (record.end is None or record.end >= since)
        )
        return RecordBatch(since=since, until=until, records=found, rejected=self.rejected)


@dataclass
class Parts:
    """Of a service, what accounting needs."""

    config: Config
    clock: SteppedClock
    store: Store
    records: ListedRecords

    @property
    def service(self) -> Service:
        return cast("Service", self)

    def read(self) -> str:
        return read_accounting(self.service)

    def see(self, *runs: JobRun) -> None:
        self.store.runs.record_seen(runs, self.clock.now())

    def use(self) -> dict[tuple[int, int | None, bool], int]:
        """Card-seconds by job, start, and whether the run has ended, of all time."""
        return {
            (record.job_id, record.start, record.end is not None): record.elapsed_seconds
            * sum(record.cards.values())
            for record in records_of_period(self.service, 1, NOW + 1000 * DAY)
        }


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    store = Store.open(tmp_path / "slurmwrap.db")
    yield Parts(Config(), SteppedClock(NOW), store, ListedRecords())
    store.close()


def make_record(job_id: int = 7, start: int = NOW - 600, **changes: Any) -> AccountingRecord:
    values: dict[str, Any] = {
        "cluster": "c",
        "job_id": job_id,
        "user": "alice",
        "account": "vision",
        "partition": "gpu",
        "qos": "normal",
        "state": "RUNNING",
        "submit": start,
        "start": start,
        "end": None,
        "elapsed_seconds": 600,
        "time_limit_seconds": 3600,
        "cards": {"a100": 1},
        **changes,
    }
    return AccountingRecord(**values)


def make_run(job_id: int = 7, start: int = NOW - 600, **changes: Any) -> JobRun:
    values: dict[str, Any] = {
        "key": RunKey(cluster="c", job_id=job_id, start=start),
        "state": "RUNNING",
        "user": "alice",
        "uid": 1001,
        "account": "vision",
        "partition": "gpu",
        "qos": "normal",
        "name": "train",
        "comment": "",
        "reservation": "",
        "submit": start,
        "time_limit_seconds": 3600,
        "nodes": ("gpu1",),
        "cards": (CARD,),
        **changes,
    }
    return JobRun(**values)


def test_a_run_counts_from_its_first_listing_to_its_record(parts: Parts) -> None:
    """B29: in flight while it runs, still in flight when it has left its nodes and slurmdbd has
    not been asked, settled once: never in neither, never in both."""
    parts.see(make_run())
    assert parts.use() == {(7, NOW - 600, False): 600}
    parts.clock.advance(30)
    parts.see()  # it has left
    assert parts.use() == {(7, NOW - 600, False): 600}
    parts.records.records = [make_record(state="COMPLETED", end=NOW + 12, elapsed_seconds=612)]
    parts.read()
    assert parts.use() == {(7, NOW - 600, True): 612}


def test_the_newest_of_listing_and_record_counts(parts: Parts) -> None:
    """A record without an end tells of the moment when it was read; the listing is newer."""
    parts.records.records = [make_record()]
    parts.read()
    parts.clock.advance(300)
    assert parts.use() == {(7, NOW - 600, False): 600}
    parts.see(make_run())
    assert parts.use() == {(7, NOW - 600, False): 900}


def test_a_record_that_names_no_cards_yet(parts: Parts) -> None:
    """B29: in a run's first seconds slurmdbd says PENDING, a start, and no cards (seen on
    22.05); the listing has them."""
    parts.records.records = [make_record(state="PENDING", cards={})]
    parts.read()
    parts.see(make_run(cards=(CARD, OTHER)))
    assert parts.use() == {(7, NOW - 600, False): 1200}


def test_cards_that_slurmctld_does_not_name_are_the_records(parts: Parts) -> None:
    """An unknown allocation is not an empty one."""
    parts.records.records = [make_record(cards={"a100": 4})]
    parts.read()
    parts.see(make_run(cards=(), cards_known=False))
    assert parts.use() == {(7, NOW - 600, False): 2400}


def test_a_record_that_never_comes(parts: Parts) -> None:
    """A run without a record is waited for as long as late records are looked for; then
    slurmdbd's word stands: there was none."""
    parts.see(make_run())
    parts.clock.advance(30)
    parts.see()
    parts.clock.advance(DAY - 100)
    parts.read()
    assert parts.use() == {(7, NOW - 600, False): 600}
    parts.clock.advance(200)
    parts.read()
    assert parts.use() == {}


def test_a_requeued_job_counts_both_runs(parts: Parts) -> None:
    """B6: the first run by its record, the second in flight."""
    first = make_record(state="REQUEUED", end=NOW - 300, elapsed_seconds=300)
    parts.see(make_run())
    parts.records.records = [first]
    parts.read()
    parts.clock.advance(60)
    parts.see(make_run(start=NOW + 10))
    assert parts.use() == {(7, NOW - 600, True): 300, (7, NOW + 10, False): 50}
    parts.records.records = [first, make_record(start=NOW + 10, elapsed_seconds=50)]
    parts.read()
    assert parts.use() == {(7, NOW - 600, True): 300, (7, NOW + 10, False): 50}


def test_a_resized_run_counts_what_it_held(parts: Parts) -> None:
    """B7: two cards for 400 s by the record of that size, then one card in flight: slurmctld
    still gives the job's own start."""
    parts.see(make_run(cards=(CARD, OTHER)))
    resized = make_record(
        state="RESIZING", end=NOW - 200, elapsed_seconds=400, cards={"a100": 1, "h800": 1}
    )
    rest = make_record(start=NOW - 200, elapsed_seconds=200)
    parts.records.records = [resized, rest]
    parts.read()
    parts.see(make_run())
    assert parts.store.runs.on_nodes() != []
    parts.clock.advance(60)
    parts.see(make_run())
    assert parts.use() == {(7, NOW - 600, True): 800, (7, NOW - 200, False): 260}
    parts.see()
    parts.records.records = [
        resized,
        replace(rest, state="COMPLETED", end=NOW + 60, elapsed_seconds=260),
    ]
    parts.read()
    assert parts.use() == {(7, NOW - 600, True): 800, (7, NOW - 200, True): 260}


def test_a_start_that_is_set_anew(parts: Parts) -> None:
    """slurmctld dates a run from when its nodes are ready, and slurmdbd its record: the old
    start is no second run, whoever is asked first."""
    parts.see(make_run(submit=NOW - 700))
    parts.records.records = [make_record(submit=NOW - 700)]
    parts.read()
    parts.clock.advance(30)
    parts.see(make_run(start=NOW - 500, submit=NOW - 700))
    assert parts.use() == {(7, NOW - 500, False): 530}
    parts.records.records = [make_record(start=NOW - 500, submit=NOW - 700, elapsed_seconds=530)]
    parts.read()
    assert parts.use() == {(7, NOW - 500, False): 530}
    assert len(parts.store.records.without_end()) == 1


def test_an_end_before_the_window(parts: Parts) -> None:
    """A job cancelled after days of suspension ends when it was suspended (seen on 22.05): no
    window of the last day holds that. It is found, and counts as ended."""
    parts.records.records = [make_record(start=NOW - 9 * DAY, state="SUSPENDED")]
    parts.read()
    parts.records.records = [
        make_record(start=NOW - 9 * DAY, state="CANCELLED", end=NOW - 9 * DAY + 600)
    ]
    parts.clock.advance(300)
    parts.read()
    assert parts.use() == {(7, NOW - 9 * DAY, True): 600}


def test_a_runaway_job_that_was_fixed(parts: Parts) -> None:
    """B20: an administrator ended it where it began: it uses nothing, also in flight."""
    parts.records.records = [make_record(start=NOW - 9 * DAY, elapsed_seconds=9 * DAY)]
    parts.read()
    parts.records.records = [
        make_record(start=NOW - 9 * DAY, end=NOW - 9 * DAY, elapsed_seconds=0, state="COMPLETED")
    ]
    parts.clock.advance(300)
    parts.read()
    assert sum(parts.use().values()) == 0
    assert parts.store.records.without_end() == []


def test_a_record_that_slurmdbd_lost(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    """slurmdbd restored from a backup: what it does not know is on no bill, and is logged; but
    not when a row of its answer could not be read."""
    parts.records.records = [make_record()]
    parts.read()
    parts.records.records, parts.records.rejected = [], ("job 7: cut short",)
    parts.read()
    assert len(parts.use()) == 1
    parts.records.rejected = ()
    parts.read()
    assert parts.use() == {}
    assert "slurmdbd no longer has job 7" in caplog.text


def test_a_clock_that_was_ahead_leaves_no_gap(parts: Parts) -> None:
    """What ended while the clock was wrong was in no window: everything is looked for anew."""
    parts.clock.set(NOW + 400 * DAY)
    parts.read()
    parts.clock.set(NOW)
    parts.records.records = [make_record(state="COMPLETED", end=NOW - 10)]
    parts.read()
    assert parts.records.windows[-1] == (NOW - 62 * DAY, NOW)
    assert len(parts.use()) == 1
