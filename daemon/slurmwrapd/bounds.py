"""How much one sender may ask: refusals counted and told, messages per sender, connections."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable

log = logging.getLogger("slurmwrapd")

_TOLD_AGAIN_SECONDS = 60
_MOST_REMEMBERED = 10_000

Timer = Callable[[], float]
"""Seconds that only go forward, as time.monotonic."""


class Refusals:
    """What was refused: counted every time, logged once a minute per cause and sender."""

    def __init__(self, timer: Timer = time.monotonic) -> None:
        self._timer = timer
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._told_at: dict[tuple[str, str], float] = {}

    def note(self, cause: str, sender: str, words: str) -> None:
        """Count a refusal; a sender who is refused without end does not fill the log."""
        now = self._timer()
        with self._lock:
            self._counts[cause] += 1
            told_at = self._told_at.get((cause, sender))
            if told_at is not None and now - told_at < _TOLD_AGAIN_SECONDS:
                return
            if len(self._told_at) >= _MOST_REMEMBERED:
                self._told_at.clear()
            self._told_at[cause, sender] = now
        log.warning("refused a request from %s: %s", sender or "an unknown address", words)

    def counts(self) -> dict[str, int]:
        """How many there were, by cause."""
        with self._lock:
            return dict(self._counts)


class Allowance:
    """What each sender may take: ``burst`` at once, ``per_second`` in the long run."""

    def __init__(self, *, per_second: float, burst: float, timer: Timer = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._timer = timer
        self._lock = threading.Lock()
        self._left: dict[Hashable, tuple[float, float]] = {}

    def take(self, sender: Hashable, cost: float = 1.0) -> bool:
        """Whether the sender has this much left; it is then taken."""
        now = self._timer()
        with self._lock:
            left, at = self._left.get(sender, (self._burst, now))
            left = min(self._burst, left + (now - at) * self._per_second)
            if left < cost:
                self._left[sender] = left, now
                return False
            if len(self._left) >= _MOST_REMEMBERED:
                self._forget_rested(now)
            self._left[sender] = left - cost, now
            return True

    def _forget_rested(self, now: float) -> None:
        """Who has been silent until all was allowed again is like a new sender."""
        seconds = self._burst / self._per_second
        self._left = {who: item for who, item in self._left.items() if now - item[1] < seconds}
