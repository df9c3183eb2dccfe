"""A real service on loopback: real munged, store, HTTP; Slurm's commands answer from files."""

from __future__ import annotations

import os
import pwd
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from slurmwrap.clock import SystemClock
from slurmwrap.config import Config
from slurmwrap.config.settings import (
    AgentsSettings,
    DaemonSettings,
    Duration,
    MungeSettings,
    RulesSettings,
    SlurmSettings,
)
from slurmwrapd.serve import make_server, open_listener
from slurmwrapd.service import Service

sys.path.insert(0, str(Path(__file__).parent))

from fake_slurm import FakeSlurm
from served import AGENT, PATIENCE, People, Served, own_address, wait_until

MakeService = Callable[..., Service]


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    """Slurm's commands, answering from files."""
    return FakeSlurm.make(tmp_path / "slurm")


@pytest.fixture
def make_service(munged: Path, slurm: FakeSlurm, tmp_path: Path) -> Iterator[MakeService]:
    """Makes services whose sections of settings are given by name."""
    made: list[Service] = []

    def make(sections: Mapping[str, Any] | None = None, clock: Any = None) -> Service:
        rules = tmp_path / "rules.toml"
        rules.touch()
        values: dict[str, Any] = {
            "slurm": SlurmSettings(
                cluster="c", bin_dir=str(slurm.folder), command_timeout=Duration(3)
            ),
            "munge": MungeSettings(socket=str(munged)),
            "daemon": DaemonSettings(
                bind="127.0.0.1:0",
                user=pwd.getpwuid(os.getuid()).pw_name,
                database=str(tmp_path / "slurmwrap.db"),
            ),
            "agents": AgentsSettings(users=(AGENT,), addresses={"gpu1": (own_address(),)}),
            "rules": RulesSettings(file=str(rules)),
            **(sections or {}),
        }
        service = Service.start(Config(**values), clock or SystemClock())
        made.append(service)
        return service

    yield make
    for service in made:
        service.store.close()


@pytest.fixture
def make_served(
    make_service: MakeService, slurm: FakeSlurm, munged: Path
) -> Iterator[Callable[..., Served]]:
    """Makes running services."""
    stops: list[Callable[[], None]] = []

    def make(**options: Any) -> Served:
        service = make_service(**options)
        listener = open_listener(service.config.daemon.bind)
        server = make_server(service)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        stops.append(lambda: _stop(server, thread, listener))
        wait_until(lambda: server.started, "the server has started")
        return Served(service, slurm, People(munged), listener.getsockname()[1])

    yield make
    for stop in stops:
        stop()


def _stop(server: uvicorn.Server, thread: threading.Thread, listener: socket.socket) -> None:
    server.should_exit = True
    thread.join(PATIENCE)
    listener.close()
    assert not thread.is_alive()


@pytest.fixture
def served(make_served: Callable[..., Served]) -> Served:
    """A running service with the usual settings."""
    return make_served()
