"""Telling slurmwrapd what happens in the job, without ever holding the job up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import islice

from slurmwrap.api import RunEvents, RunWarnings
from slurmwrap.errors import NotFoundError, SlurmwrapError, UsageError
from slurmwrap.model import Phase, RunKey, WatchedMetric
from slurmwrap.runtime.metrics_tail import MetricsTail

_PHASES_PER_MESSAGE = 100
_MESSAGES_PER_ROUND = 20
_WARNINGS_REMEMBERED = 200
_UNKNOWN_ROUNDS = 3

_PhaseKey = tuple[str, str, int]

Send = Callable[[RunEvents], RunWarnings]
"""Client.call("push_run_events", ...); raises SlurmwrapError when the daemon is away."""


class Publisher:
    """Sends phases and metrics from a thread of its own, one round per interval.

    What can't be sent is kept: phases here (a run has few), metrics in their file. A phase that
    begins or ends wakes it at once.

    Args:
        find_run: the run's key; may ask Slurm, so it is called in the thread.
        talk: a line for the job's log.
        warn: a warning of the daemon for the job's log.
    """

    def __init__(
        self,
        send: Send,
        find_run: Callable[[], RunKey],
        tail: MetricsTail,
        watch: WatchedMetric | None,
        *,
        interval_seconds: float,
        talk: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._send = send
        self._find_run = find_run
        self._tail = tail
        self._watch = watch
        self._interval_seconds = interval_seconds
        self._talk = talk
        self._warn = warn
        self._unsent: dict[_PhaseKey, Phase] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_finishing = False
        self._is_away = False
        self._unknown_rounds = 0
        self._last_refusal = ""
        self._warned: dict[str, None] = {}
        # A daemon thread: a message that hangs must not keep the job alive.
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        """Begin to send; the first message goes out at once."""
        self._thread.start()

    def note_phases(self, phases: list[Phase]) -> None:
        """Phases that began, or ended, or say more than before."""
        with self._lock:
            for phase in phases:
                self._unsent[(phase.name, phase.node, phase.started_at)] = phase
        self._wake.set()

    def finish(self, timeout_seconds: float) -> bool:
        """Send what is left, but not for longer than the time-out; False when it was too short."""
        self._is_finishing = True
        self._wake.set()
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive() and not self._is_away

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            self._publish_round()
            if self._is_finishing and not self._wake.is_set():
                return
            due = max(due + self._interval_seconds, time.monotonic())
            self._wake.wait(due - time.monotonic())
            self._wake.clear()

    def _publish_round(self) -> None:
        try:
            run = self._find_run()
            for _ in range(_MESSAGES_PER_ROUND):
                if not self._publish_some(run):
                    break
            self._unknown_rounds = 0
            if self._is_away:
                self._is_away = False
                self._talk("slurmwrapd answers again; what was kept has been sent")
        except NotFoundError as error:
            # The daemon hears of a run only at its next look at Slurm.
            self._unknown_rounds += 1
            if self._unknown_rounds >= _UNKNOWN_ROUNDS:
                self._note_failure(error.message)
        except SlurmwrapError as error:
            self._note_failure(error.message)
        except Exception as error:  # noqa: BLE001 - whatever it is, the job must go on
            self._note_failure(f"{type(error).__name__}: {error}")

    def _publish_some(self, run: RunKey) -> bool:
        """Send one message; True when there is more."""
        with self._lock:
            phases = dict(islice(self._unsent.items(), _PHASES_PER_MESSAGE))
        points = self._tail.peek()
        for problem in self._tail.new_problems():
            self._talk(problem)
        events = RunEvents(
            run=run, phases=tuple(phases.values()), metrics=points, watch=self._watch
        )
        try:
            answer = self._send(events)
        except UsageError as error:
            # The daemon will never take this: sending it again would hold up all that follows.
            if error.message != self._last_refusal:
                self._last_refusal = error.message
                self._talk(f"slurmwrapd refuses events of this job: {error.message}; dropped")
            answer = RunWarnings()
            # Of phases and metrics in one message, the metrics may be good: they go alone next.
            is_taken = not (phases and points)
        else:
            is_taken = True
        if is_taken:
            self._tail.commit()
        with self._lock:
            for key, phase in phases.items():
                if self._unsent.get(key) is phase:
                    del self._unsent[key]
            has_more = bool(self._unsent) or bool(points)
        for warning in answer.warnings:
            self._show(warning)
        return has_more

    def _show(self, warning: str) -> None:
        if warning not in self._warned:
            self._warned[warning] = None
            if len(self._warned) > _WARNINGS_REMEMBERED:
                del self._warned[next(iter(self._warned))]
            self._warn(warning)

    def _note_failure(self, message: str) -> None:
        if not self._is_away:
            self._is_away = True
            self._talk(f"{message}; the job goes on, and what happens in it is kept and sent later")
