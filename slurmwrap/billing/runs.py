"""The runs that a statement is made of, each once, kept small: a month has millions."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from slurmwrap.model import AccountingRecord

_START_BITS = 40
_NO_END = -1
_RESIZED = "RESIZING"
"""State of a record that ended because its job got other nodes; the job went on."""


class Holder(Struct, frozen=True, order=True):
    """Who held which cards: what all runs of one line, and of its neighbours, share."""

    cluster: str
    account: str
    user: str
    partition: str
    qos: str
    cards: tuple[tuple[str, int], ...]
    """GPU type and number, sorted by type."""


class Run(Struct, frozen=True):
    """One run's use of its cards."""

    holder: Holder
    job_id: int
    start: int
    end: int | None
    """None: it ran when its record was read."""
    elapsed_seconds: int
    """Net of suspension: what is charged."""
    suspended_seconds: int


class RunTable:
    """Runs by cluster, job id and start, in columns of numbers: about 130 bytes each.

    A record that comes twice is one run. When two records of a run differ, the one that ended
    is kept, then the one that ended or ran later; so the order of arrival does not matter.

    A job that was resized has a record per size, and sacct gives all of them the job's own
    start (seen on 22.05): each is taken from where the one before it ended, as sreport does.
    """

    def __init__(self) -> None:
        self._rows: dict[str, dict[int, int]] = {}
        self._ends = array("q")
        self._elapsed = array("q")
        self._suspended = array("q")
        self._holder_numbers = array("q")
        self._holders: list[Holder] = []
        self._numbers: dict[Holder, int] = {}
        self._resized: dict[str, dict[int, dict[int, AccountingRecord]]] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, record: AccountingRecord) -> None:
        """Take a record that has a start."""
        if record.start is None:
            raise ValueError(f"job {record.job_id} never started")
        rows = self._rows.setdefault(record.cluster, {})
        key = (record.job_id << _START_BITS) | record.start
        if record.state == _RESIZED and record.end is not None:
            self._resized.setdefault(record.cluster, {}).setdefault(key, {})[record.end] = record
            return
        end = _NO_END if record.end is None else record.end
        number = self._holder_number(record)
        row = rows.setdefault(key, len(self._ends))
        if row == len(self._ends):
            self._ends.append(end)
            self._elapsed.append(record.elapsed_seconds)
            self._suspended.append(record.suspended_seconds)
            self._holder_numbers.append(number)
        elif self._is_later(row, end, record, number):
            self._ends[row] = end
            self._elapsed[row] = record.elapsed_seconds
            self._suspended[row] = record.suspended_seconds
            self._holder_numbers[row] = number

    def _is_later(self, row: int, end: int, record: AccountingRecord, number: int) -> bool:
        new = (end, record.elapsed_seconds, record.suspended_seconds)
        old = (self._ends[row], self._elapsed[row], self._suspended[row])
        if new != old:
            return new > old
        return self._holders[number] > self._holders[self._holder_numbers[row]]

    def _holder_number(self, record: AccountingRecord) -> int:
        holder = Holder(
            record.cluster,
            record.account,
            record.user,
            record.partition,
            record.qos,
            tuple(sorted(record.cards.items())),
        )
        number = self._numbers.setdefault(holder, len(self._holders))
        if number == len(self._holders):
            self._holders.append(holder)
        return number

    def runs(self) -> Iterator[Run]:
        """All runs by cluster, job id and start."""
        for cluster in sorted(self._rows):
            rows = self._rows[cluster]
            resized = self._resized.get(cluster, {})
            for key in sorted({*rows, *resized} if resized else rows):
                row = rows.get(key)
                run = None if row is None else self._run(key, row)
                if key in resized:
                    yield from _cut(self._sizes(key, resized[key]), run)
                elif run is not None:
                    yield run

    def _run(self, key: int, row: int) -> Run:
        end = self._ends[row]
        return Run(
            self._holders[self._holder_numbers[row]],
            key >> _START_BITS,
            key & ((1 << _START_BITS) - 1),
            None if end == _NO_END else end,
            self._elapsed[row],
            self._suspended[row],
        )

    def _sizes(self, key: int, records: dict[int, AccountingRecord]) -> Iterator[Run]:
        for end in sorted(records):
            record = records[end]
            yield Run(
                self._holders[self._holder_number(record)],
                key >> _START_BITS,
                key & ((1 << _START_BITS) - 1),
                end,
                record.elapsed_seconds,
                record.suspended_seconds,
            )


def _cut(earlier: Iterable[Run], last: Run | None) -> Iterator[Run]:
    """The sizes of one job, each without the time of those before it."""
    begin: int | None = None
    for run in [*earlier, *([] if last is None else [last])]:
        start = run.start if begin is None else begin
        yield replace(
            run, start=start, elapsed_seconds=max(0, run.elapsed_seconds - (start - run.start))
        )
        begin = start if run.end is None else max(start, run.end)
