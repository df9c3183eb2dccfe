"""Reading slurmdbd's records of a window of time."""

from __future__ import annotations

import io
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from slurmwrap.display import clean_text
from slurmwrap.errors import SlurmOutputError
from slurmwrap.model import AccountingRecord
from slurmwrap.slurm.commands import SlurmCommands
from slurmwrap.slurm.records import parse_records

PAGE_SECONDS = 86400
"""slurmdbd refuses answers over 3 GiB, and sites bound the window (MaxQueryTimeRange)."""

_REQUIRED_FIELDS = (
    "JobIDRaw",
    "JobID",
    "Cluster",
    "User",
    "Account",
    "Partition",
    "QOS",
    "State",
    "Submit",
    "Start",
    "End",
    "ElapsedRaw",
    "Suspended",
    "TimelimitRaw",
    "NodeList",
    "AllocTRES",
)
_OPTIONAL_FIELDS = ("DBIndex", "Reservation", "WCKey", "JobName")
"""Asked for where `sacct --helpformat` has them; what users choose comes last."""

_QUESTIONS = ((), ("--state=RUNNING",))
"""A window without states leaves out runs whose time of eligibility slurmdbd does not know: for
seconds after their start, also when they have ended meanwhile, and for ever if slurmctld dies
then. A window with RUNNING has every run that was on nodes in it, whatever became of it (both
seen on 22.05), but not those that are suspended."""

_SETTLING_SECONDS = 3600


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
        self._commands = commands
        self._card_gres = card_gres
        self._fields: tuple[str, ...] = ()

    def read_records(self, since: int, until: int) -> RecordBatch:
        """All users' records that overlap ``[since, until)``, UTC epoch seconds.

        A run of which slurmdbd has no partition, QOS and name yet is left for a later read.

        Read overlapping windows and merge by (job_id, start): a record can reach slurmdbd
        after a later one has been read.

        Raises:
            SlurmUnavailableError, SlurmCommandError, SlurmOutputError: nothing was read.
        """
        records: dict[tuple[int, int | None, int | None], AccountingRecord] = {}
        rejected: dict[str, None] = {}
        for page_start, page_end in page_window(since, until):
            for record in self._read_page(page_start, page_end, rejected):
                if not _is_whole(record, until):
                    continue
                # A later page was read later: it may know the end of what was still running.
                records[_identity(record)] = record
        return RecordBatch(
            since=since, until=until, records=tuple(records.values()), rejected=tuple(rejected)
        )

    def _read_page(
        self, start: int, end: int, rejected: dict[str, None]
    ) -> Iterator[AccountingRecord]:
        for states in _QUESTIONS:
            yield from self._ask(start, end, states, rejected)

    def _ask(
        self, start: int, end: int, states: tuple[str, ...], rejected: dict[str, None]
    ) -> Iterator[AccountingRecord]:
        # Nobody can put a delimiter into a job name that is made up after the job.
        delimiter = f"\x1f{secrets.token_hex(8)}\x1f"
        fields = self._choose_fields()
        text = self._commands.run(
            "sacct",
            "--allusers",
            "--duplicates",
            "--allocations",
            "--noheader",
            "--parsable2",
            *states,
            f"--delimiter={delimiter}",
            f"--starttime={_format_time(start)}",
            f"--endtime={_format_time(end)}",
            f"--format={','.join(fields)}",
        )
        batch = parse_records(
            io.StringIO(text, newline="\n"),
            fields=fields,
            delimiter=delimiter,
            card_gres=self._card_gres,
            cluster=self._commands.cluster_name() if "Cluster" not in fields else "",
            where="sacct's answer",
        )
        lines = text.split("\n")
        for line in batch.rejected:
            job = clean_text(lines[line.number - 1].partition(delimiter)[0][:40])
            rejected[f"job {job!r}: {line.reason}"] = None
        unlisted = batch.rejected_count - len(batch.rejected)
        if unlisted:
            rejected[f"{unlisted} more rows from {_format_time(start)}Z on"] = None
        yield from map(_begin_at_resize, batch.records)

    def _choose_fields(self) -> tuple[str, ...]:
        """The fields that this sacct has, of those that we know what to do with.

        Raises:
            SlurmOutputError: one is missing that no bill can be made without.
        """
        if not self._fields:
            offered = {word.lower() for word in self._commands.run("sacct", "--helpformat").split()}
            missing = [name for name in _REQUIRED_FIELDS if name.lower() not in offered]
            if missing:
                raise SlurmOutputError(
                    f"this sacct has no field {', '.join(missing)}",
                    hint="slurmwrap works with Slurm 22.05 and later",
                )
            optional = [name for name in _OPTIONAL_FIELDS if name.lower() in offered]
            self._fields = (*_REQUIRED_FIELDS, *optional)
        return self._fields


def page_window(since: int, until: int) -> Iterator[tuple[int, int]]:
    """The window cut at whole UTC days, so that one page always asks the same question."""
    start = since
    while start < until:
        end = min(until, (start // PAGE_SECONDS + 1) * PAGE_SECONDS)
        yield start, end
        start = end


def _identity(record: AccountingRecord) -> tuple[int, int | None, int | None]:
    """A run by its start; what never started by when it was submitted."""
    return record.job_id, record.start, record.submit if record.start is None else None


def _is_whole(record: AccountingRecord, until: int) -> bool:
    """Whether slurmdbd has been told everything. In a run's first seconds it knows its start and
    nodes, but no partition, and QOS ``Unknown``; so also of one that has ended by then (seen on
    22.05). What is still so after an hour will stay so."""
    return bool(record.partition) or (record.end or until) < until - _SETTLING_SECONDS


def _begin_at_resize(record: AccountingRecord) -> AccountingRecord:
    """The record of a resized job from where the one before it ended.

    Slurm gives each size of a job its own record, submitted when the size changed but with the
    job's own start (slurmctld's resize_time; seen on 22.05): sacct's elapsed time then tells of
    cards that were not held. sreport counts from the change on, as this does.
    """
    start, submit = record.start, record.submit
    if start is None or submit is None or submit <= start:
        return record
    if record.end is not None and submit > record.end:
        return record
    return replace(
        record, start=submit, elapsed_seconds=max(0, record.elapsed_seconds - (submit - start))
    )


def _format_time(at: int) -> str:
    """The form that sacct takes under TZ=UTC; it takes no epoch numbers (seen on 22.05)."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
