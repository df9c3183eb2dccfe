"""slurmdbd's records, read from a real one."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from slurmwrap.clock import SystemClock
from slurmwrap.config import Config
from slurmwrap.display import clean_text
from slurmwrap.model import AccountingRecord
from slurmwrap.slurm.checks import check_slurm
from slurmwrap.slurm.reports import gpu_usage
from testbed.cluster import Testbed
from tests.cluster.jobs import HOSTILE_NAME, Jobs

pytestmark = pytest.mark.cluster


@pytest.fixture
def jobs(testbed: Testbed) -> Iterator[Jobs]:
    made = Jobs(testbed)
    yield made
    made.remove()


def read(jobs: Jobs, since: int | None = None, until: int | None = None) -> list[AccountingRecord]:
    """The test's own records, in order of their start."""
    now = int(time.time())
    batch = jobs.records.read_records(
        now - 7200 if since is None else since, now + 1 if until is None else until
    )
    assert batch.rejected == ()
    own = [
        record
        for record in batch.records
        if {record.job_id, record.array_job_id} & set(jobs.submitted)
    ]
    return sorted(own, key=lambda record: (record.job_id, record.start or 2**60))


def wait_for_end(jobs: Jobs, count: int = 1) -> list[AccountingRecord]:
    """Once that many records of the test have ended."""

    def ended() -> list[AccountingRecord]:
        records = [record for record in read(jobs) if record.end is not None]
        return records if len(records) >= count else []

    return jobs.testbed.wait_for(ended, 30, f"{count} records with an end")


def test_a_record_of_a_running_and_of_an_ended_job(jobs: Jobs) -> None:
    """B22: cards over both nodes; no end while it runs, and afterwards the same run's end."""
    job = str(jobs.submit("-N2", "--gres=gpu:2"))
    run = jobs.wait_for_runs(1)[job]
    (running,) = jobs.testbed.wait_for(
        lambda: [record for record in read(jobs) if record.start is not None], 20, "its record"
    )
    assert (running.state, running.end) == ("RUNNING", None)
    assert running.cards == {"a100": 2, "h800": 2}
    assert (running.cluster, running.job_id, running.start) == (
        run.key.cluster,
        run.key.job_id,
        run.key.start,
    )
    assert (running.nodes, running.time_limit_seconds) == ("gpu[1-2]", 600)
    assert (running.user, running.account, running.partition, running.qos) == (
        run.user,
        run.account,
        run.partition,
        run.qos,
    )
    jobs.run_as_root("scancel", job)
    (ended,) = wait_for_end(jobs)
    (row,) = jobs.testbed.sacct("-X", "-j", job, "--format=Start,End,ElapsedRaw")
    assert (ended.state, ended.cards) == ("CANCELLED", running.cards)
    assert [str(ended.start), str(ended.end), str(ended.elapsed_seconds)] == list(row.values())


def test_a_requeued_job_is_two_runs(jobs: Jobs) -> None:
    """B6, V5: one id, two starts; each run is what slurmctld showed while it was there."""
    job = str(jobs.submit("--requeue", "--gres=gpu:a100:1"))
    first = jobs.wait_for_runs(1)[job]
    # A second apart, so that the two runs can't have the same start.
    jobs.testbed.wait_for(lambda: time.time() > first.key.start + 2, 5, "a second")
    jobs.run_as_root("scontrol", "requeue", job)
    second = jobs.testbed.wait_for(
        lambda: [run for run in jobs.runs().values() if run.key.start != first.key.start],
        60,
        "its second run",
    )[0]
    assert jobs.live.read_run(first) is None
    records = jobs.testbed.wait_for(
        lambda: [r for r in read(jobs) if r.start is not None][1:] and read(jobs), 20, "two runs"
    )
    assert [(record.state, record.start, record.cards) for record in records] == [
        ("REQUEUED", first.key.start, {"a100": 1}),
        ("RUNNING", second.key.start, {"a100": 1}),
    ]


def test_array_tasks_have_their_own_records(jobs: Jobs) -> None:
    """A10: raw ids for data, the array's id and the task's number beside them."""
    array = jobs.submit("--array=0-1")
    runs = jobs.wait_for_runs(2)
    records = jobs.testbed.wait_for(
        lambda: [r for r in read(jobs) if r.start][1:] and read(jobs), 20, "two records"
    )
    assert {(record.job_id, record.array_job_id, record.array_task_id) for record in records} == {
        (run.key.job_id, array, run.array_task_id) for run in runs.values()
    }


