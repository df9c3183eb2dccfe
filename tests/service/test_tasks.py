"""The tasks of the service: one that fails or hangs is seen, and stops no other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from fake_slurm import FakeSlurm
from served import PATIENCE

from slurmwrap.api import HealthCheck
from slurmwrap.clock import SteppedClock
from slurmwrap.config import Config
from slurmwrap.config.settings import AccountingSettings, BudgetEntry
from slurmwrap.model import Card, CardAllocation, JobRun, RunKey
from slurmwrap.rules.evidence import Evidence
from slurmwrap.rules.idle import IdleGpu, IdleSettings
from slurmwrap.rules.ruleset import ConfiguredRule
from slurmwrap.rules.verdict import Verdict
from slurmwrapd.accounting import read_accounting
from slurmwrapd.health import assess_health
from slurmwrapd.serve import TASKS, run_once, run_task
from slurmwrapd.service import Service

START = 1_796_000_000


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock(START)


@pytest.fixture
def service(make_service: Callable[..., Service], clock: SteppedClock) -> Service:
    return make_service(clock=clock, sections={"accounting": AccountingSettings(backfill=86400)})


def check(service: Service, name: str) -> HealthCheck:
    return next(item for item in assess_health(service).checks if item.name == name)


@pytest.mark.parametrize(("program", "task"), [("squeue", "collect"), ("sacct", "accounting")])
def test_a_failing_task_stops_no_other_and_recovers(
    service: Service, slurm: FakeSlurm, clock: SteppedClock, program: str, task: str
) -> None:
    """Red after three failures with its reason, the others go on, green after one success."""
    assert run_once(service)
    assert assess_health(service).ready
    slurm.fail(program, "Unable to contact slurm controller: Connection refused")
    clock.advance(61)
    for _ in range(3):
        outcomes = {name: run_task(service, name) for name in TASKS}
        assert outcomes == {name: name != task for name in TASKS}
    assert not assess_health(service).ready
    failed = check(service, task)
    assert (failed.ok, "failed 3 times" in failed.detail) == (False, True)
    assert "does not answer" in failed.detail
    assert all(check(service, name).ok for name in TASKS if name != task)
    slurm.mend(program)
    clock.advance(61)
    assert run_once(service)
    assert assess_health(service).ready


def test_a_task_that_hangs_is_seen(service: Service, slurm: FakeSlurm, clock: SteppedClock) -> None:
    """A Slurm command that does not end: late in /readyz while it waits, failed afterwards."""
    assert run_once(service)
    slurm.hang("squeue")
    task = threading.Thread(target=run_task, args=(service, "collect"))
    task.start()
    clock.advance(3 * service.config.collect.interval + 4)
    late = check(service, "collect")
    assert (late.ok, late.hint) == (False, "see the service's log")
    task.join(PATIENCE)
    assert "no answer within 3 s" in check(service, "collect").detail
    slurm.mend("squeue")
    assert run_task(service, "collect")
    assert check(service, "collect").ok


def test_an_answer_of_nothing_is_no_answer_of_garbage(service: Service, slurm: FakeSlurm) -> None:
    """What squeue prints half is a failure; the runs that were known stay known."""
    run = make_run()
    service.store.runs.record_seen([run], START)
    slurm.answer("squeue", "7\x1f7\x1f")
    assert not run_task(service, "collect")
    assert [stored.run.key.job_id for stored in service.store.runs.on_nodes()] == [7]
    assert "can't be read" in check(service, "collect").detail


def test_a_store_that_can_not_be_written_is_seen(
    service: Service, clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk: the task ends, nothing claims success, and all is well once there is room."""
    assert run_once(service)
    pages = service.store.database.query("PRAGMA page_count")[0][0]
    connection = service.store.database.connection
    connection.execute(f"PRAGMA max_page_count = {pages}")
    runs = [make_run(job) for job in range(1000)]
    with pytest.raises(Exception, match="full"):
        service.store.runs.record_seen(runs, START)
    connection.execute("PRAGMA max_page_count = 1000000")
    clock.advance(1)
    assert run_once(service)
    assert service.store.runs.on_nodes() == []


