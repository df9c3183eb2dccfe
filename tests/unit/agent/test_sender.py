"""Sending from the spool: what is kept, retried, given up, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmwrap.api import Readings
from slurmwrap.errors import (
    DaemonUnavailableError,
    MungeError,
    NotPermittedError,
    SlurmwrapError,
    StoreError,
)
from slurmwrapd.agent.sender import Sender, spread_seconds
from slurmwrapd.agent.spool import Spool


class RecordedDaemon:
    """Answers each message as it is told to, and remembers what it accepted."""

    def __init__(self) -> None:
        self.fails: Callable[[str], SlurmwrapError | None] = lambda node: None
        self.accepted: list[str] = []
        self.asked: list[str] = []

    def __call__(self, message: Readings) -> None:
        self.asked.append(message.node)
        error = self.fails(message.node)
        if error is not None:
            raise error
        self.accepted.append(message.node)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    """Holds ten messages, told apart by their node: 0 to 9."""
    made = Spool(tmp_path, 100)
    for number in range(10):
        made.add(Readings(node=str(number), readings=()), 30 * number)
    yield made
    made.close()


@pytest.fixture
def daemon() -> RecordedDaemon:
    return RecordedDaemon()


@pytest.fixture
def sender(spool: Spool, daemon: RecordedDaemon) -> Sender:
    return Sender(spool, daemon, delay_seconds=0)


def waiting(spool: Spool) -> list[str]:
    loaded = [spool.load(name) for name in spool.names()]
    return [message.node for message in loaded if message is not None]


ALL = [str(number) for number in range(10)]


def test_all_in_order(spool: Spool, sender: Sender, daemon: RecordedDaemon) -> None:
    """Oldest first, each once."""
    assert sender.send_waiting() == 10
    assert daemon.accepted == ALL
    assert waiting(spool) == []


@pytest.mark.parametrize("error", [DaemonUnavailableError("away"), MungeError("away")])
def test_an_absence_ends_the_round_and_costs_nothing(
    spool: Spool, sender: Sender, daemon: RecordedDaemon, error: SlurmwrapError
) -> None:
    """The daemon goes away after three: one attempt, and the next round goes on with the fourth."""
    daemon.fails = lambda node: error if node == "3" else None
    assert sender.send_waiting() == 3
    assert daemon.asked == ["0", "1", "2", "3"]
    daemon.fails = lambda node: None
    sender.send_waiting()
    assert daemon.accepted == ALL
    assert spool.dropped_messages == 0


def test_an_agent_that_may_not_push_keeps_everything(
    spool: Spool, sender: Sender, daemon: RecordedDaemon
) -> None:
    """Refused whatever it sends: a few attempts per round, nothing dropped, all sent later."""
    daemon.fails = lambda node: NotPermittedError("uid 992 may not push readings")
    for _ in range(50):
        assert sender.send_waiting() == 0
    assert len(daemon.asked) == 50 * 4
    assert waiting(spool) == ALL
    daemon.fails = lambda node: None
    sender.send_waiting()
    assert daemon.accepted == ALL
    assert spool.dropped_messages == 0


@pytest.mark.parametrize("refused", [["0"], ["4", "5"], ["0", "1", "2", "3", "4", "5"]])
def test_refused_messages_do_not_hold_up_newer_ones(
    spool: Spool, sender: Sender, daemon: RecordedDaemon, refused: list[str]
) -> None:
    """Some are never accepted: all others are, and those are a known gap."""
    daemon.fails = lambda node: NotPermittedError("no") if node in refused else None
    sender.send_waiting()
    assert sorted(daemon.accepted) == [node for node in ALL if node not in refused]
    assert waiting(spool) == []
    assert spool.dropped_messages == len(refused)


def test_the_newest_message_refused_waits_for_the_next_one(
    spool: Spool, sender: Sender, daemon: RecordedDaemon
) -> None:
    """Nothing newer was accepted yet, so it is not given up yet."""
    daemon.fails = lambda node: NotPermittedError("no") if node == "9" else None
    assert sender.send_waiting() == 9
    assert waiting(spool) == ["9"]


def test_a_failure_of_the_daemon_may_pass(
    spool: Spool, sender: Sender, daemon: RecordedDaemon
) -> None:
    """Its disk is full: the same message again and again, nothing dropped."""
    daemon.fails = lambda node: StoreError("disk full")
    for _ in range(5):
        assert sender.send_waiting() == 0
    assert daemon.asked == ["0"] * 5
    daemon.fails = lambda node: None
    sender.send_waiting()
    assert daemon.accepted == ALL


def test_a_message_the_daemon_always_fails_on_is_given_up(
    spool: Spool, sender: Sender, daemon: RecordedDaemon
) -> None:
    """A message that breaks the daemon must not silence the node for ever."""
    daemon.fails = lambda node: StoreError("constraint failed") if node == "0" else None
    rounds = 0
    while "0" in waiting(spool):
        sender.send_waiting()
        rounds += 1
        assert rounds < 20
    assert daemon.accepted == ALL[1:]
    assert spool.dropped_messages == 1


def test_trouble_is_logged_once(
    sender: Sender, daemon: RecordedDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten rounds against a daemon that is away are one line."""
    caplog.set_level("INFO", logger="slurmwrapd.agent")
    daemon.fails = lambda node: DaemonUnavailableError(
        "slurmwrapd does not answer", hint="start it"
    )
    for _ in range(10):
        sender.send_waiting()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "start it" in caplog.text


def test_nodes_do_not_send_all_at_once() -> None:
    """A thousand nodes use the whole first quarter of the interval, each always the same moment."""
    moments = [spread_seconds(f"node{number:04d}", 30) for number in range(1000)]
    assert moments == [spread_seconds(f"node{number:04d}", 30) for number in range(1000)]
    assert min(moments) >= 0
    assert max(moments) < 7.5
    for second in range(7):
        # 133 would be even.
        assert sum(second <= moment < second + 1 for moment in moments) > 65
