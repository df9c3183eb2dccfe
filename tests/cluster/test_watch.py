"""Warning and cancelling on a real Slurm, with the windows as shipped and a set clock.

Readings are made up so that two hours need not pass; jobs, cancels, AdminComment and mails
are real.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmwrap.model import Card
from testbed.cluster import Testbed
from tests.cluster.watcher import SHIPPED_WINDOWS, Watcher

pytestmark = pytest.mark.cluster

ALICE, BOB = "swt-alice", "swt-bob"
MINUTE, HOUR = 60, 3600
MakeWatcher = Callable[..., Watcher]


@pytest.fixture
def make_watcher(testbed: Testbed, request: pytest.FixtureRequest) -> Iterator[MakeWatcher]:
    made: list[Watcher] = []

    def make(**options: Any) -> Watcher:
        watcher = Watcher.prepare(testbed, "watch", **options)
        watcher.site.start_mail()
        made.append(watcher)
        return watcher

    yield make
    for watcher in made:
        watcher.close()
    testbed.run_as("root", ["scancel", "--user=swt-alice"])
    testbed.run_as("root", ["scancel", "--user=swt-bob"])


@pytest.fixture
def watcher(make_watcher: MakeWatcher) -> Watcher:
    return make_watcher()


def sleeper(testbed: Testbed, *options: str, user: str = ALICE) -> int:
    return testbed.submit(user, *options, wrap="sleep 600")


def test_an_idle_job_is_warned_then_cancelled(testbed: Testbed, watcher: Watcher) -> None:
    """V1: warned at 90 minutes, cancelled at 2 hours, the reason in AdminComment and mail."""
    job = sleeper(testbed, "--gres=gpu:a100:1", "--job-name=interactive")
    stored = watcher.see(job)
    start = stored.run.key.start
    watcher.feed(stored, start, start + 3 * HOUR, 0)

    watcher.at(start + 89 * MINUTE)
    assert watcher.entries(stored, "warning") == []
    watcher.at(start + 91 * MINUTE)
    (warning,) = watcher.entries(stored, "warning")
    assert warning.delivered_at == start + 91 * MINUTE
    (mail,) = watcher.site.mails(to=ALICE, subject=str(job))
    assert "idle" in mail.body
    watcher.at(start + 119 * MINUTE)
    assert watcher.state(job) == "RUNNING"
    watcher.at(start + 122 * MINUTE)

    testbed.wait_for(lambda: watcher.state(job) != "RUNNING", 30, "the job is cancelled")
    row = testbed.sacct("-X", "-j", str(job), "--format=State,AdminComment")[0]
    assert row["State"].startswith("CANCELLED")
    assert "idle-gpu: idle for" in row["AdminComment"]
    (cancel,) = watcher.entries(stored, "cancel")
    assert cancel.detail["outcome"] == "cancelled"
    assert cancel.reason in row["AdminComment"]
    watcher.at(start + 123 * MINUTE)
    assert len([mail for mail in watcher.site.mails(to=ALICE) if cancel.reason in mail.body]) == 1


@pytest.mark.parametrize("idle_task", [2, 3])
def test_only_the_idle_task_of_an_array_is_cancelled(
    testbed: Testbed, watcher: Watcher, idle_task: int
) -> None:
    """A10: the other tasks run on, also when the idle one carries the array's own raw id."""
    job = sleeper(testbed, "--gres=gpu:a100:1", "--array=0-3", "--nodes=1")
    tasks = {task: watcher.see(job, task) for task in range(4)}
    assert tasks[3].run.key.job_id == job, "the last task carries the array's id"
    start = max(stored.run.key.start for stored in tasks.values())
    for task, stored in tasks.items():
        watcher.feed(stored, start, start + 3 * HOUR, 0 if task == idle_task else 80)

    watcher.at(start + 91 * MINUTE)
    watcher.at(start + 125 * MINUTE)

    testbed.wait_for(
        lambda: watcher.state(f"{job}_{idle_task}") != "RUNNING", 30, "the idle task is cancelled"
    )
    others = [task for task in range(4) if task != idle_task]
    assert [watcher.state(f"{job}_{task}") for task in others] == ["RUNNING"] * 3
    assert [bool(watcher.entries(tasks[task], "warning")) for task in range(4)] == [
        task == idle_task for task in range(4)
    ]


