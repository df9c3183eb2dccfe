"""From printed lines to whole rows: sacct escapes nothing, so names can break rows apart.

A delimiter inside a job name gives a row too many columns, a newline spreads it over several
lines. Both are undone where only one reading of the text is possible; else the row is refused,
never guessed: a wrong guess would charge one account for another's job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import comb

import msgspec

from slurmwrap.model import AccountingRecord
from slurmwrap.slurm.records.columns import Layout

Row = AccountingRecord | None
"""A record, or None for a row that is none: a step, or a header that comes again."""

# Enough for any comment that Slurm stores; more is not one record.
_LONGEST_RECORD_LINES = 500
_LONGEST_RECORD_CHARACTERS = 1 << 20
_MOST_READINGS = 500


class BrokenRowError(ValueError):
    """A row that can't be read; the text says why."""


@dataclass
class _Text:
    """Lines that belong together, and what is wrong with them so far."""

    number: int
    """Of the first line, from 1."""
    text: str
    line_count: int = 1
    reason: str = ""

    def joined(self, line: str) -> str:
        return f"{self.text}\n{line}"


@dataclass
class _Suspect:
    """A cut record, then a line that is a record by itself; the next line tells which it is."""

    cut: _Text
    number: int
    line: str
    row: Row


class RowAssembler:
    """Puts numbered lines together into rows.

    ``read`` makes a row of the right number of columns, or raises ValueError with the reason.
    ``reject`` is told the number of the first line of everything that could not be used.
    """

    def __init__(
        self,
        layout: Layout,
        delimiter: str,
        read: Callable[[list[str]], Row],
        reject: Callable[[int, str], None],
    ) -> None:
        self._layout = layout
        self._delimiter = delimiter
        self._read = read
        self._reject = reject
        self._ends_in_free_text = layout.width - 1 in layout.free_text
        self._cut: _Text | None = None
        self._suspect: _Suspect | None = None
        self._ready: list[Row] = []
        self._last_fields: list[str] | None = None
        """Columns of the newest ready row, which the next line may go on with."""

    def rows(self, lines: Iterable[tuple[int, str]]) -> Iterator[AccountingRecord]:
        """The records in the lines, as soon as the next line can't belong to them."""
        width, delimiter, read = self._layout.width, self._delimiter, self._read
        ready = self._ready
        for number, line in lines:
            if self._cut is None and self._suspect is None:
                fields = line.split(delimiter)
                if len(fields) == width:
                    try:
                        row = read(fields)
                    except ValueError:
                        pass
                    else:
                        if ready:
                            yield from filter(None, ready)
                            ready.clear()
                        ready.append(row)
                        self._last_fields = fields
                        continue
            self._take(number, line)
            if len(ready) > 1:
                yield from filter(None, ready[:-1])
                del ready[:-1]
        self._finish()
        yield from filter(None, ready)

    def reject_cut_end(self, number: int, line: str) -> bool:
        """Whether a last line without newline was cut in the middle of a record; refuses it."""
        fields = line.split(self._delimiter)
        if len(fields) >= self._layout.width or self._cut is not None:
            return False
        self._reject(number, self._count_reason(fields) + "; the dump ends in it")
        return True

    def _take(self, number: int, line: str) -> None:
        """Everything but the plain case."""
        if self._suspect is not None and self._judge(self._suspect, number, line):
            return
        if self._cut is not None:
            self._continue(self._cut, number, line)
        else:
            self._begin(number, line)

    def _begin(self, number: int, line: str) -> None:
        if not line.strip() and not self._ends_in_free_text:
            return
        fields = line.split(self._delimiter)
        try:
            self._accept(*self._fit(line))
        except BrokenRowError as error:
            short = len(fields) < self._layout.width
            if short and self._goes_on_with_last(fields, line):
                return
            if self._may_be_cut(fields):
                self._cut = _Text(number, line, reason=str(error))
            elif line.strip():
                self._reject(number, str(error))

    def _continue(self, cut: _Text, number: int, line: str) -> None:
        whole = self._try_fit(cut.joined(line))
        fields = line.split(self._delimiter)
        full = len(fields) >= self._layout.width
        begins = self._layout.begins_record(fields)
        alone = self._try_fit(line) if full else None
        self._cut = None
        if alone is not None and whole is not None and self._begins(cut.text):
            self._suspect = _Suspect(cut, number, line, alone[0])
        elif whole is not None and (alone is not None or not full or not begins):
            self._accept(*whole)
        elif (
            full
            or begins
            or cut.line_count >= _LONGEST_RECORD_LINES
            or len(cut.text) + len(line) > _LONGEST_RECORD_CHARACTERS
        ):
            self._reject(cut.number, cut.reason)
            self._begin(number, line)
        else:
            self._cut = _Text(cut.number, cut.joined(line), cut.line_count + 1, cut.reason)

    def _judge(self, suspect: _Suspect, number: int, line: str) -> bool:
        """Whether this line ends the matter and is used up by it."""
        self._suspect = None
        whole = f"{suspect.cut.joined(suspect.line)}\n{line}"
        if not self._begins(line) and self._try_fit(whole) is not None:
            last = suspect.number + 1
            self._reject(
                suspect.cut.number,
                f"lines {suspect.cut.number} to {last} are one record with newlines in its name,"
                " or several: not used",
            )
            self._last_fields = None
            return True
        self._release(suspect)
        return False

    def _release(self, suspect: _Suspect) -> None:
        reason = suspect.cut.reason
        if len(suspect.cut.text.split(self._delimiter)) < self._layout.width:
            # A name that is a whole row of somebody else's ends here too. Nothing in the text
            # tells the two apart, so the reason sends the reader to look, and dumps for bills
            # do without names (columns.SUGGESTED_FIELDS).
            reason += f"; line {suspect.number} is used: look that no job name holds it"
        self._reject(suspect.cut.number, reason)
        self._accept(suspect.row, suspect.line.split(self._delimiter))

    def _finish(self) -> None:
        if self._suspect is not None:
            self._release(self._suspect)
        if self._cut is not None:
            self._reject(self._cut.number, self._cut.reason)
        self._suspect = self._cut = None

    def _accept(self, row: Row, fields: list[str]) -> None:
        self._ready.append(row)
        self._last_fields = fields

    def _begins(self, text: str) -> bool:
        return self._layout.begins_record(text.split(self._delimiter))

    def _may_be_cut(self, fields: list[str]) -> bool:
        """Whether the rest of these columns can come on the next line."""
        if not self._layout.free_text:
            return False
        if self._layout.begins_record(fields):
            return True
        id_position = self._layout.position("JobIDRaw", "JobID") or 0
        reached = len(fields) - 1
        return reached <= id_position and min(self._layout.free_text) <= reached

    def _goes_on_with_last(self, fields: list[str], line: str) -> bool:
        """Whether a short line is more of the row before; adds it to that row."""
        last = self._last_fields
        if last is None or not self._ready or self._layout.begins_record(fields):
            return False
        # A name can look like the end of its own row; what follows it then completes the row.
        whole = self._try_fit(f"{self._delimiter.join(last)}\n{line}")
        if whole is not None:
            self._ready[-1], self._last_fields = whole
            return True
        if not self._ends_in_free_text or len(last[-1]) > _LONGEST_RECORD_CHARACTERS:
            return False
        last[-1] += f"\n{line}"
        self._ready[-1] = self._read(last)
        return True

    def _try_fit(self, text: str) -> tuple[Row, list[str]] | None:
        try:
            return self._fit(text)
        except BrokenRowError:
            return None

    def _fit(self, text: str) -> tuple[Row, list[str]]:
        """The one way to read the text as a row.

        Raises:
            BrokenRowError: there is none, or more than one that differ in what is billed.
        """
        fields = text.split(self._delimiter)
        width = self._layout.width
        if len(fields) == width + 1 and not fields[-1]:
            fields = fields[:-1]  # sacct -p ends each line with a delimiter
        if len(fields) < width:
            raise BrokenRowError(self._count_reason(fields))
        found: tuple[Row, list[str]] | None = None
        reason = self._count_reason(fields)
        for candidate in self._readings(fields):
            try:
                row = self._read(candidate)
            except ValueError as error:
                if len(fields) == width:
                    reason = str(error)
                continue
            if not self._layout.fits(candidate):
                if len(fields) == width:
                    reason = "a column holds what it can't hold"
                continue
            if found is not None and _billed(found[0]) != _billed(row):
                raise BrokenRowError(
                    f"{reason}; there is more than one way to tell the columns apart"
                )
            found = found or (row, candidate)
        if found is None:
            raise BrokenRowError(reason)
        return found

    def _readings(self, fields: list[str]) -> Iterator[list[str]]:
        """Ways to give the surplus delimiters to the free-text columns."""
        surplus = len(fields) - self._layout.width
        if surplus == 0:
            yield fields
            return
        columns = self._layout.free_text
        ways = comb(surplus + len(columns) - 1, len(columns) - 1) if columns else 0
        if not 0 < ways <= _MOST_READINGS:
            return
        for shares in _shares(surplus, len(columns)):
            extra = dict(zip(columns, shares, strict=True))
            merged: list[str] = []
            at = 0
            for position in range(self._layout.width):
                taken = 1 + extra.get(position, 0)
                merged.append(self._delimiter.join(fields[at : at + taken]))
                at += taken
            yield merged

    def _count_reason(self, fields: list[str]) -> str:
        return f"{len(fields)} columns instead of {self._layout.width}"


def _shares(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to share ``total`` among ``parts``."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _shares(total - first, parts - 1):
            yield (first, *rest)


def _billed(row: Row) -> Row:
    """The row without the text that no bill depends on."""
    return row if row is None else msgspec.structs.replace(row, name="", wckey="")
