"""The watched metric as one word of a command line: ``NAME[:max|min[:MIN_DELTA]]``.

``slurmwrap submit --watch`` checks it, ``slurmwrap run --watch`` reads it inside the job.
"""

from __future__ import annotations

import math

from slurmwrap.errors import UnknownNameError, UsageError

MODES = ("max", "min")
"""``max``: larger is better; ``min``: smaller is better."""


def parse_watch(text: str) -> tuple[str, str, float]:
    """Name, mode and min_delta, the fields of ``model.WatchedMetric``.

    Without a mode larger is better. A name may hold colons when its mode is written
    (``val:acc:max``).

    Raises:
        UnknownNameError: a mode that is neither ``max`` nor ``min``.
        UsageError: no name, or a min_delta that is no finite number of at least 0.
    """
    parts = text.split(":")
    if len(parts) == 1:
        name, mode, delta = text, "max", "0"
    elif parts[-1] in MODES:
        name, mode, delta = ":".join(parts[:-1]), parts[-1], "0"
    elif len(parts) >= 3 and parts[-2] in MODES:
        name, mode, delta = ":".join(parts[:-2]), parts[-2], parts[-1]
    else:
        raise UnknownNameError(
            "mode of a watched metric",
            parts[1],
            MODES,
            hint="write NAME, NAME:max, NAME:min or NAME:max:MIN_DELTA",
        )
    if not name.strip() or not name.isprintable():
        raise UsageError(
            f"--watch: {text!r} does not name a metric", hint="for example --watch val_acc:max"
        )
    try:
        min_delta = float(delta)
    except ValueError:
        min_delta = math.nan
    if not math.isfinite(min_delta) or min_delta < 0:
        raise UsageError(
            f"--watch: {text!r}: {delta!r} is not a difference of at least 0",
            hint="for example --watch val_acc:max:0.001",
        )
    return name, mode, min_delta
