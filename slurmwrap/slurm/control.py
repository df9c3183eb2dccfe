"""Acting on one run: re-reading, cancelling, leaving the reason in AdminComment."""

from __future__ import annotations

import re
from enum import StrEnum

from slurmwrap.display import clean_text
from slurmwrap.errors import SlurmCommandError
from slurmwrap.model import JobRun
from slurmwrap.slurm.commands import SlurmCommands
from slurmwrap.slurm.live import LiveJobs

MOST_COMMENT_BYTES = 60_000
"""slurmdbd keeps AdminComment in a column of 65,535 bytes."""

_SEPARATOR = "; "
_OPENING = "[slurmwrap: "
_OUR_NOTE = re.compile(r"\[slurmwrap: [^\[\]]*\]")
# Stands for our own delimiters where a reason contains them.
_HARMLESS = str.maketrans("[]", "()")

# What scancel and scontrol print when there is no such job any more (seen on 22.05).
_GONE = re.compile(
    r"Invalid job id specified|No active jobs match|Job/step already completing or completed",
    re.IGNORECASE,
)


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
    """slurmctld no longer knows the job, or knows a later run of it."""


class JobControl:
    """Acts on single runs, by names that can mean no other job (``JobRun.action_id``)."""

    def __init__(self, commands: SlurmCommands, live: LiveJobs) -> None:
        self._commands = commands
        self._live = live

    def current(self, run: JobRun) -> JobRun | None:
        """The same run as it is this moment, or None; see LiveJobs.read_run."""
        return self._live.read_run(run)

    def cancel(self, run: JobRun) -> CancelOutcome:
        """Cancel the run if it is RUNNING this moment.

        A run that was requeued since is spared: its job waits. Re-read it with current() just
        before, since it could also have been requeued and started again. Cancelling one
        component of a heterogeneous job cancels all of it (seen on 22.05).

        Raises:
            SlurmUnavailableError, SlurmCommandError: Slurm refused or did not answer.
        """
        try:
            output = self._commands.execute(
                "scancel", "--verbose", "--state=RUNNING", run.action_id
            )
        except SlurmCommandError as error:
            if error.status is not None and _GONE.search(error.stderr):
                return CancelOutcome.NOT_RUNNING
            raise
        # For a job in another state scancel says so when verbose, and exits with 0 (22.05).
        is_spared = _GONE.search(output.stderr)
        return CancelOutcome.NOT_RUNNING if is_spared else CancelOutcome.CANCELLED

    def set_admin_comment(self, run: JobRun, text: str) -> CommentOutcome:
        """Add our note to the job's AdminComment and keep everything that others wrote there.

        What is there stays first and unchanged (jobstats reads ``JS1:…`` at the beginning); an
        earlier note of ours is replaced. Needs AdminLevel Administrator.

        Raises:
            SlurmUnavailableError, SlurmCommandError, SlurmOutputError: Slurm refused or did
                not answer.
        """
        details = self._live.read_details(run)
        if details is None or details.start != run.key.start:
            return CommentOutcome.JOB_GONE
        comment, outcome = merge_comment(details.admin_comment, text)
        if outcome is CommentOutcome.NO_ROOM or comment == details.admin_comment:
            return outcome
        try:
            self._commands.run(
                "scontrol", "update", f"JobId={run.action_id}", f"AdminComment={comment}"
            )
        except SlurmCommandError as error:
            if error.status is not None and _GONE.search(error.stderr):
                return CommentOutcome.JOB_GONE
            raise
        return outcome


def merge_comment(present: str, text: str) -> tuple[str, CommentOutcome]:
    """The comment with our note in it, and whether the note found room."""
    words = clean_text(" ".join(text.split())).translate(_HARMLESS)
    others = _OUR_NOTE.sub("", present) if present else ""
    is_renewed = others != present
    frame = f"{_OPENING}]" + ("" if is_renewed or not present else _SEPARATOR)
    room = MOST_COMMENT_BYTES - len(others.encode()) - len(frame.encode())
    if room < min(40, len(words.encode())):
        return present, CommentOutcome.NO_ROOM
    kept = words.encode()[:room].decode(errors="ignore")
    note = f"{_OPENING}{kept}]"
    outcome = CommentOutcome.WRITTEN if kept == words else CommentOutcome.SHORTENED
    if is_renewed:
        return _replace_note(present, note), outcome
    return f"{present}{_SEPARATOR}{note}" if present else note, outcome


def _replace_note(present: str, note: str) -> str:
    """The first of our notes renewed where it stands, later ones taken out."""
    first = _OUR_NOTE.search(present)
    if first is None:
        raise AssertionError("only called for a comment that holds our note")
    return present[: first.start()] + note + _OUR_NOTE.sub("", present[first.end() :])
