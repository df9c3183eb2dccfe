"""The agent as a process: simulated cards, real munged, a small HTTP server for slurmwrapd."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slurmwrap.api import CALL_PATH, Readings, Request, Response
from slurmwrap.model import CardReading, ReadStatus
from slurmwrap.munge import Munge
from testbed.cards import create_cards, set_card, set_driver

INTERVAL = 1
PATIENCE = 30.0
PROGRAM = [sys.executable, "-c", "from slurmwrapd.cli import main; main()"]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"after {PATIENCE} s still not: {what}"
        time.sleep(0.02)


class FakeDaemon:
    """Decodes credentials with a real munged and keeps the messages it accepts."""

    def __init__(self, munge: Munge) -> None:
        self.munge = munge
        self.accepted: list[Readings] = []
        self._arrived = threading.Condition()
        self._server: http.server.ThreadingHTTPServer | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]

    def start(self) -> None:
        daemon = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                assert self.path == CALL_PATH
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = daemon.answer(body.decode("ascii")).encode("ascii")
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                return

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, text: str) -> str:
        credential = self.munge.decode(text)
        request = msgspec.json.decode(credential.payload, type=Request)
        assert request.call == "push_readings"
        message = msgspec.json.decode(request.arguments, type=Readings)
        with self._arrived:
            self.accepted.append(message)
            self._arrived.notify_all()
        response = Response(result=msgspec.Raw(b"{}"), nonce=request.nonce)
        return self.munge.encode(msgspec.json.encode(response), reader_uid=credential.uid)

    def wait(self, enough: Callable[[list[Readings]], bool], what: str) -> list[Readings]:
        """The messages, once there are enough."""
        with self._arrived:
            assert self._arrived.wait_for(
                lambda: bool(self.accepted) and enough(self.accepted), PATIENCE
            ), f"after {PATIENCE} s still not: {what}; the last: {self.accepted[-1:]}"
            return list(self.accepted)

    def wait_for_messages(self, count: int) -> list[Readings]:
        return self.wait(lambda messages: len(messages) >= count, f"{count} messages")


class FakeSystemd:
    """Keeps what a service tells it, as fast as it comes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._heard: list[str] = []
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._channel.bind(str(path))
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> list[str]:
        """All it was told."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last_word:
            last_word.sendto(b"", str(self.path))
        self._thread.join(PATIENCE)
        self._channel.close()
        return self._heard

    def _listen(self) -> None:
        while text := self._channel.recv(4096).decode():
            self._heard += text.split("\n")


class Node:
    """A node with simulated cards, its configuration, and its agent."""

    def __init__(self, folder: Path, library: Path, daemon: FakeDaemon, munged: Path) -> None:
        self.cards = folder / "nvml"
        self.spool = folder / "spool"
        self.daemon = daemon
        self.log_file = folder / "agent.log"
        create_cards(self.cards, [3, 2, 1, 0])
        self.config = folder / "slurmwrap.toml"
        user = pwd.getpwuid(os.getuid()).pw_name
        self.config.write_text(
            f"""
            [munge]
            socket = "{munged}"
            [daemon]
            url = "http://127.0.0.1:{daemon.port}"
            user = "{user}"
            request_timeout = "5s"
            [agents]
            interval = "{INTERVAL}s"
            read_every = 0.2
            call_timeout = "1s"
            spool_dir = "{self.spool}"
            """
        )
        self.environment = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(library.parent),
            "SLURMWRAP_TESTBED_NVML": str(self.cards),
            "SLURMWRAP_CONFIG": str(self.config),
        }
        self.agents: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str, **variables: str) -> subprocess.Popen[bytes]:
        with self.log_file.open("ab") as log:
            agent = subprocess.Popen(
                [*PROGRAM, "agent", *(options or ("--node", "gpu1"))],
                env=self.environment | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.agents.append(agent)
        return agent

    def run(self, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, "agent", *options],
            env=self.environment | variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def waiting(self) -> list[str]:
        names = sorted(path.name for path in self.spool.glob("*.json"))
        return [name for name in names if name != "cards.json"]

    def wait_for_spooled(self, count: int) -> None:
        wait_until(lambda: len(self.waiting()) >= count, f"{count} messages in the spool")

    def log(self) -> str:
        return self.log_file.read_text()


@pytest.fixture
def daemon(munged: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(Munge(str(munged)))
    yield fake
    fake.stop()


@pytest.fixture
def node(tmp_path: Path, driver_library: Path, daemon: FakeDaemon, munged: Path) -> Iterator[Node]:
    made = Node(tmp_path, driver_library, daemon, munged)
    yield made
    for agent in made.agents:
        with contextlib.suppress(ProcessLookupError):
            agent.kill()
        agent.wait(PATIENCE)


def ends(messages: list[Readings]) -> list[int]:
    """The moment each message's interval ends; all its cards share it."""
    moments = [{reading.ended_at for reading in message.readings} for message in messages]
    assert all(len(moment) == 1 for moment in moments)
    return [moment.pop() for moment in moments]


