"""The runs that slurmctld has on nodes now, with the cards it gave them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from dataclasses import dataclass

from msgspec import Struct

from slurmwrap.clock import Clock
from slurmwrap.display import clean_text
from slurmwrap.errors import SlurmCommandError, SlurmOutputError
from slurmwrap.model import JobRun, RunKey
from slurmwrap.slurm.commands import SlurmCommands
from slurmwrap.slurm.jobs import JobDetails, parse_jobs
from slurmwrap.slurm.nodeset import expand_nodes
from slurmwrap.units import parse_slurm_time

log = logging.getLogger("slurmwrap.slurm")

# The states in which a run holds cards (source: squeue's manual, JOB STATE CODES).
_STATES = ("RUNNING", "SUSPENDED", "CONFIGURING", "RESIZING", "SIGNALING", "STOPPED")

# No column whose text users choose: a listing that a job name can't break. Names of accounts,
# partitions, QOS and reservations are administrators'.
_DELIMITER = "\x1f"
_COLUMNS = (
    "%A",
    "%F",
    "%K",
    "%T",
    "%S",
    "%V",
    "%M",
    "%l",
    "%U",
    "%u",
    "%a",
    "%P",
    "%q",
    "%v",
    "%N",
)
_LISTING = (
    "--noheader",
    "--all",
    "--local",
    f"--states={','.join(_STATES)}",
    f"--format={_DELIMITER.join(_COLUMNS)}",
)

# Above this many ids they are left out of the command line, which Linux bounds.
_MOST_IDS = 500
# How often the cards of a run are asked for while slurmctld does not name them.
_MOST_ATTEMPTS = 3
# Our clock is read a moment after squeue read its own.
_CLOCK_JITTER_SECONDS = 2


class _Row(Struct, frozen=True, kw_only=True):
    """One line of the listing."""

    job_id: int
    array_job_id: int | None
    array_task_id: int | None
    state: str
    start: int
    submit: int
    used_seconds: int
    """Run time without suspensions."""
    time_limit_seconds: int | None
    uid: int
    user: str
    account: str
    partition: str
    qos: str
    reservation: str
    nodes: str

    @property
    def identity(self) -> tuple[int, int]:
        return self.job_id, self.start


@dataclass
class _Remembered:
    """What is known of a run beyond its line in the listing."""

    details: JobDetails
    nodes: str
    attempts: int = 1
    suspended_seconds: int = 0


class LiveJobs:
    """Asks slurmctld; one object lives as long as the service and remembers what it read.

    May be used by several threads at once.

    Args:
        card_gres: the generic resources that are cards (``accounting.card_gres``).
        clock: how long a suspension has lasted that is not over yet.
    """

    def __init__(self, commands: SlurmCommands, card_gres: tuple[str, ...], clock: Clock) -> None:
        self._commands = commands
        self._card_gres = card_gres
        self._clock = clock
        self._remembered: dict[tuple[int, int], _Remembered] = {}
        self._lock = threading.Lock()

    def list_runs(self) -> tuple[JobRun, ...]:
        """Every run that holds cards or nodes now, ordered by raw job id.

        States: RUNNING, SUSPENDED, CONFIGURING and the like. A job that is COMPLETING has
        ended: slurmctld has set its end and taken its cards back (seen on 22.05).

        One small query per call, and one more when a run is new, was resumed or changed its
        nodes. A run whose cards slurmctld's answer does not name has ``cards_known`` False. A
        run that ended between the two queries is left out.

        Raises:
            SlurmUnavailableError, SlurmCommandError, SlurmOutputError: nothing is known then;
            the runs of the last call are still the best guess.
        """
        cluster = self._commands.cluster_name()
        rows = parse_listing(self._commands.run("squeue", *_LISTING))
        now = self._clock.now()
        with self._lock:
            self._forget_others(rows)
            self._read_missing_details(rows, now)
            runs = [self._describe(row, cluster, now) for row in rows]
        return tuple(sorted(filter(None, runs), key=lambda run: run.key.job_id))

    def read_run(self, run: JobRun) -> JobRun | None:
        """The same run as it is this moment; None when it has left its nodes or was requeued.

        Identity is the raw id and the start. Asks slurmctld every time.

        Raises:
            SlurmUnavailableError, SlurmCommandError, SlurmOutputError.
        """
        try:
            text = self._commands.run("squeue", *_LISTING, f"--jobs={run.action_id}")
        except SlurmCommandError as error:
            if "Invalid job id" in error.stderr:
                return None
            raise
        now = self._clock.now()
        identity = (run.key.job_id, run.key.start)
        rows = tuple(row for row in parse_listing(text) if row.identity == identity)
        with self._lock:
            self._read_missing_details(rows, now)
            return self._describe(rows[0], run.key.cluster, now) if rows else None

    def read_details(self, run: JobRun) -> JobDetails | None:
        """What slurmctld has of the job this moment, whatever its state; None: nothing.

        Raises:
            SlurmUnavailableError, SlurmCommandError, SlurmOutputError.
        """
        return self._ask_details([run.key.job_id]).get(run.key.job_id)

    def _forget_others(self, rows: tuple[_Row, ...]) -> None:
        listed = {row.identity for row in rows}
        self._remembered = {
            identity: known for identity, known in self._remembered.items() if identity in listed
        }

    def _read_missing_details(self, rows: tuple[_Row, ...], now: int) -> None:
        missing = [row for row in rows if self._needs_details(row, now)]
        if not missing:
            return
        details = self._ask_details([row.job_id for row in missing])
        for row in missing:
            before = self._remembered.pop(row.identity, None)
            found = details.get(row.job_id)
            if found is not None and not _has_left(found, row.start):
                self._remembered[row.identity] = _renew(before, row, found)

    def _needs_details(self, row: _Row, now: int) -> bool:
        known = self._remembered.get(row.identity)
        if known is None or known.nodes != row.nodes:
            return True
        if known.details.unknown_cards and known.attempts < _MOST_ATTEMPTS:
            return True
        if row.state == "SUSPENDED":
            return False
        told = known.details.suspended_seconds
        if told is None:
            return "SUSPENDED" in known.details.state
        # Suspended and resumed since the details were read: less run time than passed.
        not_run = now - row.start - row.used_seconds
        return abs(not_run - told) > _CLOCK_JITTER_SECONDS

    def _ask_details(self, job_ids: Collection[int]) -> dict[int, JobDetails]:
        """Details by raw id. Newer Slurm filters by id; 22.05 prints every job there is."""
        arguments = ["--json", "--all", "--local"]
        if len(job_ids) <= _MOST_IDS:
            arguments.append("--jobs=" + ",".join(str(job_id) for job_id in job_ids))
        try:
            text = self._commands.run("squeue", *arguments)
        except SlurmCommandError as error:
            if "Invalid job id" in error.stderr:
                return {}
            raise
        return parse_jobs(text, frozenset(job_ids), self._card_gres)

    def _describe(self, row: _Row, cluster: str, now: int) -> JobRun | None:
        """The run; None when it ended before its details could be read."""
        known = self._remembered.get(row.identity)
        if known is None:
            return None
        details = known.details
        if row.state == "SUSPENDED":
            known.suspended_seconds = max(0, now - row.start - row.used_seconds)
        elif details.suspended_seconds is not None:
            known.suspended_seconds = details.suspended_seconds
        return JobRun(
            key=RunKey(cluster=cluster, job_id=row.job_id, start=row.start),
            array_job_id=row.array_job_id,
            array_task_id=row.array_task_id,
            het_job_id=details.het_job_id,
            het_offset=details.het_offset,
            state=row.state,
            user=row.user,
            uid=row.uid,
            account=row.account,
            partition=row.partition,
            qos=row.qos,
            name=clean_text(details.name),
            comment=details.comment,
            reservation=row.reservation,
            submit=row.submit,
            time_limit_seconds=row.time_limit_seconds,
            suspended_seconds=known.suspended_seconds,
            nodes=details.nodes or expand_nodes(row.nodes),
            cards=details.cards,
            cards_known=not details.unknown_cards,
        )


def _renew(before: _Remembered | None, row: _Row, details: JobDetails) -> _Remembered:
    attempts = 1 if before is None or before.nodes != row.nodes else before.attempts + 1
    if details.unknown_cards and attempts == _MOST_ATTEMPTS:
        log.warning("the cards of a run stay unknown: %s", details.unknown_cards)
    return _Remembered(
        details=details,
        nodes=row.nodes,
        attempts=attempts,
        suspended_seconds=before.suspended_seconds if before else 0,
    )


def _has_left(details: JobDetails, start: int) -> bool:
    """Whether the job ended or was requeued between the listing and its details."""
    if details.start is None:
        return False
    words = details.state.split()
    is_on_nodes = any(word in _STATES for word in words) and "COMPLETING" not in words
    return details.start != start or not is_on_nodes


def parse_listing(text: str) -> tuple[_Row, ...]:
    """The lines of squeue's listing.

    Raises:
        SlurmOutputError: a line of another form. No run is dropped for it: who lists the runs
            must know that some are missing.
    """
    rows: list[_Row] = []
    for line in text.split("\n"):
        if not line:
            continue
        fields = line.split(_DELIMITER)
        try:
            rows.append(_parse_row(fields))
        except ValueError as error:
            raise SlurmOutputError(
                f"squeue printed a line that can't be read ({error}): {line[:200]!r}",
                hint="please report it with the output of `squeue --version`",
            ) from error
    return tuple(rows)


def _parse_row(fields: list[str]) -> _Row:
    if len(fields) != len(_COLUMNS):
        raise ValueError(f"{len(fields)} columns instead of {len(_COLUMNS)}")
    fields = ["" if field in ("(null)", "N/A") else field for field in fields]
    job_id, array_id, task, state, start, submit, used, limit, uid, user, *names = fields
    account, partition, qos, reservation, nodes = names
    return _Row(
        job_id=int(job_id),
        array_job_id=int(array_id) if task else None,
        array_task_id=int(task) if task else None,
        state=state,
        start=int(start),
        submit=int(submit),
        used_seconds=_parse_used(used),
        time_limit_seconds=_parse_limit(limit),
        uid=int(uid),
        user=user,
        account=account,
        partition=partition,
        qos=qos,
        reservation=reservation,
        nodes=nodes,
    )


def _parse_used(text: str) -> int:
    """Run time ``[D-][H:]MM:SS``; a job that just started can have the time ``INVALID``, when
    slurmctld's clock is a moment ahead."""
    return 0 if text == "INVALID" else parse_slurm_time(text) or 0


def _parse_limit(text: str) -> int | None:
    return None if text in ("", "NOT_SET", "INVALID", "Partition_Limit") else parse_slurm_time(text)
