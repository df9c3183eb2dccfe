"""The publisher: everything arrives in the end, and the job never waits for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmwrap.api import RunEvents, RunWarnings
from slurmwrap.clock import SteppedClock
from slurmwrap.errors import DaemonUnavailableError, NotFoundError, SlurmwrapError, UsageError
from slurmwrap.model import Phase, RunKey, WatchedMetric
from slurmwrap.runtime.metrics_tail import MetricsTail
from slurmwrap.runtime.publisher import Publisher

RUN = RunKey(cluster="c", job_id=12, start=100)
WATCH = WatchedMetric(name="val_acc")


class RecordedDaemon:
    """Takes messages, or refuses them as told."""

    def __init__(self) -> None:
        self.received: queue.Queue[RunEvents] = queue.Queue()
        self.attempts = threading.Semaphore(0)
        self.error: Exception | None = None
        self.warnings: tuple[str, ...] = ()
        self.hang: threading.Event | None = None

    def __call__(self, events: RunEvents) -> RunWarnings:
        try:
            if self.hang is not None:
                self.hang.wait(30)
            if self.error is not None:
                raise self.error
            self.received.put(events)
            return RunWarnings(warnings=self.warnings)
        finally:
            self.attempts.release()

    def wait_for_attempts(self, count: int) -> None:
        for _ in range(count):
            assert self.attempts.acquire(timeout=10)


@pytest.fixture
def daemon() -> RecordedDaemon:
    return RecordedDaemon()


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def make_publisher(
    tmp_path: Path, daemon: RecordedDaemon, log: list[str]
) -> Callable[[float], Publisher]:
    def make(interval_seconds: float) -> Publisher:
        return Publisher(
            daemon,
            lambda: RUN,
            MetricsTail(tmp_path / "metrics.jsonl", SteppedClock(1000)),
            WATCH,
            interval_seconds=interval_seconds,
            talk=log.append,
            warn=lambda text: log.append("WARNING " + text),
        )

    return make


def phase(name: str, ended_at: int | None = None) -> Phase:
    return Phase(name=name, node="n1", started_at=100, ended_at=ended_at)


def test_phases_and_metrics_arrive(
    tmp_path: Path, daemon: RecordedDaemon, make_publisher: Callable[[float], Publisher]
) -> None:
    """A phase is sent when it begins and when it ends; metrics with the next message; each once."""
    publisher = make_publisher(3600)
    publisher.note_phases([phase("staging")])
    publisher.start()
    first = daemon.received.get(timeout=10)
    assert (first.run, first.watch, first.phases) == (RUN, WATCH, (phase("staging"),))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "values": {"val_acc": 0.5}}\n')
    publisher.note_phases([phase("staging", 120), phase("running")])
    assert publisher.finish(10)
    rest = [daemon.received.get_nowait() for _ in range(daemon.received.qsize())]
    assert [p for events in rest for p in events.phases] == [
        phase("staging", 120),
        phase("running"),
    ]
    assert [m.value for events in rest for m in events.metrics] == [0.5]


def test_what_could_not_be_sent_is_sent_later(
    tmp_path: Path,
    daemon: RecordedDaemon,
    log: list[str],
    make_publisher: Callable[[float], Publisher],
) -> None:
    """The daemon is away for a while: one line says so, one that it is back, nothing is lost."""
    daemon.error = DaemonUnavailableError("slurmwrapd does not answer")
    publisher = make_publisher(0.01)
    publisher.note_phases([phase("running")])
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "values": {"val_acc": 0.5}}\n')
    publisher.start()
    daemon.wait_for_attempts(5)
    assert len(log) == 1
    assert log[0].startswith("slurmwrapd does not answer; the job goes on")
    daemon.error = None
    events = daemon.received.get(timeout=10)
    assert events.phases == (phase("running"),)
    assert [point.value for point in events.metrics] == [0.5]
    assert publisher.finish(10)
    assert log[1:] == ["slurmwrapd answers again; what was kept has been sent"]


@pytest.mark.parametrize("error", [ValueError("surprise"), SlurmwrapError("refused")])
def test_no_failure_reaches_the_job(
    daemon: RecordedDaemon,
    log: list[str],
    make_publisher: Callable[[float], Publisher],
    error: Exception,
) -> None:
    """Whatever goes wrong while sending, the thread goes on and the job does not notice."""
    daemon.error = error
    publisher = make_publisher(0.01)
    publisher.start()
    daemon.wait_for_attempts(3)
    assert not publisher.finish(10)
    assert len(log) == 1


def test_run_that_the_daemon_does_not_know_yet_is_no_alarm(
    daemon: RecordedDaemon, log: list[str], make_publisher: Callable[[float], Publisher]
) -> None:
    """The daemon hears of a run at its next tick; only a third refusal is worth a line."""
    daemon.error = NotFoundError("no run 12")
    publisher = make_publisher(3600)
    publisher.start()
    daemon.wait_for_attempts(1)
    publisher.note_phases([phase("running")])
    daemon.wait_for_attempts(1)
    assert log == []
    publisher.finish(10)
    assert log == ["no run 12; the job goes on, and what happens in it is kept and sent later"]


def test_warnings_are_shown_once(
    daemon: RecordedDaemon, log: list[str], make_publisher: Callable[[float], Publisher]
) -> None:
    """The daemon repeats a warning in every answer; the job's log has it once."""
    daemon.warnings = ("idle for 90 min", "idle for 90 min", "budget used up")
    publisher = make_publisher(0.01)
    publisher.start()
    daemon.wait_for_attempts(3)
    publisher.finish(10)
    assert log == ["WARNING idle for 90 min", "WARNING budget used up"]


