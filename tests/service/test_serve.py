"""`slurmwrapd serve` as a process: what ends it, what does not, and with which code."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
from fake_slurm import FakeSlurm
from served import PATIENCE, wait_until

from slurmwrap.errors import ConfigError
from slurmwrapd.serve import open_listener

PROGRAM = [sys.executable, "-c", "from slurmwrapd.cli import main; main()"]


class Serving:
    """A service in a process of its own, with its configuration."""

    def __init__(self, folder: Path, slurm: FakeSlurm, munged: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.slurm = slurm
        self.folder = folder
        self.log_file = folder / "serve.log"
        self.config = folder / "slurmwrap.toml"
        (folder / "rules.toml").touch()
        self.settings = f"""
            [slurm]
            cluster = "c"
            bin_dir = "{slurm.folder}"
            command_timeout = "3s"
            [munge]
            socket = "{munged}"
            [daemon]
            bind = "127.0.0.1:{self.port}"
            user = "{pwd.getpwuid(os.getuid()).pw_name}"
            database = "{folder / "slurmwrap.db"}"
            [rules]
            file = "{folder / "rules.toml"}"
            [collect]
            interval = "1s"
            """
        self.config.write_text(self.settings)
        self.child: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        with self.log_file.open("ab") as log:
            self.child = subprocess.Popen(
                [*PROGRAM, "--config", str(self.config), "serve"], stderr=log, stdout=log
            )
        return self.child

    def wait_until_ready(self) -> None:
        wait_until(lambda: self.status() == 200, f"ready; {self.log()}")

    def status(self) -> int:
        url = f"http://127.0.0.1:{self.port}/readyz"
        try:
            return urllib3.request("GET", url, retries=False, timeout=5).status
        except urllib3.exceptions.HTTPError:
            return 0

    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""


@pytest.fixture
def serving(tmp_path: Path, slurm: FakeSlurm, munged: Path) -> Iterator[Serving]:
    made = Serving(tmp_path, slurm, munged)
    yield made
    if made.child is not None and made.child.poll() is None:
        made.child.kill()
        made.child.wait(PATIENCE)


def test_a_taken_port_ends_it_before_anything_is_done(serving: Serving) -> None:
    """Another program at daemon.bind: a clear error, its exit code, and no task has run."""
    with socket.create_server(("127.0.0.1", serving.port)):
        assert serving.start().wait(PATIENCE) == 10
    assert f"can't listen at 127.0.0.1:{serving.port}" in serving.log()
    assert "Traceback" not in serving.log()
    assert serving.slurm.asked("squeue") == 0
    assert not (serving.folder / "slurmwrap.db").exists()


def test_answers_are_sent_without_delay() -> None:
    """An answer of two writes must not wait 40 ms for the asker's acknowledgement."""
    with open_listener("127.0.0.1:0") as listener:
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize("bind", ["8642", ":8642", "127.0.0.1:", "127.0.0.1:99999", "256.1.1.1:1"])
def test_an_address_that_is_none_is_refused(bind: str) -> None:
    """daemon.bind of another form, or of no host: named, with the form that is expected."""
    with pytest.raises(ConfigError, match=r"daemon\.bind"):
        open_listener(bind)


def test_ipv6_can_be_listened_on() -> None:
    """[::1]:PORT is an address too."""
    try:
        open_listener("[::1]:0").close()
    except ConfigError as error:
        pytest.skip(str(error))


def test_term_drains_what_is_under_way(serving: Serving) -> None:
    """TERM while a task waits for Slurm: the task ends by its time-out, then exit 0."""
    child = serving.start()
    serving.wait_until_ready()
    serving.slurm.hang("squeue")
    before = serving.slurm.asked("squeue")
    wait_until(lambda: serving.slurm.asked("squeue") > before, "squeue hangs")
    child.send_signal(signal.SIGTERM)
    assert child.wait(PATIENCE) == 0, serving.log()
    assert "no answer within 3 s" in serving.log()
    assert "Traceback" not in serving.log()


def test_a_second_term_does_not_wait(serving: Serving) -> None:
    """The second TERM ends it at once, by that signal, whatever waits for Slurm."""
    serving.config.write_text(serving.settings.replace('"3s"', '"10m"'))
    child = serving.start()
    serving.wait_until_ready()
    serving.slurm.hang("squeue")
    before = serving.slurm.asked("squeue")
    wait_until(lambda: serving.slurm.asked("squeue") > before, "squeue hangs")
    child.send_signal(signal.SIGTERM)
    wait_until(lambda: "stopping" in serving.log(), "it drains")
    child.send_signal(signal.SIGTERM)
    assert child.wait(5) == -signal.SIGTERM


@pytest.mark.parametrize("broken", [b'[rules]\nfile = "\xff"\n', b"[rules\n", b"[nonsense]\na=1\n"])
def test_a_broken_file_at_reload_changes_nothing(serving: Serving, broken: bytes) -> None:
    """HUP with settings that can't be read: the reason is logged, the service goes on."""
    child = serving.start()
    serving.wait_until_ready()
    serving.config.write_bytes(broken)
    child.send_signal(signal.SIGHUP)
    wait_until(lambda: "old settings stay in force" in serving.log(), "it was refused")
    assert serving.status() == 200
    serving.config.write_text(serving.settings)
    child.send_signal(signal.SIGHUP)
    wait_until(lambda: "were read again" in serving.log(), "taken")
    child.send_signal(signal.SIGTERM)
    assert child.wait(PATIENCE) == 0


def test_it_is_not_ready_before_it_has_seen_anything(serving: Serving) -> None:
    """At start /readyz says no until every task has succeeded once: a hope is no health."""
    serving.slurm.hang("squeue")
    serving.start()
    wait_until(lambda: serving.status() != 0, "it answers")
    assert serving.status() == 503
    serving.slurm.mend("squeue")
    serving.wait_until_ready()
