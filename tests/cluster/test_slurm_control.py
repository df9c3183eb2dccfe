"""Acting on single runs of a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurmwrap.errors import SlurmCommandError
from slurmwrap.slurm.control import CancelOutcome, CommentOutcome
from testbed.cluster import Testbed
from tests.cluster.jobs import Jobs

pytestmark = pytest.mark.cluster


@pytest.fixture
def jobs(testbed: Testbed) -> Iterator[Jobs]:
    made = Jobs(testbed)
    yield made
    made.remove()


def admin_comment(jobs: Jobs, job: str) -> str:
    """What squeue prints as the only column; empty when there is none."""
    text = jobs.run_as_root("squeue", "-h", "-t", "all", "-j", job, "-O", "admin_comment:4000")
    return text.rstrip("\n").rstrip(" ").removeprefix("(null)")


def test_cancelling_one_array_task_leaves_the_others(jobs: Jobs) -> None:
    """A10: also the task whose raw id is the array's own id."""
    array = jobs.submit("--array=0-3", "--gres=gpu:a100:1")
    runs = jobs.wait_for_runs(4)
    master = next(name for name, run in runs.items() if run.key.job_id == array)
    assert jobs.control.cancel(runs[master]) is CancelOutcome.CANCELLED
    left = jobs.wait_for_runs(3)
    assert sorted(left) == sorted(set(runs) - {master})
    assert {jobs.testbed.job_state(name) for name in left} == {"RUNNING"}


def test_cancelling_a_component_cancels_the_whole(jobs: Jobs) -> None:
    """A11: so a heterogeneous job has to be judged as a whole."""
    leader = jobs.submit("--gres=gpu:a100:1", ":", "--gres=gpu:h800:1", "--mem=50")
    runs = jobs.wait_for_runs(2)
    assert jobs.control.cancel(runs[f"{leader}+1"]) is CancelOutcome.CANCELLED
    jobs.testbed.wait_for(lambda: not jobs.runs(), 20, "both components are gone")


def test_the_others_are_cancelled_when_the_first_has_ended(jobs: Jobs) -> None:
    """X3: three cancels, of which the first comes too late."""
    names = [str(jobs.submit()) for _ in range(3)]
    runs = jobs.wait_for_runs(3)
    jobs.run_as_root("scancel", names[0])
    jobs.wait_for_runs(2)
    assert [jobs.control.cancel(runs[name]).value for name in names] == [
        "not_running",
        "cancelled",
        "cancelled",
    ]
    assert jobs.control.current(runs[names[0]]) is None


def test_a_waiting_job_is_spared(jobs: Jobs) -> None:
    """X4: a run that was requeued: its job waits, and is not cancelled."""
    job = str(jobs.submit("--requeue"))
    run = jobs.wait_for_runs(1)[job]
    jobs.run_as_root("scontrol", "requeuehold", job)
    jobs.testbed.wait_for(lambda: jobs.testbed.job_state(job) == "PENDING", 20, "it waits")
    assert jobs.control.current(run) is None
    assert jobs.control.cancel(run) is CancelOutcome.NOT_RUNNING
    assert jobs.control.set_admin_comment(run, "late") is CommentOutcome.JOB_GONE
    assert jobs.testbed.job_state(job) == "PENDING"
    assert admin_comment(jobs, job) == ""


def test_what_others_wrote_is_kept(jobs: Jobs) -> None:
    """X5: jobstats' summary stays first; our note is added, then renewed, never doubled."""
    job = str(jobs.submit())
    run = jobs.wait_for_runs(1)[job]
    jobs.run_as_root("scontrol", "update", f"JobId={job}", "AdminComment=JS1:H4sI+/AA==")
    assert jobs.control.set_admin_comment(run, "warned") is CommentOutcome.WRITTEN
    text = "idle-gpu: \"0 %\" for 2 h; it's $(id) = 'x'\n\\"
    assert jobs.control.set_admin_comment(run, text) is CommentOutcome.WRITTEN
    expected = "JS1:H4sI+/AA==; [slurmwrap: idle-gpu: \"0 %\" for 2 h; it's $(id) = 'x' \\]"
    assert admin_comment(jobs, job) == expected
    assert jobs.control.cancel(run) is CancelOutcome.CANCELLED
    shown = jobs.testbed.wait_for(
        lambda: [
            row["AdminComment"]
            for row in jobs.testbed.sacct("-X", "-j", job, "--format=State,AdminComment")
            if row["State"].startswith("CANCELLED")
        ],
        20,
        "slurmdbd has the end",
    )
    assert shown == [expected]


def test_a_note_goes_to_one_array_task(jobs: Jobs) -> None:
    """The array's raw id would have named every task."""
    array = jobs.submit("--array=0-1")
    runs = jobs.wait_for_runs(2)
    master = next(name for name, run in runs.items() if run.key.job_id == array)
    (other,) = set(runs) - {master}
    jobs.control.set_admin_comment(runs[master], "only this one")
    assert admin_comment(jobs, master) == "[slurmwrap: only this one]"
    assert admin_comment(jobs, other) == ""


def test_a_long_note_arrives_shortened(jobs: Jobs) -> None:
    """60,000 bytes are kept, in slurmctld and in slurmdbd."""
    job = str(jobs.submit())
    run = jobs.wait_for_runs(1)[job]
    outcome = jobs.control.set_admin_comment(run, "x" * 100_000)
    assert outcome is CommentOutcome.SHORTENED
    details = jobs.live.read_details(run)
    assert details is not None
    assert len(details.admin_comment) == 60_000


def test_what_slurm_refuses_is_told(jobs: Jobs) -> None:
    """An update that is none."""
    job = str(jobs.submit())
    jobs.wait_for_runs(1)
    with pytest.raises(SlurmCommandError):
        jobs.commands.run("scontrol", "update", f"JobId={job}", "NoSuchField=1")
