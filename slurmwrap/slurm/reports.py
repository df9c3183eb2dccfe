"""What sreport says was used, to hold our own sums against."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

from slurmwrap.errors import SlurmOutputError
from slurmwrap.slurm.commands import SlurmCommands
from slurmwrap.units import SECONDS_PER_HOUR


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
    end must be whole hours.

    Raises:
        SlurmUnavailableError, SlurmCommandError, SlurmOutputError.
        ValueError: start or end is not a whole hour.
    """
    if start % SECONDS_PER_HOUR or end % SECONDS_PER_HOUR:
        raise ValueError("sreport knows whole hours only")
    text = commands.run(
        "sreport",
        "--noheader",
        "--parsable2",
        "-t",
        "Seconds",
        "-T",
        tres,
        "cluster",
        "AccountUtilizationByUser",
        f"clusters={commands.cluster_name()}",
        f"start={_format_time(start)}",
        f"end={_format_time(end)}",
        "format=Account,Login,Used",
    )
    return tuple(_parse_line(line) for line in text.split("\n") if line)


def _parse_line(line: str) -> ReportedUsage:
    account, separator, rest = line.partition("|")
    user, more, used = rest.partition("|")
    if not separator or not more or not used.isdecimal():
        raise SlurmOutputError(f"sreport printed a line that can't be read: {line[:200]!r}")
    return ReportedUsage(account=account, user=user, card_seconds=int(used))


def _format_time(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
