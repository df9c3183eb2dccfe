"""What a job asks to be watched, as the supervisor publishes it."""

from __future__ import annotations

from slurmwrap import watch
from slurmwrap.errors import UsageError
from slurmwrap.model import WatchedMetric
from slurmwrap.runtime.metrics import MAX_NAME_LENGTH


def parse_watch(text: str, patience: int | None = None) -> WatchedMetric:
    """The metric that ``--watch`` names; its forms are those of ``slurmwrap.watch``.

    Raises:
        UsageError: no name, one too long to publish, or a min_delta that is no number from 0.
        UnknownNameError: a mode that is neither max nor min.
    """
    name, mode, min_delta = watch.parse_watch(text)
    if len(name) > MAX_NAME_LENGTH:
        raise UsageError(
            f"--watch: a metric's name has at most {MAX_NAME_LENGTH} characters, not {len(name)}"
        )
    return WatchedMetric(name=name, mode=mode, min_delta=min_delta, patience=patience)
