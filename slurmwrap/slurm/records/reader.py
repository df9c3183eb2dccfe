"""Reading the rows of one dump, or of sacct's live output, as accounting records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from zoneinfo import ZoneInfo

from msgspec import Struct

from slurmwrap.display import clean_text
from slurmwrap.errors import SacctFormatError
from slurmwrap.model import AccountingRecord
from slurmwrap.slurm.records import values
from slurmwrap.slurm.records.columns import SUGGESTED_FIELDS, Layout, make_layout
from slurmwrap.slurm.records.lines import Row, RowAssembler
from slurmwrap.tres import count_cards, parse_tres
from slurmwrap.units import parse_slurm_time

SHARD = "shard"
"""GPU type of a run that held shares of cards (gres/shard) and no card: zero of this type."""

_MOST_REASONS = 1000
_MOST_RESOURCES = 10_000


class RejectedLine(Struct, frozen=True):
    """A record that could not be used."""

    number: int
    """Of its first line, from 1; the header counts."""
    reason: str


class RecordBatch(Struct, frozen=True, kw_only=True):
    """All records of one dump."""

    records: tuple[AccountingRecord, ...]
    """In the dump's order. A record that the dump holds twice comes twice: who adds them up
    tells them apart by cluster, job id and start (billing does)."""
    rejected: tuple[RejectedLine, ...]
    """The first thousand."""
    rejected_count: int


def parse_records(
    lines: Iterable[str | bytes],
    *,
    fields: Sequence[str] | None = None,
    delimiter: str = "|",
    zone: ZoneInfo | None = None,
    card_gres: Iterable[str] = ("gpu",),
    cluster: str = "",
    where: str = "the sacct dump",
) -> RecordBatch:
    """All records at once; see RecordReader, which takes the same and gives one at a time."""
    reader = RecordReader(
        lines,
        fields=fields,
        delimiter=delimiter,
        zone=zone,
        card_gres=card_gres,
        cluster=cluster,
        where=where,
    )
    records = tuple(reader)
    return RecordBatch(
        records=records, rejected=tuple(reader.rejected), rejected_count=reader.rejected_count
    )


class RecordReader:
    """Reads records one after the other and remembers what it could not use.

    Columns may come in any order; those that nobody needs are ignored, steps are skipped. A
    broken record is counted and the good ones are still given.

    Args:
        lines: with or without their newlines, split at ``\\n`` only. A binary file is such an
            iterable.
        fields: the columns in order; None: the first line names them.
        zone: of times without an offset; None: such times can't be read.
        card_gres: generic resources that are cards.
        cluster: of records in a dump without the column Cluster.
        where: what errors call the dump.
    """

    def __init__(
        self,
        lines: Iterable[str | bytes],
        *,
        fields: Sequence[str] | None = None,
        delimiter: str = "|",
        zone: ZoneInfo | None = None,
        card_gres: Iterable[str] = ("gpu",),
        cluster: str = "",
        where: str = "the sacct dump",
    ) -> None:
        self.rejected: list[RejectedLine] = []
        """The first thousand records that could not be used."""
        self.rejected_count = 0
        self.undecodable_lines = 0
        """Lines with bytes that are no UTF-8; their records are used when only free text is
        affected."""
        self._lines = lines
        self._fields = fields
        self._delimiter = delimiter
        self._moments = values.MomentParser(zone)
        self._card_gres = tuple(card_gres)
        self._cluster = cluster
        self._where = where
        self._cards: dict[str, dict[str, int]] = {}

    def __iter__(self) -> Iterator[AccountingRecord]:
        """The records in the dump's order.

        Raises:
            SacctFormatError: a column that is needed is missing, or this is no dump at all.
        """
        lines = iter(self._lines)
        first = next(lines, None)
        if first is None:
            if self._fields is None:
                raise SacctFormatError(
                    f"{self._where} is empty: not even a header line",
                    hint=f"make it with: sacct -P -D -X -a --format={SUGGESTED_FIELDS}",
                )
            return
        text = self._decode_first(first)
        ending = "\r\n" if text.endswith("\r\n") else "\n"
        head = text.removesuffix(ending)
        names = head.split(self._delimiter) if self._fields is None else list(self._fields)
        layout = make_layout(names, where=self._where, delimiter=self._delimiter)
        self._place_columns(layout)
        assembler = RowAssembler(layout, self._delimiter, self._read, self._reject)
        begin = [] if self._fields is None else [(1, head)]
        yield from assembler.rows(self._numbered(begin, lines, ending, assembler))

    def _decode_first(self, raw: str | bytes) -> str:
        if isinstance(raw, bytes) and raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise SacctFormatError(
                f"{self._where} is UTF-16 text",
                hint="convert it: iconv -f UTF-16 -t UTF-8 FILE > NEWFILE",
            )
        return self._decode(raw).removeprefix("\ufeff")

    def _decode(self, raw: str | bytes) -> str:
        if isinstance(raw, str):
            return raw
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            self.undecodable_lines += 1
            return raw.decode("utf-8", "surrogateescape")

    def _numbered(
        self,
        begin: list[tuple[int, str]],
        lines: Iterator[str | bytes],
        ending: str,
        assembler: RowAssembler,
    ) -> Iterator[tuple[int, str]]:
        yield from begin
        any_ended = False
        for number, raw in enumerate(lines, 2):
            line = self._decode(raw)
            if line.endswith("\n"):
                any_ended = True
                line = line.removesuffix(ending).removesuffix("\n")
            elif any_ended and assembler.reject_cut_end(number, line):
                continue
            yield number, line

    def _reject(self, number: int, reason: str) -> None:
        self.rejected_count += 1
        if len(self.rejected) < _MOST_REASONS:
            self.rejected.append(RejectedLine(number, clean_text(reason)))

    def _place_columns(self, layout: Layout) -> None:
        self._names = [name.lower() for name in layout.names]
        self._raw_id_at = layout.position("JobIDRaw")
        self._shown_id_at = layout.position("JobID")
        self._id_at = _required(layout.position("JobIDRaw", "JobID"))
        self._start_at = _required(layout.position("Start"))
        self._end_at = layout.position("End")
        self._submit_at = layout.position("Submit")
        self._elapsed_raw_at = layout.position("ElapsedRaw")
        self._elapsed_at = _required(layout.position("ElapsedRaw", "Elapsed"))
        self._suspended_at = layout.position("Suspended")
        self._tres_at = _required(layout.position("AllocTRES"))
        self._state_at = layout.position("State")
        self._limit_at = layout.position("TimelimitRaw")
        self._shown_limit_at = layout.position("Timelimit")
        self._cluster_at = layout.position("Cluster")
        self._db_index_at = layout.position("DBIndex")
        self._user_at = layout.position("User")
        self._account_at = _required(layout.position("Account"))
        self._partition_at = layout.position("Partition")
        self._qos_at = layout.position("QOS")
        self._wckey_at = layout.position("WCKey")
        self._reservation_at = layout.position("Reservation")
        self._name_at = layout.position("JobName")
        self._nodes_at = layout.position("NodeList")

    def _read(self, fields: list[str]) -> Row:
        """The row's record.

        Raises:
            ValueError: what of it can't be read, and why.
        """
        shown_id = fields[self._id_at]
        if not shown_id.isdecimal() and self._is_no_record(shown_id, fields):
            return None
        if not fields[self._start_at]:
            raise ValueError("Start is empty")
        starts = self._moments_of(fields, self._start_at, "Start")
        ends = self._moments_of(fields, self._end_at, "End")
        if starts:
            elapsed = self._elapsed(fields)
            suspended = self._suspended(fields)
            start, end = _place(starts, ends, elapsed + suspended)
            if end is not None and end < start and elapsed:
                raise ValueError("End is before Start")
        else:
            # Never on a node: cancelled or still waiting; what stands in End is no end of use.
            elapsed = suspended = 0
            start, end = None, ends[0] if ends else None
        submits = self._moments_of(fields, self._submit_at, "Submit")
        array_job_id, array_task_id = self._array_ids(fields)
        return AccountingRecord(
            cluster=self._text(fields, self._cluster_at) or self._cluster,
            job_id=self._job_id(shown_id, start),
            db_index=self._text(fields, self._db_index_at),
            array_job_id=array_job_id,
            array_task_id=array_task_id,
            user=self._text(fields, self._user_at),
            account=self._text(fields, self._account_at),
            partition=self._text(fields, self._partition_at),
            qos=self._text(fields, self._qos_at),
            wckey=self._free_text(fields, self._wckey_at),
            reservation=self._text(fields, self._reservation_at),
            name=self._free_text(fields, self._name_at),
            state=values.parse_state(self._text(fields, self._state_at)),
            submit=submits[0] if submits else None,
            start=start,
            end=end,
            elapsed_seconds=elapsed,
            suspended_seconds=suspended,
            time_limit_seconds=self._time_limit(fields),
            nodes=self._nodes(fields),
            cards=self._count_cards(fields[self._tres_at]),
        )

    def _is_no_record(self, shown_id: str, fields: list[str]) -> bool:
        """Whether the row is a step or the header once more (two dumps in one file)."""
        if "." in shown_id and values.is_shown_id(shown_id):
            return True
        return [text.strip().lower() for text in fields] == self._names

    def _job_id(self, shown_id: str, start: int | None) -> int:
        if self._raw_id_at is None and not shown_id.isdecimal() and values.is_shown_id(shown_id):
            if start is None:
                return values.parse_id(shown_id.partition("_")[0].partition("+")[0])
            raise ValueError(
                f"{shown_id} is an array task or a part of a heterogeneous job:"
                " the column JobIDRaw is needed"
            )
        return values.parse_id(shown_id)

    def _array_ids(self, fields: list[str]) -> tuple[int | None, int | None]:
        shown = fields[self._shown_id_at] if self._shown_id_at is not None else ""
        job, separator, task = shown.partition("_")
        if not separator or not values.is_shown_id(shown):
            return None, None
        return values.parse_id(job), int(task) if task.isdecimal() else None

    def _moments_of(self, fields: list[str], position: int | None, name: str) -> tuple[int, ...]:
        if position is None:
            return ()
        try:
            return self._moments.parse(fields[position])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None

    def _elapsed(self, fields: list[str]) -> int:
        text = fields[self._elapsed_at]
        try:
            if self._elapsed_raw_at is not None:
                return values.parse_seconds(text)
            return values.parse_duration_text(text)
        except ValueError as error:
            raise ValueError(f"elapsed time: {error}") from None

    def _suspended(self, fields: list[str]) -> int:
        text = fields[self._suspended_at] if self._suspended_at is not None else ""
        if text in ("", "00:00:00", "INVALID"):
            return 0
        try:
            return values.parse_duration_text(text)
        except ValueError as error:
            raise ValueError(f"Suspended: {error}") from None

    def _time_limit(self, fields: list[str]) -> int | None:
        if self._limit_at is not None:
            minutes = fields[self._limit_at]
            short = minutes.isascii() and minutes.isdecimal() and len(minutes) < 12
            return int(minutes) * 60 if short else None
        if self._shown_limit_at is None:
            return None
        try:
            return parse_slurm_time(fields[self._shown_limit_at][:30])
        except ValueError:
            return None  # Partition_Limit: not known from the record

    def _text(self, fields: list[str], position: int | None) -> str:
        """Text that says whom to charge, which therefore must be readable as it is."""
        if position is None:
            return ""
        text = fields[position]
        if not text.isascii() and clean_text(text) != text:
            raise ValueError(f"{self._names[position]} {clean_text(text)!r} is not UTF-8 text")
        return text

    def _free_text(self, fields: list[str], position: int | None) -> str:
        return "" if position is None else clean_text(fields[position])

    def _nodes(self, fields: list[str]) -> str:
        nodes = self._text(fields, self._nodes_at)
        return "" if nodes == "None assigned" else nodes

    def _count_cards(self, tres: str) -> dict[str, int]:
        cards = self._cards.get(tres)
        if cards is not None:
            return cards
        if not values.is_tres(tres):
            raise ValueError(f"AllocTRES {tres[:80]!r} is not a list of NAME=COUNT; cut short?")
        try:
            cards = count_cards(tres, self._card_gres)
        except ValueError as error:
            raise ValueError(f"AllocTRES: {error}") from None
        if not cards and any(
            name == "gres/shard" or name.startswith("gres/shard:") for name in parse_tres(tres)
        ):
            cards = {SHARD: 0}
        if len(self._cards) >= _MOST_RESOURCES:
            self._cards.clear()
        self._cards[tres] = cards
        return cards


def _required(position: int | None) -> int:
    if position is None:
        raise AssertionError("make_layout lets no dump without this column pass")
    return position


def _place(
    starts: tuple[int, ...], ends: tuple[int, ...], wall_seconds: int
) -> tuple[int, int | None]:
    """Start and end, where the hour that a clock change repeats allows more than one.

    Of the moments that the local times can mean, those are taken that lie as far apart as the
    record says the run took; the earlier ones when that does not tell.
    """
    if not ends:
        return starts[0], None
    if len(starts) == 1 and len(ends) == 1:
        return starts[0], ends[0]
    pairs = [(start, end) for start in starts for end in ends]
    return min(pairs, key=lambda pair: (abs(pair[1] - pair[0] - wall_seconds), pair))