def is_consecutive(moments: list[int]) -> bool:
    return moments == list(range(moments[0], moments[0] + len(moments) * INTERVAL, INTERVAL))


def card(message: Readings, index: int) -> CardReading:
    return next(reading for reading in message.readings if reading.index == index)


def statuses(message: Readings) -> list[ReadStatus]:
    return [reading.status for reading in message.readings]


def test_a_node_from_start_to_stop(node: Node, daemon: FakeDaemon, tmp_path: Path) -> None:
    """A1, A2: four cards by minor number; aligned, gapless intervals of five reads; a process
    with its user; systemd told of start, life and end; one agent per spool; TERM ends with 0."""
    for position, utilisation in enumerate((93, 92, 91, 90)):
        set_card(node.cards, position, util=utilisation)
    set_card(node.cards, 3, processes=f"{os.getpid()}:1000")
    daemon.start()
    systemd = FakeSystemd(tmp_path / "notify")
    agent = node.start("--node", "gpu1", NOTIFY_SOCKET=str(systemd.path), WATCHDOG_USEC="500000")
    messages = daemon.wait_for_messages(3)
    second = node.run("--node", "gpu1")
    assert second.returncode == 72
    assert str(node.spool) in second.stderr
    wait_until(lambda: not node.waiting(), "an empty spool")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(PATIENCE) == 0
    heard = systemd.close()
    assert heard.count("READY=1") == 1
    assert heard.count("WATCHDOG=1") >= 8, "every quarter of a second"
    assert heard[-1] == "STOPPING=1"
    assert is_consecutive(ends(messages))
    for message in messages:
        assert message.node == "gpu1"
        assert message.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert [reading.index for reading in message.readings] == [0, 1, 2, 3]
        assert [reading.utilisation_max for reading in message.readings] == [90, 91, 92, 93]
    for reading in messages[2].readings:
        assert reading.ended_at - reading.started_at == INTERVAL
        assert (reading.reads + reading.failed_reads, reading.status) == (5, ReadStatus.OK)
        assert reading.energy_joules is not None
    assert card(messages[2], 1).processes == ()
    (process,) = card(messages[2], 0).processes or ()
    assert (process.pid, process.uid, process.job_id) == (os.getpid(), os.getuid(), None)
    assert process.started_at is not None
    assert process.started_at <= time.time() + 3


def test_daemon_away_and_agent_killed(node: Node, daemon: FakeDaemon) -> None:
    """Messages wait in the spool, survive kill -9, and come later with their own times: in
    order, each once; the kill loses the interval under way at most."""
    first = node.start()
    node.wait_for_spooled(2)
    first.send_signal(signal.SIGKILL)
    first.wait(PATIENCE)
    killed_at = time.time()
    kept = [int(name.partition("-")[0]) for name in node.waiting()]
    assert is_consecutive(kept)
    assert kept[-1] > killed_at - INTERVAL - 0.5, "nothing older than the interval was lost"
    node.start()
    wait_until(lambda: node.log().count("slurmwrapd does not answer") == 2, "a second agent")
    node.wait_for_spooled(len(kept) + 1)
    daemon.start()
    messages = daemon.wait_for_messages(len(kept) + 2)
    moments = ends(messages)
    assert moments[: len(kept)] == kept
    assert is_consecutive(moments[len(kept) :])
    assert moments == sorted(set(moments))
    assert [message.dropped_messages for message in messages] == [0] * len(messages)
    wait_until(lambda: not node.waiting(), "an empty spool")
    assert node.log().count("slurmwrapd does not answer") == 2, "once per agent, not per attempt"
    assert "slurmwrapd accepts messages again" in node.log()


