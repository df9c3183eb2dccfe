"""Reading the metrics that the job appended since the last look, in bounded pieces."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurmwrap.clock import Clock
from slurmwrap.model import MetricPoint
from slurmwrap.runtime.metrics import MAX_NAME_LENGTH, MAX_STEP

MAX_LINE_BYTES = 16 * 1024
_READ_BYTES = 64 * 1024
_MOST_READS = 256
_BATCH_BYTES = 256 * 1024
"""Where a batch ends, by an upper estimate of its JSON: with the points of one more line it
still fits into one message to the daemon."""
_MAX_NAMES = 200
"""As many as the daemon takes of one run."""
_CLOCK_SLACK_SECONDS = 60
_NO_NUMBERS = frozenset({"NaN", "Infinity", "-Infinity"})


@dataclass
class _Position:
    """How far the file has been read, and what reading on needs to know."""

    offset: int = 0
    in_long_line: bool = False
    """The bytes up to the next line end belong to a line that is too long."""
    counts: dict[str, int] = field(default_factory=dict)
    """Per name, values that came without a step."""
    names: frozenset[str] = frozenset()
    """Names seen, as many as are sent."""
    bad_lines: int = 0
    non_finite: int = 0
    surplus_names: int = 0


class MetricsTail:
    """Reads a metrics file piece by piece. The file itself is the memory: what could not be
    sent is read again.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._started_at = clock.now()
        self._taken = _Position()
        self._peeked = _Position()
        self._told: set[str] = set()

    def peek(self) -> tuple[MetricPoint, ...]:
        """The next points; the same ones again until ``commit`` is called.

        Empty when there is nothing new. A line that is not complete yet is left for later.
        """
        position = replace(self._taken, counts=dict(self._taken.counts))
        points: list[MetricPoint] = []
        size = 0
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return ()
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return ()
            if status.st_size < position.offset:  # begun anew by whoever writes it
                position.offset, position.in_long_line = 0, False
            for line in _complete_lines(descriptor, position):
                for point in self._read_line(line, position):
                    points.append(point)
                    size += 80 + 6 * len(point.name)
                if size > _BATCH_BYTES:
                    break
        except OSError:  # the disk fails: the job goes on
            return ()
        finally:
            os.close(descriptor)
        self._peeked = position
        return tuple(points)

    def commit(self) -> None:
        """What was peeked has been delivered."""
        self._taken = self._peeked

    def new_problems(self) -> list[str]:
        """What is wrong with lines read so far, each kind told once."""
        problems: list[str] = []
        for kind, count, text in (
            ("bad", self._peeked.bad_lines, f"{self._path} has lines that are no metrics; skipped"),
            ("non-finite", self._peeked.non_finite, "metrics that are NaN or infinite: not sent"),
            (
                "names",
                self._peeked.surplus_names,
                f"more than {_MAX_NAMES} different metrics: those beyond are not sent",
            ),
        ):
            if count and kind not in self._told:
                self._told.add(kind)
                problems.append(text)
        return problems

    def _read_line(self, line: bytes, position: _Position) -> list[MetricPoint]:
        if not line.strip():
            return []
        try:
            return self._parse(json.loads(line), position)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            position.bad_lines += 1
            return []

    def _parse(self, document: dict[str, object], position: _Position) -> list[MetricPoint]:
        """Points of one line.

        Raises:
            ValueError, TypeError, KeyError, AttributeError, OverflowError: not our form.
        """
        values = document["values"]
        step = document.get("step")
        at = document.get("time")
        if not isinstance(values, dict):
            raise TypeError("values must be an object")
        if step is not None and (type(step) is not int or not 0 <= step <= MAX_STEP):
            raise ValueError("step must be a whole number from 0")
        moment = self._moment(at)
        points: list[MetricPoint] = []
        for name, value in values.items():
            if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
                raise ValueError("a name that is too long, or no text")
            if value in _NO_NUMBERS or (isinstance(value, float) and not math.isfinite(value)):
                position.non_finite += 1
                continue
            if type(value) not in (int, float):
                raise TypeError("a value must be a number")
            number = float(value)
            if name not in position.names:
                if len(position.names) == _MAX_NAMES:
                    position.surplus_names += 1
                    continue
                position.names |= {name}
            points.append(
                MetricPoint(
                    name=name,
                    step=position.counts.get(name, 0) if step is None else step,
                    value=number,
                    at=moment,
                )
            )
        if step is None:
            # Only now, so that a bad line counts for nothing.
            for point in points:
                position.counts[point.name] = point.step + 1
        return points

    def _moment(self, at: object) -> int:
        """When a value was logged; now, where the line's own time can't be of this run."""
        now = self._clock.now()
        if not isinstance(at, int | float):
            return now
        earliest, latest = self._started_at - _CLOCK_SLACK_SECONDS, now + _CLOCK_SLACK_SECONDS
        return int(at) if earliest <= at <= latest else now


def _complete_lines(descriptor: int, position: _Position) -> Iterator[bytes]:
    """Complete lines from the position on; it is moved behind each line before it is given.

    Of a line that never ends no more than some is read at a time.
    """
    for _ in range(_MOST_READS):
        data = os.pread(descriptor, _READ_BYTES, position.offset)
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            line = data[start:end]
            position.offset += end + 1 - start
            start = end + 1
            if position.in_long_line:
                position.in_long_line = False
            elif len(line) > MAX_LINE_BYTES:
                position.bad_lines += 1
            else:
                yield line
        rest = len(data) - start
        if rest > MAX_LINE_BYTES:
            # No line of ours: skip it without ever holding it whole.
            position.bad_lines += not position.in_long_line
            position.in_long_line = True
            position.offset += rest
        elif position.in_long_line:
            position.offset += rest
            if not rest:
                return
        if len(data) < _READ_BYTES:
            return
