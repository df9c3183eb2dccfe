"""Being asked to stop: signals only leave word, the loop reads it when it is ready to."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType


class StopRequest:
    """Whether this process was asked to end.

    A pipe carries the word, since a signal handler may take no lock that the interrupted
    code could hold. The interpreter itself writes into it when the signal comes: its handlers
    run only between two steps of Python, and one that comes just before the waiting begins
    would otherwise be noticed when the waiting ends.
    """

    def __init__(self) -> None:
        self._reading_end, self._writing_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._asked = 0

    def install(self) -> None:
        """Let SIGTERM and SIGINT ask; the second one ends the process at once."""
        signal.set_wakeup_fd(self._writing_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def ask(self) -> None:
        """Ask from within the process."""
        self._asked += 1
        os.write(self._writing_end, b".")

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; True as soon as somebody asked."""
        if not self._asked:
            readable, _, _ = select.select([self._reading_end], [], [], max(0.0, seconds))
            return bool(readable)
        return True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            os._exit(128 + number)
        self.ask()