def test_a_silent_node_makes_the_job_unknown(testbed: Testbed, watcher: Watcher) -> None:
    """A8: of a two-node job both nodes count; while one is silent nothing is done."""
    job = sleeper(testbed, "--nodes=2", "--gres=gpu:1")
    stored = watcher.see(job)
    assert {item.card.node for item in stored.run.cards} == {"gpu1", "gpu2"}
    start = stored.run.key.start
    heard = [item.card for item in stored.run.cards if item.card.node == "gpu1"]
    watcher.feed_cards(heard, start, start + 4 * HOUR, 0)
    for minutes in (91, 125, 240):
        watcher.at(start + minutes * MINUTE)
    assert watcher.entries(stored, "warning") == []
    assert watcher.state(job) == "RUNNING"


def test_two_jobs_on_a_node_have_their_own_cards(testbed: Testbed, watcher: Watcher) -> None:
    """A7: readings of one job's card never count for the other."""
    first = sleeper(testbed, "--gres=gpu:h800:1")
    second = sleeper(testbed, "--gres=gpu:h800:1")
    one, two = watcher.see(first), watcher.see(second)
    cards = [item.card for stored in (one, two) for item in stored.run.cards]
    assert len(set(cards)) == 2
    assert {card.node for card in cards} == {"gpu2"}
    start = two.run.key.start
    watcher.feed(one, start, start + 2 * HOUR, 0)
    watcher.feed(two, start, start + 2 * HOUR, 90)
    watcher.at(start + 95 * MINUTE)
    assert len(watcher.entries(one, "warning")) == 1
    assert watcher.entries(two, "warning") == []


def test_a_forged_environment_changes_nothing(testbed: Testbed, watcher: Watcher) -> None:
    """A1, A3: whatever the job claims, its card is the one that slurmctld gave it."""
    holder = sleeper(testbed, "--gres=gpu:a100:2")
    watcher.see(holder)
    job = testbed.submit(
        BOB,
        "--gres=gpu:a100:1",
        "--export=ALL,SLURM_JOB_GPUS=0,CUDA_VISIBLE_DEVICES=NoDevFiles,GPU_DEVICE_ORDINAL=MIG-x",
        wrap="export SLURM_JOB_GPUS=0 CUDA_VISIBLE_DEVICES=0; sleep 600",
    )
    stored = watcher.see(job)
    assert [item.card for item in stored.run.cards] == [Card("gpu1", 2)]


def test_an_allocation_without_a_process_is_watched(testbed: Testbed, watcher: Watcher) -> None:
    """A4: salloc --no-shell holds cards and runs nothing: idle like any other."""
    done = testbed.run_as(
        ALICE, ["salloc", "--no-shell", "--gres=gpu:a100:1", "--time=60"], check=True
    )
    job = int(done.stderr.split("Granted job allocation ")[1].split()[0])
    stored = watcher.see(job)
    start = stored.run.key.start
    watcher.feed(stored, start, start + 3 * HOUR, 0)
    watcher.at(start + 91 * MINUTE)
    watcher.at(start + 122 * MINUTE)
    testbed.wait_for(lambda: watcher.state(job) != "RUNNING", 30, "the allocation is cancelled")


def test_a_service_that_was_down_warns_first(testbed: Testbed, watcher: Watcher) -> None:
    """X1, V2: back after the window, it warns, waits the grace, and only then cancels."""
    job = sleeper(testbed, "--gres=gpu:a100:1")
    stored = watcher.see(job)
    start = stored.run.key.start
    watcher.feed(stored, start, start + 5 * HOUR, 0)
    watcher.at(start + 3 * HOUR)
    assert len(watcher.entries(stored, "warning")) == 1
    watcher.at(start + 3 * HOUR + 29 * MINUTE)
    assert watcher.state(job) == "RUNNING"
    watcher.at(start + 3 * HOUR + 31 * MINUTE)
    testbed.wait_for(lambda: watcher.state(job) != "RUNNING", 30, "the job is cancelled")


