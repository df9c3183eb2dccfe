"""Acting on one run."""

from __future__ import annotations

import json

import pytest

from slurmwrap.clock import SteppedClock
from slurmwrap.errors import SlurmCommandError, SlurmUnavailableError
from slurmwrap.model import JobRun, RunKey
from slurmwrap.slurm.control import (
    MOST_COMMENT_BYTES,
    CancelOutcome,
    CommentOutcome,
    JobControl,
    merge_comment,
)
from slurmwrap.slurm.live import LiveJobs

AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


def task(**changes: object) -> JobRun:
    """Array task 11_1, whose raw id is the array's own id."""
    values: dict[str, object] = {
        "key": RunKey(cluster="testbed", job_id=11, start=1000),
        "array_job_id": 11,
        "array_task_id": 1,
        "state": "RUNNING",
        "user": "alice",
        "uid": 1001,
        "account": "vision",
        "partition": "gpu",
        "qos": "normal",
        "name": "train",
        "comment": "",
        "reservation": "",
        "submit": 990,
        "time_limit_seconds": 600,
        "nodes": ("n1",),
        "cards": (),
    }
    return JobRun(**(values | changes))  # type: ignore[arg-type]


def set_comment(slurm, comment: str, start: int = 1000) -> None:
    job = {"job_id": 11, "job_state": "RUNNING", "start_time": start, "admin_comment": comment}
    slurm.answer("squeue", json.dumps({"jobs": [job]}), when="--json")


@pytest.fixture
def control(slurm) -> JobControl:
    commands = slurm.commands()
    return JobControl(commands, LiveJobs(commands, ("gpu",), SteppedClock(1010)))


def test_one_array_task_is_named_not_the_array(slurm, control: JobControl) -> None:
    """A10: `scancel 11` would cancel every task; 11_1 is one of them. Only if it runs."""
    slurm.answer("scancel")
    assert control.cancel(task()) is CancelOutcome.CANCELLED
    assert slurm.calls("scancel") == ["--verbose --state=RUNNING 11_1"]


def test_a_component_is_named_by_leader_and_offset(slurm, control: JobControl) -> None:
    """A11: raw id 13 is 12+1."""
    slurm.answer("scancel")
    control.cancel(
        task(
            key=RunKey(cluster="testbed", job_id=13, start=1000),
            array_job_id=None,
            array_task_id=None,
            het_job_id=12,
            het_offset=1,
        )
    )
    assert slurm.calls("scancel") == ["--verbose --state=RUNNING 12+1"]


@pytest.mark.parametrize(
    "stderr",
    [
        "scancel: error: Kill job error on job id 11_1: Invalid job id specified\n"
        "scancel: error: No active jobs match ALL job filters, including: state=RUNNING",
        "scancel: error: No active jobs match ALL job filters, including: state=RUNNING",
        "scancel: error: Kill job error on job id 11_1: Job/step already completing or completed",
    ],
)
def test_a_run_that_just_ended_is_no_failure(slurm, control: JobControl, stderr: str) -> None:
    """X3: the job ended by itself a moment before."""
    slurm.answer("scancel", status=1, stderr=stderr)
    assert control.cancel(task()) is CancelOutcome.NOT_RUNNING


def test_a_spared_run_is_not_called_cancelled(slurm, control: JobControl) -> None:
    """X4: for a job that waits, scancel 22.05 exits with 0, and says so when verbose."""
    words = "scancel: error: No active jobs match ALL job filters, including: state=RUNNING \n"
    slurm.answer("scancel", status=0, stderr=words)
    assert control.cancel(task()) is CancelOutcome.NOT_RUNNING


def test_a_refused_cancel_is_a_failure(slurm, control: JobControl) -> None:
    """Not our job to cancel: the error says so."""
    words = "scancel: error: Kill job error on job id 11_1: Access/permission denied"
    slurm.answer("scancel", status=210, stderr=words)
    with pytest.raises(SlurmCommandError, match="permission denied"):
        control.cancel(task())


def test_a_cancel_that_slurmctld_did_not_hear_is_a_failure(slurm, control: JobControl) -> None:
    """slurmctld away: nothing was cancelled, and nobody believes it was."""
    slurm.answer("scancel", status=1, stderr=AWAY)
    with pytest.raises(SlurmUnavailableError):
        control.cancel(task())


def test_the_others_are_done_when_the_first_fails(slurm, control: JobControl) -> None:
    """X3: each cancel has an outcome of its own."""
    slurm.answer("scancel")
    slurm.answer("scancel", status=210, stderr="Access/permission denied", when="11_1")
    outcomes = []
    for number in (1, 2, 3):
        try:
            outcomes.append(control.cancel(task(array_task_id=number)).value)
        except SlurmCommandError as error:
            outcomes.append(str(error.status))
    assert outcomes == ["210", "cancelled", "cancelled"]