def test_daemon_that_hangs_does_not_hold_the_job(
    daemon: RecordedDaemon, log: list[str], make_publisher: Callable[[float], Publisher]
) -> None:
    """The end of the job waits for the last message no longer than told."""
    hanging = threading.Event()
    publisher = make_publisher(3600)
    daemon.hang = hanging
    publisher.start()
    assert not publisher.finish(0.05)
    hanging.set()


def test_refused_events_do_not_hold_up_the_rest(
    daemon: RecordedDaemon, log: list[str], make_publisher: Callable[[float], Publisher]
) -> None:
    """What the daemon will never take is dropped with a line; what follows arrives."""
    daemon.error = UsageError("phase 'x' can't be")
    publisher = make_publisher(3600)
    publisher.note_phases([phase("x")])
    publisher.start()
    daemon.wait_for_attempts(1)
    daemon.error = None
    publisher.note_phases([phase("running")])
    publisher.finish(10)
    received = [daemon.received.get_nowait() for _ in range(daemon.received.qsize())]
    assert [item for events in received for item in events.phases] == [phase("running")]
    assert log == ["slurmwrapd refuses events of this job: phase 'x' can't be; dropped"]


def test_refused_phases_do_not_take_metrics_with_them(
    tmp_path: Path,
    daemon: RecordedDaemon,
    log: list[str],
    make_publisher: Callable[[float], Publisher],
) -> None:
    """A job with more phases than the daemon keeps is still watched by its metrics."""
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "values": {"loss": 2}}\n')
    refusing = daemon.__call__

    def refuse_phases(events: RunEvents) -> RunWarnings:
        daemon.error = UsageError("a run may have 500 phases") if events.phases else None
        return refusing(events)

    publisher = make_publisher(3600)
    publisher._send = refuse_phases
    publisher.note_phases([phase("running")])
    publisher.start()
    publisher.finish(10)
    received = [daemon.received.get_nowait() for _ in range(daemon.received.qsize())]
    assert [item.name for events in received for item in events.metrics] == ["loss"]
    assert log == ["slurmwrapd refuses events of this job: a run may have 500 phases; dropped"]
