"""Threads that work through batches: one where the work is computing, more where it is waiting."""

from __future__ import annotations

import resource
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Generic, TypeVar

B = TypeVar("B", bound=Sequence[Any])

Work = Callable[[B, Callable[[], bool]], Iterable[B]]
"""(batch, should_stop) → batches that it found to be done too. Between the parts of a long batch
it asks whether to stop."""


def work_through(batches: Iterable[B], work: Work[B], *, workers: int, at_once: int = 1) -> None:
    """Do every batch, and those that come of them, by at most ``workers`` threads.

    It begins with ``at_once`` of them. A thread that had to wait for every second item of a batch
    (a cold disk, a far file system) calls another one. Threads that never wait would only fight
    for the interpreter: on cached small files eight took twice the time of one.

    Raises:
        whatever ``work`` raised first; all threads have stopped by then.
    """
    _Crew(batches, work, workers).run(max(1, min(at_once, workers)))


class _Crew(Generic[B]):
    def __init__(self, batches: Iterable[B], work: Work[B], workers: int) -> None:
        self._batches = deque(batches)
        self._work = work
        self._workers = workers
        self._busy = 0
        """Threads at work, of which each may find more batches."""
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._futures: list[Future[None]] = []
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="staging")

    def run(self, at_once: int) -> None:
        with self._pool:
            for _ in range(at_once):
                self._call_another()
            while pending := self._pending():
                wait(pending)
        if self._failure is not None:
            raise self._failure

    def _call_another(self) -> None:
        with self._changed:
            if len(self._futures) < self._workers and self._batches:
                self._futures.append(self._pool.submit(self._take_batches))

    def _pending(self) -> list[Future[None]]:
        with self._changed:
            return [future for future in self._futures if not future.done()]

    def _should_stop(self) -> bool:
        return self._failure is not None

    def _take_batches(self) -> None:
        while (batch := self._next()) is not None:
            more: Iterable[B] = ()
            before = _count_waits()
            try:
                more = self._work(batch, self._should_stop)
            except BaseException as error:  # noqa: BLE001 - raised again by run
                self._failure = self._failure or error
            is_waiting = 2 * (_count_waits() - before) >= max(2, len(batch))
            with self._changed:
                self._busy -= 1
                self._batches.extend(more)
                self._changed.notify_all()
            if is_waiting:
                self._call_another()

    def _next(self) -> B | None:
        with self._changed:
            while not self._batches and self._busy and not self._should_stop():
                self._changed.wait()
            if not self._batches or self._should_stop():
                return None
            self._busy += 1
            return self._batches.popleft()


def _count_waits() -> int:
    """How often this thread gave up its core because it had to wait (getrusage(2))."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