def test_no_delivered_warning_no_cancel(testbed: Testbed, watcher: Watcher) -> None:
    """X2: while the mail server refuses, the job lives; the grace begins with the delivery."""
    job = sleeper(testbed, "--gres=gpu:a100:1")
    stored = watcher.see(job)
    start = stored.run.key.start
    watcher.feed(stored, start, start + 6 * HOUR, 0)
    refuse = watcher.site.folder / "mail" / "refuse"
    refuse.write_text("451 4.7.1 greylisted, try again later\n")
    watcher.at(start + 91 * MINUTE)
    watcher.at(start + 3 * HOUR)
    assert watcher.entries(stored, "warning")[0].delivered_at is None
    assert watcher.state(job) == "RUNNING"
    waiting, _, error = watcher.service.store.ledger.undelivered()
    assert (waiting, "451" in error) == (1, True)

    refuse.unlink()
    watcher.at(start + 4 * HOUR + 5 * MINUTE)
    delivered = watcher.entries(stored, "warning")[0].delivered_at
    assert delivered == start + 4 * HOUR + 5 * MINUTE
    watcher.at(start + 4 * HOUR + 30 * MINUTE)
    assert watcher.state(job) == "RUNNING"
    watcher.at(start + 4 * HOUR + 36 * MINUTE)
    testbed.wait_for(lambda: watcher.state(job) != "RUNNING", 30, "the job is cancelled")


def test_one_failing_cancel_does_not_stop_the_others(
    testbed: Testbed, make_watcher: MakeWatcher, tmp_path: Path
) -> None:
    """X3: scancel fails for the first of three; two are cancelled, each outcome is recorded."""
    jobs = [sleeper(testbed, "--gres=gpu:a100:1") for _ in range(3)]
    watcher = make_watcher(settings={"slurm": {"bin_dir": str(tmp_path)}})
    _copy_commands_with_broken_scancel(tmp_path, broken_job=jobs[0])
    runs = [watcher.see(job) for job in jobs]
    start = max(stored.run.key.start for stored in runs)
    for stored in runs:
        watcher.feed(stored, start, start + 3 * HOUR, 0)
    watcher.at(start + 91 * MINUTE)
    watcher.at(start + 122 * MINUTE)
    for job in jobs[1:]:
        testbed.wait_for(lambda job=job: watcher.state(job) != "RUNNING", 30, f"{job} is cancelled")  # type: ignore[misc]
    assert watcher.state(jobs[0]) == "RUNNING"
    (failure,) = watcher.entries(runs[0], "cancel_failure")
    assert "injected" in failure.reason
    outcomes = [
        entry.detail["outcome"] for run in runs[1:] for entry in watcher.entries(run, "cancel")
    ]
    assert outcomes == ["cancelled", "cancelled"]

    (tmp_path / "scancel").unlink()
    (tmp_path / "scancel").symlink_to("/usr/bin/scancel")
    watcher.at(start + 123 * MINUTE)
    testbed.wait_for(lambda: watcher.state(jobs[0]) != "RUNNING", 30, "tried again, cancelled")


def test_a_requeued_job_is_spared(testbed: Testbed, watcher: Watcher) -> None:
    """X4, V5: between decision and cancel the job was requeued: its new run is left alone."""
    job = sleeper(testbed, "--gres=gpu:a100:1", "--requeue")
    stored = watcher.see(job)
    start = stored.run.key.start
    watcher.feed(stored, start, start + 3 * HOUR, 0)
    watcher.at(start + 91 * MINUTE)
    watcher.clock.set(start + 122 * MINUTE)
    from slurmwrapd.collect import collect
    from slurmwrapd.watch import watch

    collect(watcher.service)
    testbed.run_as("root", ["scontrol", "requeue", str(job)], check=True)
    testbed.wait_for(lambda: watcher.state(job) == "PENDING", 30, "the job waits again")
    assert "spared" in watch(watcher.service)
    assert watcher.entries(stored, "cancel") == []
    assert watcher.state(job) == "PENDING"


def test_a_job_that_turned_busy_is_spared(testbed: Testbed, watcher: Watcher) -> None:
    """X4: the newest reading shows work: neither cancelled nor, later, on the old warning."""
    job = sleeper(testbed, "--gres=gpu:a100:1")
    stored = watcher.see(job)
    start = stored.run.key.start
    watcher.feed(stored, start, start + 121 * MINUTE, 0)
    watcher.at(start + 91 * MINUTE)
    watcher.feed(stored, start + 121 * MINUTE, start + 150 * MINUTE, 95)
    watcher.at(start + 123 * MINUTE)
    assert watcher.state(job) == "RUNNING"
    # Idle again for two hours: the old warning is spent, a new one comes first.
    watcher.feed(stored, start + 150 * MINUTE, start + 5 * HOUR, 0)
    watcher.at(start + 4 * HOUR + 40 * MINUTE)
    assert len(watcher.entries(stored, "warning")) == 2
    assert watcher.state(job) == "RUNNING"


