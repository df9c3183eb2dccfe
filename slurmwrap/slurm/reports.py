"""What sreport says was used, to hold our own sums against."""

from __future__ import annotations

from msgspec import Struct

from slurmwrap.slurm.commands import SlurmCommands


class ReportedUsage(Struct, frozen=True, kw_only=True):
    """One user's use within one account."""

    account: str
    user: str
    """Empty: the account's own line, which sums everything below it."""
    card_seconds: int


def gpu_usage(
    commands: SlurmCommands, start: int, end: int, *, tres: str = "gres/gpu"
) -> tuple[ReportedUsage, ...]:
    """Card-seconds per account and user in ``[start, end)`` as slurmdbd has rolled them up.

    slurmdbd rolls up by the hour: what ran within the current hour is missing, and start and
    end should be whole hours.

    Raises:
        SlurmUnavailableError, SlurmCommandError, SlurmOutputError.
        ValueError: start or end is not a whole hour.
    """
    raise NotImplementedError
