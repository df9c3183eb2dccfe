"""Command lines that reach the other nodes of a job: srun, torchrun, and our own helper."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Sequence

from slurmwrap.errors import LaunchError

LAUNCHERS = ("none", "torchrun")

# Below the kernel's usual range of short-lived ports (32768 and up), above the services.
_FIRST_PORT = 12000
_PORTS = 20000
_PORT_ATTEMPTS = 200


def own_program() -> list[str]:
    """How to start slurmwrap again, on any node. -P: the job's folder may hold a json.py."""
    return [sys.executable, "-P", "-m", "slurmwrap"]


def stage_step(srun: str, nodes: int, arguments: Sequence[str]) -> list[str]:
    """A step that runs slurmwrap once on every node of the job, beside whatever else runs."""
    return [
        srun,
        "--overlap",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
        "--cpu-bind=none",
        "--mpi=none",
        # One node's failure must not hide what the others say.
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--input=none",
        "--job-name=slurmwrap-stage",
        *own_program(),
        *arguments,
    ]


def torchrun_step(
    srun: str,
    *,
    nodes: int,
    cards_per_node: int | None,
    address: str,
    port: int,
    job_id: int,
    launcher_arguments: Sequence[str],
    command: Sequence[str],
) -> list[str]:
    """A step with one torchrun per node, which start one process per card.

    The command's first word is a Python file, or ``-m``, or else a program.
    """
    step = [
        srun,
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
        "--cpu-bind=none",
        "--mpi=none",
        "--kill-on-bad-exit=1",
    ]
    torchrun = [
        "torchrun",
        f"--nnodes={nodes}",
        f"--nproc-per-node={cards_per_node or 1}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={address}:{port}",
        f"--rdzv-id={job_id}",
        *launcher_arguments,
    ]
    is_script = command[0].endswith(".py") or command[0] == "-m"
    kind = [] if is_script else ["--no-python"]
    task = [*own_program(), "run", "--task", "--"]
    return [*step, *task, *torchrun, *kind, *command]


def find_master_address(node: str, ask_address: Callable[[str], str | None]) -> str:
    """A name or address under which the other nodes reach the job's first node.

    Raises:
        LaunchError: there is none. It is never replaced by localhost, where every node would
            train alone.
    """
    for candidate in (node, ask_address(node)):
        if candidate and _resolves(candidate):
            return candidate
    raise LaunchError(
        f"the first node of the job, {node!r}, can't be resolved to an address",
        hint="an administrator adds it to DNS or /etc/hosts, or sets NodeAddr in slurm.conf",
    )


def choose_port(job_id: int) -> int:
    """A port that is free on this node; jobs beside each other start from different ones.

    Raises:
        LaunchError: none of many is free.
    """
    for attempt in range(_PORT_ATTEMPTS):
        port = _FIRST_PORT + (job_id * 7 + attempt * 101) % _PORTS
        if _is_free(port):
            return port
    raise LaunchError(f"none of {_PORT_ATTEMPTS} ports tried on this node is free")


def _resolves(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
