"""Threads that work through batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from slurmwrap.staging.crew import work_through

Batch = tuple[int, ...]


def test_every_batch_is_done_once() -> None:
    """Also those that come of others, by whatever number of threads."""
    done: list[int] = []

    def work(batch: Batch, should_stop: Callable[[], bool]) -> Sequence[Batch]:
        done.extend(batch)
        return [(item * 10,) for item in batch if item < 100]

    work_through([(1, 2), (3,)], work, workers=4, at_once=3)
    assert sorted(done) == [1, 2, 3, 10, 20, 30, 100, 200, 300]


def test_nothing_to_do_is_done() -> None:
    """No batch, no wait."""
    work_through([], lambda batch, should_stop: (), workers=4)


def count_threads(wait_seconds: float) -> int:
    threads: set[int] = set()

    def work(batch: Batch, should_stop: Callable[[], bool]) -> tuple[()]:
        threads.add(threading.get_ident())
        for _ in batch:
            if wait_seconds:
                time.sleep(wait_seconds)  # a far file system
        return ()

    work_through([(1, 2, 3, 4)] * 20, work, workers=4)
    return len(threads)


def test_waiting_work_gets_all_threads() -> None:
    """A far file system: four threads wait at the same time."""
    assert count_threads(0.005) == 4


def test_computing_work_stays_with_one() -> None:
    """A cached tree: more threads would only fight for the interpreter."""
    assert count_threads(0) == 1


@pytest.mark.parametrize("at_once", [1, 4])
def test_first_failure_stops_all(at_once: int) -> None:
    """The error of one thread is raised, and the others don't go on."""
    done: list[int] = []

    def work(batch: Batch, should_stop: Callable[[], bool]) -> tuple[()]:
        if batch[0] == 5:
            raise OSError("disk")
        while at_once > 1 and not should_stop() and batch[0] > 5:
            time.sleep(0.001)  # works until it is told to stop
        done.extend(batch)
        return ()

    with pytest.raises(OSError, match="disk"):
        work_through([(number,) for number in range(100)], work, workers=4, at_once=at_once)
    assert len(done) <= 9
