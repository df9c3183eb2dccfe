"""Acting on one run: re-reading, cancelling, leaving the reason in AdminComment."""

from __future__ import annotations

from enum import StrEnum

from slurmwrap.model import JobRun
from slurmwrap.slurm.commands import SlurmCommands
from slurmwrap.slurm.live import LiveJobs


class CancelOutcome(StrEnum):
    """What became of an order to cancel."""

    CANCELLED = "cancelled"
    """Slurm took the order."""
    NOT_RUNNING = "not_running"
    """There was nothing to cancel: it had ended, was requeued, or is suspended."""


class CommentOutcome(StrEnum):
    """What became of a text for AdminComment."""

    WRITTEN = "written"
    SHORTENED = "shortened"
    """What was there left room for a part of the text only."""
    NO_ROOM = "no_room"
    """What was there fills the comment; it was left as it is."""
    JOB_GONE = "job_gone"
    """slurmctld no longer knows the job."""


class JobControl:
    """Acts on single runs, by names that can mean no other job (``JobRun.action_id``)."""

    def __init__(self, commands: SlurmCommands, live: LiveJobs) -> None:
        raise NotImplementedError

    def current(self, run: JobRun) -> JobRun | None:
        """The same run as it is this moment, or None; see LiveJobs.read_run."""
        raise NotImplementedError

    def cancel(self, run: JobRun) -> CancelOutcome:
        """Cancel the run if it is RUNNING this moment.

        Raises:
            SlurmUnavailableError, SlurmCommandError: Slurm refused or did not answer.
        """
        raise NotImplementedError

    def set_admin_comment(self, run: JobRun, text: str) -> CommentOutcome:
        """Add our note to the job's AdminComment and keep everything that others wrote there.

        What is there stays first and unchanged; an earlier note of ours is replaced. Needs
        AdminLevel Administrator.

        Raises:
            SlurmUnavailableError, SlurmCommandError: Slurm refused or did not answer.
        """
        raise NotImplementedError
