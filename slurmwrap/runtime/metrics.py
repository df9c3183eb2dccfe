"""Training metrics from inside the job: one JSON line per call, appended to a file.

Training code imports this module, so it needs nothing but the standard library.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterator

VARIABLE = "SLURMWRAP_METRICS"
"""Names the file of the job's supervisor; unset outside `slurmwrap run`."""

MAX_NAME_LENGTH = 128
MAX_VALUES_PER_CALL = 256
MAX_STEP = 2**63 - 1
# A line that fits into one pipe buffer is written whole, also by several processes at once.
MAX_LINE_BYTES = 4096

# O_NONBLOCK: training must not wait for the reader of a FIFO.
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK

_said: set[str] = set()


def log_metrics(step: int | None = None, /, **values: object) -> None:
    """Report metrics of this job, for example ``log_metrics(epoch=3, val_acc=0.71)``.

    The step is the first argument, else ``step=``, else ``epoch=``; without any, values are
    counted per name. With a step, ``epoch=`` is a metric like others. Every process that calls
    it is heard: with several ranks, call it on one.

    Outside a job that `slurmwrap run` supervises it does nothing, and says so once. It never
    fails because of the file: training goes on.

    Args:
        step: a whole number from 0.
        values: numbers, or anything that ``float()`` reads (NumPy and PyTorch scalars). NaN and
            infinity are written down, but no rule looks at them.

    Raises:
        TypeError: a value that is no number (a bool or text is none).
        ValueError: a name that is not 1 to 128 printable characters, more than 256 values, or a
            step that is no whole number from 0.
    """
    chosen = _choose_step(step, values)
    numbers = {_checked_name(name): _number(name, value) for name, value in values.items()}
    if len(numbers) > MAX_VALUES_PER_CALL:
        raise ValueError(f"{len(numbers)} metrics in one call; {MAX_VALUES_PER_CALL} are the limit")
    path = os.environ.get(VARIABLE)
    if not path:
        _say_once(f"log_metrics does nothing: {VARIABLE} is not set, so no supervisor listens")
        return
    try:
        descriptor = os.open(path, _APPENDING, 0o600)
        try:
            for line in _lines(chosen, time.time(), numbers):
                os.write(descriptor, line)
        finally:
            os.close(descriptor)
    except OSError as error:
        _say_once(f"log_metrics can't write {path}: {error.strerror}; metrics are lost")


def _choose_step(step: int | None, values: dict[str, object]) -> int | None:
    """Take the step out of the arguments."""
    chosen: object = step
    if chosen is None:
        for name in ("step", "epoch"):
            if name in values:
                chosen = values.pop(name)
                break
    if chosen is None:
        return None
    if isinstance(chosen, bool):
        raise ValueError(f"the step must be a whole number, not {chosen!r}")
    number = _number("step", chosen)
    if not number.is_integer() or not 0 <= number <= MAX_STEP:
        raise ValueError(f"the step must be a whole number from 0, not {chosen!r}")
    return chosen if isinstance(chosen, int) else int(number)


def _checked_name(name: str) -> str:
    if not 1 <= len(name) <= MAX_NAME_LENGTH:
        raise ValueError(
            f"a metric's name has 1 to {MAX_NAME_LENGTH} characters, not {len(name)}: {name[:40]!r}"
        )
    if not name.isprintable():
        raise ValueError(f"a metric's name is printable text, not {name!r}")
    return name


def _number(name: str, value: object) -> float:
    if isinstance(value, bool | str | bytes | bytearray):
        raise TypeError(f"metric {name!r} must be a number, not {value!r}")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"metric {name!r} must be a number, not a {type(value).__name__}: {error}"
        ) from error


def _lines(step: int | None, at: float, numbers: dict[str, float]) -> Iterator[bytes]:
    """Lines below the size that is written whole; many values become several lines."""
    part: dict[str, float | str] = {}
    line = b""
    for name, number in numbers.items():
        longer = {**part, name: number if math.isfinite(number) else _word(number)}
        candidate = _line(step, at, longer)
        if len(candidate) >= MAX_LINE_BYTES and part:
            yield line
            longer = {name: longer[name]}
            candidate = _line(step, at, longer)
        part, line = longer, candidate
    if part:
        yield line


def _line(step: int | None, at: float, values: dict[str, float | str]) -> bytes:
    document: dict[str, object] = {"time": round(at, 3), "values": values}
    if step is not None:
        document["step"] = step
    return json.dumps(document, allow_nan=False).encode("ascii") + b"\n"


def _word(number: float) -> str:
    """What JSON has no number for."""
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        print(f"slurmwrap: {text}", file=sys.stderr)
