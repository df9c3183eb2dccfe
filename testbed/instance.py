"""One testbed: its name, its directory, its ports, and the file that remembers them."""

from __future__ import annotations

import json
import os
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

from testbed.failures import TestbedError

CLUSTER = "testbed"
ADDRESS = "127.0.0.1"
DEFAULT_NAME = "dev"
DEFAULT_ROOT = "/var/tmp/slurmwrap-testbed"
PORT_NAMES = ("slurmctld", "slurmdbd", "gpu1", "gpu2", "daemon", "smtp")
PORTS = range(21000, 32000)  # below the ephemeral ports, which any program may be given


@dataclass(frozen=True)
class Node:
    """What Slurm and the simulated driver are told about a node."""

    name: str
    gpu_type: str
    card_name: str
    cards: int
    memory_total_mib: int
    minors: tuple[int, ...]
    cpus: int = 16
    memory_mb: int = 64000


NODES = (
    Node("gpu1", "a100", "NVIDIA A100-SXM4-80GB", 4, 81920, (0, 1, 2, 3)),
    # NVML order and minor order differ here, as they do on some real machines.
    Node("gpu2", "h800", "NVIDIA H800", 4, 81559, (3, 2, 1, 0)),
)


@dataclass(frozen=True)
class Instance:
    """The paths and ports of one testbed."""

    name: str
    root: Path
    ports: dict[str, int] = field(default_factory=dict)

    @property
    def slurm_conf(self) -> Path:
        return self.root / "etc/slurm.conf"

    @property
    def munge_socket(self) -> Path:
        return self.root / "run/munge/socket"

    @property
    def munge_key(self) -> Path:
        return self.root / "munge/munge.key"

    @property
    def mariadb_socket(self) -> Path:
        return self.root / "run/mariadb/socket"

    @property
    def state_file(self) -> Path:
        return self.root / "state.json"

    def node_dir(self, node: str) -> Path:
        return self.root / "nodes" / node

    def home(self, user: str) -> Path:
        return self.root / "home" / user

    def log(self, daemon: str) -> Path:
        return self.root / "log" / f"{daemon}.log"

    def save(self) -> None:
        """Mark the instance as up: written last, by rename."""
        text = json.dumps({"name": self.name, "ports": self.ports}, indent=2) + "\n"
        temporary = self.state_file.with_suffix(".new")
        temporary.write_text(text)
        temporary.replace(self.state_file)


def root_of_all() -> Path:
    return Path(os.environ.get("SLURMWRAP_TESTBED_ROOT") or DEFAULT_ROOT).resolve()


def name_instance(name: str) -> Instance:
    """The instance of that name, with its ports when it is up."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,19}", name):
        raise TestbedError(f"testbed name {name!r}: use 1 to 20 of a-z, 0-9 and '-'")
    root = root_of_all() / name
    if len(str(root)) > 80:
        raise TestbedError(
            f"{root} is too long for the sockets in it; shorten SLURMWRAP_TESTBED_ROOT"
        )
    if re.search(r"[^A-Za-z0-9/._-]", str(root)):
        raise TestbedError(f"{root}: Slurm's files can't name such a path; use A-Z a-z 0-9 . _ -")
    return Instance(name, root, _read_ports(root / "state.json"))


def choose_ports(instance: Instance) -> Instance:
    """Give the instance ports that nobody listens on and no other instance was given."""
    taken: set[int] = set()
    for state_file in root_of_all().glob("*/state.json"):
        taken.update(_read_ports(state_file).values())
    start = PORTS.start + sum(instance.name.encode()) * 37 % (len(PORTS) - 2000)
    free = (port for port in range(start, PORTS.stop) if port not in taken and _is_free(port))
    try:
        ports = {name: next(free) for name in PORT_NAMES}
    except StopIteration:
        raise TestbedError(f"no free ports between {start} and {PORTS.stop}") from None
    return Instance(instance.name, instance.root, ports)


def _read_ports(state_file: Path) -> dict[str, int]:
    try:
        ports = json.loads(state_file.read_text())["ports"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {str(name): int(port) for name, port in ports.items()}


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