def test_broken_cards_hold_up_nobody(node: Node, daemon: FakeDaemon) -> None:
    """R2, R4: of four cards one is lost and one does not answer for a minute: both are unknown,
    the others and TERM go on, and the lost one is back when it is back."""
    daemon.start()
    agent = node.start()
    daemon.wait_for_messages(1)
    set_card(node.cards, 3, **{"error.*": 15})
    set_card(node.cards, 2, **{"delay.GetUtilizationRates": 60_000})
    broken = [ReadStatus.LOST, ReadStatus.NO_ANSWER, ReadStatus.OK, ReadStatus.OK]
    messages = daemon.wait(lambda messages: statuses(messages[-1]) == broken, "two broken cards")
    messages = daemon.wait_for_messages(len(messages) + 1)
    assert is_consecutive(ends(messages))
    lost, hanging, *others = messages[-1].readings
    assert "GPU is lost" in lost.error
    assert lost.uuid == card(messages[0], 0).uuid
    assert "not answered for" in hanging.error
    for reading in (lost, hanging):
        assert (reading.reads, reading.failed_reads) == (0, 5)
        assert (reading.utilisation_mean, reading.histogram) == (None, None)
    assert [reading.reads for reading in others] == [5, 5]
    set_card(node.cards, 3, **{"error.*": None})
    daemon.wait(lambda messages: card(messages[-1], 0).status is ReadStatus.OK, "a card back")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(PATIENCE) == 0


def test_driver_upgraded_under_running_jobs(node: Node, daemon: FakeDaemon) -> None:
    """R3: a driver that refuses to start (18): the daemon hears of it though no card is known;
    the cards come with the driver; after a restart the same refusal makes those unknown."""
    set_driver(node.cards, **{"error.Init": 18})
    daemon.start()
    first = node.start()
    (message, *_) = daemon.wait_for_messages(1)
    assert message.readings == ()
    assert "mismatch" in message.error
    set_driver(node.cards, **{"error.Init": None})
    well = [ReadStatus.OK] * 4
    known = daemon.wait(lambda messages: statuses(messages[-1]) == well, "a working driver")[-1]
    assert known.error == ""
    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE) == 0
    set_driver(node.cards, **{"error.Init": 18})
    node.start()
    message = daemon.wait(lambda messages: bool(messages[-1].error), "a driver that refuses")[-1]
    assert statuses(message) == [ReadStatus.NO_ANSWER] * 4
    assert [reading.utilisation_mean for reading in message.readings] == [None] * 4
    assert [one.uuid for one in message.readings] == [one.uuid for one in known.readings]
    assert "mismatch" in message.error


def test_once_prints_three_reads(node: Node) -> None:
    """Needs neither daemon nor spool, and a broken card is no failure. R9: slurmd's name counts."""
    set_card(node.cards, 3, util=70)
    set_card(node.cards, 0, **{"error.*": 15})
    done = node.run(
        "--once", "--json", SLURMWRAP_AGENTS_SPOOL_DIR="/proc/nowhere", SLURMD_NODENAME="told"
    )
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)
    message = json.loads(done.stdout)
    assert message["node"] == "told"
    readings: list[dict[str, Any]] = message["readings"]
    assert [one["status"] for one in readings] == ["ok", "ok", "ok", "lost"]
    assert readings[0]["reads"] >= 3
    assert readings[0]["utilisation_mean"] == 70.0
    text = node.run("--once").stdout
    assert "70 %" in text
    assert "lost" in text


def test_once_without_a_driver(node: Node) -> None:
    """71: nothing can be read at all; the driver's words and a next step on stderr."""
    set_driver(node.cards, **{"error.Init": 18})
    done = node.run("--once", "--json")
    assert (done.returncode, done.stdout) == (71, "")
    assert "mismatch" in done.stderr
    assert "hint:" in done.stderr


def test_json_needs_once(node: Node) -> None:
    """A service prints no JSON: wrong usage, 2."""
    assert node.run("--json").returncode == 2
