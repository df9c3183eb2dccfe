"""The circuit breaker: many cancels at once are more likely our mistake than the users'."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from slurmwrap.model import RunKey
from slurmwrap.rules.reasons import Reason
from slurmwrap.setting import Duration, setting


@dataclass(frozen=True)
class BreakerSettings:
    """When everything stops."""

    max_share: float = setting(
        0.2, "Share of the running jobs that may be cancelled within the window."
    )
    min_jobs: int = setting(5, "Fewer cancels than this never trip the breaker.")
    window: Duration = setting(Duration(3600), "Time over which cancels are counted.")

    def __post_init__(self) -> None:
        if not 0 < self.max_share <= 1:
            raise ValueError(f"max_share is above 0 and at most 1, not {self.max_share}")
        if self.min_jobs < 1:
            raise ValueError(f"min_jobs is at least 1, not {self.min_jobs}")


def check_breaker(
    settings: BreakerSettings,
    *,
    running: Collection[RunKey],
    wanted: Collection[RunKey],
    recent: Iterable[tuple[RunKey, int]],
    now: int,
) -> Reason | None:
    """Why no job at all may be cancelled now; None: go ahead.

    Args:
        running: all runs on nodes now.
        wanted: those that rules want to cancel now.
        recent: runs that were cancelled by rules, with the moment (epoch seconds).
        now: UTC epoch seconds.
    """
    done = {run for run, at in recent if now - settings.window < at}
    counted = done | set(wanted)
    base = done | set(running) | set(wanted)
    if not wanted or len(counted) < settings.min_jobs:
        return None
    if len(counted) <= settings.max_share * len(base):
        return None
    return Reason(
        template="breaker",
        values={
            "wanted": len(set(wanted)),
            "recent": len(done),
            "running": len(base),
            "window_seconds": settings.window,
            "max_share_percent": f"{settings.max_share * 100:g}",
        },
    )