def test_hostile_names_are_one_record_each(jobs: Jobs) -> None:
    """B13: |, CR, newline, a control character, bytes that are no UTF-8."""
    jobs.submit(f"--job-name={HOSTILE_NAME}", "--gres=gpu:a100:1", wrap="true")
    jobs.submit("--job-name=after", "--gres=gpu:a100:1", wrap="true")
    first, second = wait_for_end(jobs, 2)
    # slurmdbd itself has a question mark for the broken byte.
    assert first.name == clean_text("a|b\r\nJobId=1 x=? \x1fy")
    assert second.name == "after"
    assert (first.cards, second.cards) == ({"a100": 1}, {"a100": 1})


def test_a_job_that_never_ran(jobs: Jobs) -> None:
    """B14: cancelled while it waited: `CANCELLED by 0`, no seconds and no cards. Its Start is
    None, or its end where the scheduler had already looked at it (both seen on 22.05)."""
    first, second = (str(jobs.submit("--gres=gpu:a100:4")) for _ in range(2))
    jobs.wait_for_runs(1)
    assert jobs.testbed.job_state(second) == "PENDING"
    jobs.run_as_root("scancel", second)
    (record,) = wait_for_end(jobs)
    assert str(record.job_id) == second != first
    assert (record.state, record.elapsed_seconds, record.cards) == ("CANCELLED", 0, {})
    assert record.start in (None, record.end)


def test_the_callers_environment_has_no_effect(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """B15: SLURM_TIME_FORMAT, SACCT_FORMAT, SQUEUE_FORMAT and TZ of whoever started us."""
    job = str(jobs.submit("--gres=gpu:a100:1"))
    run = jobs.wait_for_runs(1)[job]
    expected = jobs.testbed.wait_for(lambda: read(jobs), 20, "its record")
    for name, value in {
        "SLURM_TIME_FORMAT": "relative",
        "SACCT_FORMAT": "jobname%2",
        "SQUEUE_FORMAT": "%j",
        "SQUEUE_STATES": "PENDING",
        "SQUEUE_PARTITION": "debug",
        "TZ": "America/New_York",
    }.items():
        monkeypatch.setenv(name, value)
    other = Jobs(jobs.testbed, jobs.submitted)
    (record,) = read(other)
    assert (record.start, record.submit) == (expected[0].start, expected[0].submit)
    assert other.live.read_run(run) == run


def test_windows_that_overlap_lose_nothing(jobs: Jobs) -> None:
    """B18: two jobs that end in the same second, read before and after their end, are each one
    record of both windows; merged by run they are two."""
    names = [str(jobs.submit("--gres=gpu:a100:1")) for _ in range(2)]
    jobs.wait_for_runs(2)
    before = jobs.testbed.wait_for(
        lambda: [r for r in read(jobs) if r.start][1:] and read(jobs), 20, "two records"
    )
    jobs.run_as_root("scancel", *names)
    after = wait_for_end(jobs, 2)
    merged = {(record.job_id, record.start): record for record in [*before, *after]}
    assert [record.end is not None for record in merged.values()] == [True, True]
    assert len(merged) == 2


def test_which_runs_a_window_has(jobs: Jobs) -> None:
    """B10: whatever overlaps it: what began before, what still runs, what ended within."""
    jobs.submit(wrap="sleep 2")
    jobs.submit()
    (ended,) = wait_for_end(jobs)
    assert ended.start is not None
    assert ended.end is not None
    running = jobs.submitted[1]
    inside = {record.job_id for record in read(jobs, ended.start + 1, ended.end)}
    assert inside == set(jobs.submitted)
    assert {record.job_id for record in read(jobs, ended.end + 1)} == {running}
    assert read(jobs, ended.start - 3600, ended.start - 1800) == []


def test_a_cluster_in_order_passes_every_check(jobs: Jobs) -> None:
    """The testbed is set up as we ask sites to be."""
    checks = check_slurm(Config(), jobs.commands, SystemClock())
    assert [check for check in checks if not check.ok] == []
    assert len(checks) == 10


def test_sreport_answers(jobs: Jobs) -> None:
    """An hour long past, in which the testbed did not exist: nothing was used."""
    hour = int(time.time()) // 3600 * 3600 - 400 * 86400
    assert gpu_usage(jobs.commands, hour, hour + 3600) == ()