def test_a_note_is_written_into_an_empty_comment(slurm, control: JobControl) -> None:
    """One scontrol call, for this task alone."""
    set_comment(slurm, "")
    slurm.answer("scontrol")
    assert control.set_admin_comment(task(), "idle-gpu: idle for 2 h") is CommentOutcome.WRITTEN
    assert slurm.calls("scontrol") == [
        "update JobId=11_1 AdminComment=[slurmwrap: idle-gpu: idle for 2 h]"
    ]


def test_what_others_wrote_is_kept(slurm, control: JobControl) -> None:
    """X5: jobstats' summary stays first and unchanged."""
    set_comment(slurm, "JS1:H4sIAAAAAAAA==")
    slurm.answer("scontrol")
    control.set_admin_comment(task(), "idle")
    assert slurm.calls("scontrol") == [
        "update JobId=11_1 AdminComment=JS1:H4sIAAAAAAAA==; [slurmwrap: idle]"
    ]


def test_the_same_note_is_not_written_twice(slurm, control: JobControl) -> None:
    """Said already: nothing to do."""
    set_comment(slurm, "JS1:x; [slurmwrap: idle]")
    slurm.answer("scontrol")
    assert control.set_admin_comment(task(), "idle") is CommentOutcome.WRITTEN
    assert slurm.calls("scontrol") == []


@pytest.mark.parametrize(("known", "start"), [(True, 2000), (False, 1000)])
def test_a_later_run_gets_no_note_of_an_earlier_one(
    slurm, control: JobControl, known: bool, start: int
) -> None:
    """X4: requeued and started again, or purged: no note."""
    set_comment(slurm, "", start)
    if not known:
        slurm.answer("squeue", '{"jobs": []}', when="--json")
    slurm.answer("scontrol")
    assert control.set_admin_comment(task(), "idle") is CommentOutcome.JOB_GONE
    assert slurm.calls("scontrol") == []


def test_a_job_purged_before_the_note_arrives(slurm, control: JobControl) -> None:
    """scontrol's `Invalid job id` is no failure."""
    set_comment(slurm, "")
    words = "Invalid job id specified for job 11_1\n"
    slurm.answer("scontrol", status=1, stderr=words)
    assert control.set_admin_comment(task(), "idle") is CommentOutcome.JOB_GONE


def test_an_operator_may_not_write_notes(slurm, control: JobControl) -> None:
    """AdminLevel Operator is refused by Slurm, and the error says so."""
    set_comment(slurm, "")
    slurm.answer("scontrol", status=1, stderr="Access/permission denied for job 11_1")
    with pytest.raises(SlurmCommandError, match="permission denied"):
        control.set_admin_comment(task(), "idle")


@pytest.mark.parametrize(
    ("present", "text", "expected"),
    [
        ("", "idle", "[slurmwrap: idle]"),
        ("JS1:abc", "idle", "JS1:abc; [slurmwrap: idle]"),
        ("JS1:abc; [slurmwrap: warned]", "idle", "JS1:abc; [slurmwrap: idle]"),
        ("[slurmwrap: warned],theirs", "idle", "[slurmwrap: idle],theirs"),
        ("[slurmwrap: a] x [slurmwrap: b]", "idle", "[slurmwrap: idle] x "),
        ("", "two\nlines\tand [brackets]", "[slurmwrap: two lines and (brackets)]"),
        ("", "x\x1b[31m", "[slurmwrap: x\N{REPLACEMENT CHARACTER}(31m]"),
        ("a [slurmwrap: unclosed", "idle", "a [slurmwrap: unclosed; [slurmwrap: idle]"),
    ],
)
def test_notes_and_others_share_the_comment(present: str, text: str, expected: str) -> None:
    """Our note has brackets, so that it can be renewed without touching its neighbours."""
    assert merge_comment(present, text) == (expected, CommentOutcome.WRITTEN)


def test_a_long_reason_is_shortened() -> None:
    """The comment stays within what slurmdbd keeps; letters of several bytes stay whole."""
    comment, outcome = merge_comment("JS1:" + "x" * 30000, "闲" * 30000)
    assert outcome is CommentOutcome.SHORTENED
    assert MOST_COMMENT_BYTES - 3 < len(comment.encode()) <= MOST_COMMENT_BYTES
    assert comment.startswith("JS1:xxx")
    assert comment.endswith("闲]")


def test_a_full_comment_is_left_alone() -> None:
    """No room: what others wrote is not cut for our note."""
    full = "JS1:" + "x" * MOST_COMMENT_BYTES
    assert merge_comment(full, "idle") == (full, CommentOutcome.NO_ROOM)