def make_run(job_id: int = 7, **changes: Any) -> JobRun:
    values: dict[str, Any] = {
        "key": RunKey(cluster="c", job_id=job_id, start=START - 600),
        "state": "RUNNING",
        "user": "alice",
        "uid": 1001,
        "account": "vision",
        "partition": "gpu",
        "qos": "normal",
        "name": "train",
        "comment": "",
        "reservation": "",
        "submit": START - 700,
        "time_limit_seconds": 3600,
        "nodes": ("gpu1",),
        "cards": (CardAllocation(card=Card("gpu1", 0), gpu_type="a100"),),
        **changes,
    }
    return JobRun(**values)


def windows(slurm: FakeSlurm) -> list[tuple[str, str]]:
    """(start, end) of every question to sacct so far."""
    lines = (slurm.folder / "answers" / "asked").read_text().splitlines()
    found = []
    for line in lines:
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "--starttime" in words:
            found.append((words["--starttime"], words["--endtime"]))
    return found


def test_records_are_read_from_before_the_last_read(
    service: Service, slurm: FakeSlurm, clock: SteppedClock
) -> None:
    """First as far back as the settings say, then a day before the last success; a failed read
    moves nothing."""
    read_accounting(service)
    assert windows(slurm)[0][0] == "2026-11-29T00:53:20"
    count = len(windows(slurm))
    clock.advance(3600)
    slurm.fail("sacct")
    assert not run_task(service, "accounting")
    slurm.mend("sacct")
    clock.advance(3600)
    read_accounting(service)
    assert windows(slurm)[count:][-1][1] == "2026-11-30T02:53:20"
    assert windows(slurm)[count + 1][0] == "2026-11-29T00:53:20"


def test_a_clock_that_was_years_ahead_leaves_no_gap(
    service: Service, slurm: FakeSlurm, clock: SteppedClock
) -> None:
    """The watermark lies in the future: everything since the backfill is read anew."""
    service.store.records.set_watermark("slurmdbd", START + 10 * 86400)
    read_accounting(service)
    assert windows(slurm)[0][0] == "2026-11-29T00:53:20"


def test_budgets_are_measured_on_one_reading_of_the_records(
    make_service: Callable[..., Service], slurm: FakeSlurm, clock: SteppedClock
) -> None:
    """Fifty budgets of one period do not read the month's records fifty times."""
    service = make_service(clock=clock)
    entries = tuple(
        BudgetEntry(account="lab", user=f"u{n}", card_hours=Decimal(1)) for n in range(50)
    )
    service.config = Config(
        **{name: getattr(service.config, name) for name in ("slurm", "daemon", "rules", "munge")},
        budget=entries,
    )
    statements: list[str] = []
    service.store.database.connection.set_trace_callback(statements.append)
    assert run_task(service, "budgets")
    reads = [text for text in statements if "SELECT facts FROM record WHERE start_key" in text]
    assert len(reads) == 1


class Stumbling:
    """A site's own rule with a mistake in it: it crashes over job 7."""

    id = "stumbling"
    settings_type = IdleSettings

    def reach_seconds(self, settings: IdleSettings) -> int:
        return 0

    def evaluate(self, settings: IdleSettings, evidence: Evidence) -> Verdict:
        if evidence.run.key.job_id == 7:
            raise ZeroDivisionError("float division by zero")
        return IdleGpu().evaluate(settings, evidence)


def test_one_run_that_can_not_be_judged_spares_the_others(service: Service) -> None:
    """A rule that crashes over one run is told with the job; the others are judged all the same."""
    others = (CardAllocation(card=Card("gpu1", 1), gpu_type="a100"),)
    service.store.runs.record_seen([make_run(7), make_run(8, cards=others)], START)
    rule = ConfiguredRule(rule=Stumbling(), settings=IdleSettings())
    service.rules = replace(service.rules, rules=(rule,))
    assert not run_task(service, "watch")
    detail = check(service, "watch").detail
    assert "1 runs could not be judged, job 7 among them; 1 runs judged" in detail
