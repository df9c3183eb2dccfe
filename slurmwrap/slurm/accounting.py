"""Reading slurmdbd's records of a window of time."""

from __future__ import annotations

from msgspec import Struct

from slurmwrap.model import AccountingRecord
from slurmwrap.slurm.commands import SlurmCommands


class RecordBatch(Struct, frozen=True, kw_only=True):
    """What slurmdbd had for a window."""

    since: int
    until: int
    records: tuple[AccountingRecord, ...]
    """Every run that overlaps the window, running ones with end None; each once, also when
    several pages of the window show it."""
    rejected: tuple[str, ...] = ()
    """Why a row could not be used, one text each. Never silently dropped."""


class AccountingRecords:
    """Asks slurmdbd through ``sacct -D -X``."""

    def __init__(self, commands: SlurmCommands, card_gres: tuple[str, ...]) -> None:
        raise NotImplementedError

    def read_records(self, since: int, until: int) -> RecordBatch:
        """All users' records that overlap ``[since, until)``, UTC epoch seconds.

        Read overlapping windows and merge by (job_id, start or submit): a record can reach
        slurmdbd after a later one has been read.

        Raises:
            SlurmUnavailableError, SlurmCommandError, SlurmOutputError: nothing was read.
        """
        raise NotImplementedError
