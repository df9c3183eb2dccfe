"""A running service as tests see it: who asks it what, and what it answers."""

from __future__ import annotations

import os
import pwd
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import urllib3
from fake_slurm import FakeSlurm

from slurmwrap.api import CALL_PATH, Client, Request, Response, rebuild_error
from slurmwrap.config import Config
from slurmwrap.config.settings import DaemonSettings
from slurmwrap.munge import Munge
from slurmwrapd.service import Service

PATIENCE = 30.0
# Users that every Debian has, none of whom anybody works as.
OWNER, OTHER, COORDINATOR, CHIEF, OPERATOR, ADMINISTRATOR = (
    "games", "mail", "news", "proxy", "backup", "list",
)  # fmt: skip
AGENT = "nobody"


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"after {PATIENCE} s still not: {what}"
        time.sleep(0.02)


def uid_of(user: str) -> int:
    return pwd.getpwnam(user).pw_uid


@dataclass(frozen=True)
class People:
    """Credentials made and opened by other users: by a child that has become them."""

    socket: Path

    def encode(
        self, user: str | int, payload: bytes, *, reader: int | None = None, seconds: int = 60
    ) -> str:
        """A credential of a user, for the service's user or another reader."""
        reader_uid = os.getuid() if reader is None else reader
        made = self._become(
            user,
            lambda munge: munge.encode(
                payload, reader_uid=reader_uid, lifetime_seconds=seconds
            ).encode(),
        )
        assert made, f"{user} got no credential"
        return made.decode()

    def decode(self, user: str | int, text: str) -> bytes:
        """What a user reads in a credential; nothing where it is not theirs to open."""
        return self._become(user, lambda munge: munge.decode(text).payload)

    def _become(self, user: str | int, act: Callable[[Munge], bytes]) -> bytes:
        uid = user if isinstance(user, int) else uid_of(user)
        if uid != os.getuid() and os.getuid() != 0:
            pytest.skip("only root can make credentials of other users")
        receiving, sending = os.pipe()
        # pytest's folders are root's alone: the socket is reached through a folder held open.
        folder = os.open(self.socket.parent, os.O_PATH)
        munge = Munge(f"/proc/self/fd/{folder}/{self.socket.name}")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if uid != os.getuid():
                    os.setgroups([])
                    os.setgid(65534)
                    os.setuid(uid)
                with os.fdopen(sending, "wb") as pipe:
                    pipe.write(act(munge))
                status = 0
            finally:
                os._exit(status)
        os.close(sending)
        os.close(folder)
        with os.fdopen(receiving, "rb") as pipe:
            done = pipe.read()
        os.waitpid(child, 0)
        return done


@dataclass(frozen=True)
class Served:
    """A running service and ways to reach it."""

    service: Service
    slurm: FakeSlurm
    people: People
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, body: str | bytes, **options: Any) -> tuple[int, str]:
        """Status and text of an answer to a raw body."""
        data = body.encode() if isinstance(body, str) else body
        answer = urllib3.request(
            "POST", self.url + CALL_PATH, body=data, timeout=PATIENCE, retries=False, **options
        )
        return answer.status, answer.data.decode()

    def get(self, path: str) -> str:
        return urllib3.request("GET", self.url + path, timeout=PATIENCE).data.decode()

    def refused(self, cause: str) -> float:
        """The counter of refusals in /metrics."""
        start = f'slurmwrapd_requests_refused_total{{cause="{cause}"}} '
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith(start)]
        return float(lines[0].removeprefix(start)) if lines else 0.0

    def client(self, **changes: Any) -> Client:
        """A client as the user of this process: root, an administrator."""
        name = pwd.getpwuid(os.getuid()).pw_name
        daemon = DaemonSettings(**{"url": self.url, "user": name, **changes})
        return Client(Config(daemon=daemon, munge=self.service.config.munge))

    def ask(self, user: str | int, call: str, /, **arguments: Any) -> Any:
        """What a user is answered, as plain values; the daemon's error is raised."""
        return self.ask_raw(user, call, msgspec.json.encode(arguments))

    def ask_raw(self, user: str | int, call: str, arguments: bytes) -> Any:
        message = msgspec.json.encode(Request(call=call, arguments=msgspec.Raw(arguments)))
        status, text = self.post(self.people.encode(user, message))
        assert status == 200, (status, text)
        return self.open(user, text)

    def open(self, user: str | int, text: str) -> Any:
        """The answer in a credential, opened by the user that it is for."""
        payload = self.people.decode(user, text)
        assert payload, f"{user} could not open the answer"
        response = msgspec.json.decode(payload, type=Response)
        if response.failure is not None:
            raise rebuild_error(response.failure)
        return msgspec.json.decode(response.result)

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.service.store.database.query(sql, parameters)]


def own_address() -> str:
    """The address that munged writes into credentials made here."""
    return socket.gethostbyname(socket.gethostname())
