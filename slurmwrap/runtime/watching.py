"""What a job may ask to be watched: NAME, NAME:mode or NAME:mode:min_delta."""

from __future__ import annotations

import math

from slurmwrap.errors import UnknownNameError, UsageError
from slurmwrap.model import WatchedMetric
from slurmwrap.runtime.metrics import MAX_NAME_LENGTH

MODES = ("max", "min")


def parse_watch(text: str, patience: int | None = None) -> WatchedMetric:
    """The metric that ``--watch`` names. A name with colons needs its mode written.

    Raises:
        UsageError: no name, or a min_delta that is no number from 0.
        UnknownNameError: a mode that is neither max nor min.
    """
    name, mode, min_delta = text, "max", 0.0
    head, _, last = text.rpartition(":")
    if last in MODES and head:
        name, mode = head, last
    elif head:
        front, _, word = head.rpartition(":")
        if not front or word not in MODES:
            raise UnknownNameError(
                "mode", word if front else last, MODES, hint=f"write {text.split(':')[0]}:max"
            )
        name, mode, min_delta = front, word, _read_min_delta(last)
    if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise UsageError(f"--watch needs the name of a metric, not {text!r}")
    return WatchedMetric(name=name, mode=mode, min_delta=min_delta, patience=patience)


def _read_min_delta(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise UsageError(f"the min_delta of --watch must be a number from 0, not {text!r}")
    return number
