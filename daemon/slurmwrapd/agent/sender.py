"""Sending what the spool holds, oldest first, on a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable

from slurmwrap.api import Readings
from slurmwrap.errors import (
    DaemonUnavailableError,
    MungeError,
    NotFoundError,
    NotPermittedError,
    SlurmwrapError,
    UnknownNameError,
    UsageError,
)
from slurmwrapd.agent.spool import Spool

log = logging.getLogger("slurmwrapd.agent")

_REFUSALS = (NotPermittedError, NotFoundError, UnknownNameError, UsageError)
"""The daemon read the message and does not want it. Any other failure may pass."""

_REFUSALS_PER_ROUND = 3
_ANSWERED_FAILURES = 10
"""A message the daemon failed on so often, while it was there, is taken for refused."""


def spread_seconds(node: str, interval_seconds: int) -> float:
    """How long after the interval's end this node sends: 10,000 nodes end it together."""
    return zlib.crc32(node.encode()) / 2**32 * interval_seconds / 4


class Sender(threading.Thread):
    """Empties the spool whenever it is woken."""

    def __init__(
        self, spool: Spool, send: Callable[[Readings], None], *, delay_seconds: float
    ) -> None:
        super().__init__(name="sender", daemon=True)
        self._spool = spool
        self._send = send
        self._delay_seconds = delay_seconds
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._trouble = ""
        self._failures: dict[str, int] = {}

    def wake(self) -> None:
        """There is something to send."""
        self._woken.set()

    def finish(self, timeout_seconds: float) -> None:
        """End after the message in hand; the others stay in the spool."""
        self._stopping.set()
        self._woken.set()
        self.join(timeout_seconds)

    def run(self) -> None:
        while True:
            self._woken.wait()
            self._woken.clear()
            if self._stopping.wait(self._delay_seconds):
                return
            self.send_waiting()

    def send_waiting(self) -> int:
        """One round over the spool; returns how many messages were accepted.

        A daemon that is away ends the round: the next one begins with the same message. A
        message that the daemon refuses does not hold up those after it. When they are refused
        too, the trouble is with this agent (its user, its address) and all are kept until an
        administrator has seen to it; once one of them is accepted, the refused ones before it
        are given up.
        """
        accepted = 0
        refused: list[str] = []
        names = self._spool.names()
        while names and not self._stopping.is_set():
            # After some refusals only the newest message can tell whether all are refused.
            name = names.pop(0) if len(refused) < _REFUSALS_PER_ROUND else names.pop()
            message = self._spool.load(name)
            if message is None:
                continue
            try:
                self._send(message)
            except (DaemonUnavailableError, MungeError) as error:
                self._tell_trouble(error)
                return accepted
            except SlurmwrapError as error:
                self._tell_trouble(error)
                if not self._is_refused(name, error):
                    return accepted
                refused.append(name)
                if len(refused) > _REFUSALS_PER_ROUND:
                    return accepted
                continue
            self._spool.remove(name)
            self._failures.pop(name, None)
            accepted += 1
            for old in refused:
                log.error("given up: message %s was refused: %s", old, self._trouble)
                self._spool.drop(old)
                self._failures.pop(old, None)
            refused.clear()
            self._tell_sent(message, len(names))
        return accepted

    def _is_refused(self, name: str, error: SlurmwrapError) -> bool:
        if isinstance(error, _REFUSALS):
            return True
        self._failures[name] = self._failures.get(name, 0) + 1
        return self._failures[name] > _ANSWERED_FAILURES

    def _tell_trouble(self, error: SlurmwrapError) -> None:
        """Once per change, not once per attempt."""
        if error.message == self._trouble:
            return
        self._trouble = error.message
        hint = f" ({error.hint})" if error.hint else ""
        log.warning("messages wait in %s: %s%s", self._spool.folder, error.message, hint)

    def _tell_sent(self, message: Readings, waiting: int) -> None:
        if self._trouble:
            log.info("slurmwrapd accepts messages again")
            self._trouble = ""
        readings = message.readings
        ended_at = max((reading.ended_at for reading in readings), default=0)
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ended_at)) if ended_at else "?"
        log.info(
            "sent %s until %s: %d cards, %d reads, %d failed; %d messages wait, %d dropped",
            message.node,
            until,
            len(readings),
            sum(reading.reads for reading in readings),
            sum(reading.failed_reads for reading in readings),
            waiting,
            message.dropped_messages,
        )