def test_what_others_wrote_into_admin_comment_stays(testbed: Testbed, watcher: Watcher) -> None:
    """X5: jobstats' summary is kept, ours is added."""
    job = sleeper(testbed, "--gres=gpu:a100:1")
    summary = "JS1:H4sIAAAAAAAC/6tWUEpUslIwMtRRUEoBsxQMDYDMWgCG7WyZGgAAAA=="
    testbed.run_as(
        "root", ["scontrol", "update", f"JobId={job}", f"AdminComment={summary}"], check=True
    )
    stored = watcher.see(job)
    start = stored.run.key.start
    watcher.feed(stored, start, start + 3 * HOUR, 0)
    watcher.at(start + 91 * MINUTE)
    watcher.at(start + 122 * MINUTE)
    testbed.wait_for(lambda: watcher.state(job) != "RUNNING", 30, "the job is cancelled")
    comment = testbed.sacct("-X", "-j", str(job), "--format=AdminComment")[0]["AdminComment"]
    assert comment.startswith(summary)
    assert "idle-gpu: idle for" in comment


def test_observe_mode_only_takes_notes(testbed: Testbed, make_watcher: MakeWatcher) -> None:
    """Rules ship in observe: what would have been done is recorded, nobody is told, no cancel."""
    rule = {**SHIPPED_WINDOWS["idle-gpu"], "mode": "observe"}
    watcher = make_watcher(rules={"idle-gpu": rule})
    job = sleeper(testbed, "--gres=gpu:a100:1")
    stored = watcher.see(job)
    start = stored.run.key.start
    watcher.feed(stored, start, start + 3 * HOUR, 0)
    watcher.at(start + 91 * MINUTE)
    watcher.at(start + 122 * MINUTE)
    assert len(watcher.entries(stored, "would_warn")) == 1
    assert len(watcher.entries(stored, "would_cancel")) == 1
    assert watcher.site.mails() == []
    assert watcher.state(job) == "RUNNING"


def test_the_breaker_stops_everything(testbed: Testbed, make_watcher: MakeWatcher) -> None:
    """X8: when most of the cluster would be cancelled at once, nothing is, and admins are told."""
    watcher = make_watcher()
    jobs = [sleeper(testbed, "--gres=gpu:1") for _ in range(6)]
    runs = [watcher.see(job) for job in jobs]
    start = max(stored.run.key.start for stored in runs)
    for stored in runs:
        watcher.feed(stored, start, start + 3 * HOUR, 0)
    watcher.at(start + 91 * MINUTE)
    watcher.at(start + 122 * MINUTE)
    assert [watcher.state(job) for job in jobs] == ["RUNNING"] * 6
    (alarm,) = watcher.site.mails(to="hpc-admins")
    assert "breaker" in alarm.subject


def test_a_kill_between_cancel_and_record_still_tells_the_owner(
    testbed: Testbed, watcher: Watcher
) -> None:
    """A decided cancel whose outcome was never written is settled by the next tick."""
    job = sleeper(testbed, "--gres=gpu:a100:1")
    stored = watcher.see(job)
    start = stored.run.key.start
    watcher.clock.set(start + 2 * HOUR)
    watcher.service.store.ledger.add(
        at=start + 2 * HOUR,
        kind="cancel_decision",
        dedupe_key="cancel_decision:test",
        reason="idle for 2 h",
        run_id=stored.id,
        rule="idle-gpu",
        detail={"episode_since": start},
    )
    testbed.run_as("root", ["scancel", str(job)], check=True)
    testbed.wait_for(lambda: watcher.state(job) in ("", "CANCELLED"), 30, "the job has ended")
    watcher.at(start + 2 * HOUR + MINUTE)
    watcher.at(start + 2 * HOUR + 2 * MINUTE)
    (cancel,) = watcher.entries(stored, "cancel")
    assert cancel.detail["outcome"] == "left_nodes"
    assert len(watcher.site.mails(to=ALICE)) == 1


def _copy_commands_with_broken_scancel(folder: Path, broken_job: int) -> None:
    """Real commands, but a scancel that fails for one job."""
    for name in ("squeue", "sacct", "sacctmgr", "scontrol", "sreport", "sinfo", "scancel"):
        target = shutil.which(name)
        assert target
        os.symlink(target, folder / name)
    (folder / "scancel").unlink()
    (folder / "scancel").write_text(
        "#!/bin/sh\n"
        f'for word in "$@"; do [ "$word" = {broken_job} ] && '
        "{ echo 'scancel: error: injected failure' >&2; exit 1; }; done\n"
        'exec /usr/bin/scancel "$@"\n'
    )
    (folder / "scancel").chmod(0o755)
