"""Where the time comes from: integer UTC epoch seconds, handed in so that tests can set it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Anything that tells the time."""

    def now(self) -> int:
        """Whole seconds since 1970-01-01T00:00:00Z."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> int:
        return int(time.time())


class SteppedClock:
    """A clock that moves only when it is told to: for rules under test and for replays."""

    def __init__(self, at: int) -> None:
        self._at = at

    def now(self) -> int:
        return self._at

    def advance(self, seconds: int) -> None:
        if seconds < 0:
            raise ValueError("a stepped clock does not run backwards; use set()")
        self._at += seconds

    def set(self, at: int) -> None:
        self._at = at
