"""Which processes belong to a testbed, by marks that no other process can carry by accident."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.failures import TestbedError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Set in every daemon we start; people's shells never have it.
MARK = "SLURMWRAP_TESTBED_MARK"
STEP_DAEMON = "slurmstepd"


@dataclass(frozen=True)
class Process:
    pid: int
    name: str
    parent: int
    uid: int
    state: str
    started_ticks: int
    environment: dict[bytes, bytes]

    @property
    def mark(self) -> str:
        return os.fsdecode(self.environment.get(MARK.encode(), b""))


def read_process(pid: int) -> Process | None:
    """Describe a process; None when it is gone or already dead (a zombie is dead)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
        uid = Path(f"/proc/{pid}").stat().st_uid
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    name = os.fsdecode(text[text.index(b"(") + 1 : text.rindex(b")")])
    fields = text[text.rindex(b")") + 2 :].split()
    state = fields[0].decode()
    if state in "ZX":
        return None
    pairs = (entry.partition(b"=") for entry in environ.split(b"\0") if entry)
    environment = {name: value for name, _, value in pairs}
    return Process(pid, name, int(fields[1]), uid, state, int(fields[19]), environment)


def list_processes() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            process = read_process(int(name))
            if process is not None:
                yield process


def find_marked(root: Path, shared_uids: frozenset[int], own_uids: bool) -> list[Process]:
    """The daemons of a testbed, its job steps and its jobs.

    A job's process is known by the environment slurmd gave it (our slurm.conf and a node name:
    a person's shell may have the first, never the second), by descent from one that is, or, when
    it threw all that away, by being a testbed user's and working in our directory. slurmstepd
    writes its title over its environment and leaves slurmd's family, but keeps its log and its
    socket open. With `own_uids` every process of those users is ours: no other testbed is left.
    """
    everything = {process.pid: process for process in list_processes()}
    slurm_conf = os.fsencode(root / "etc/slurm.conf")
    found: dict[int, Process] = {}
    for process in everything.values():
        is_job = (
            process.environment.get(b"SLURM_CONF") == slurm_conf
            and b"SLURMD_NODENAME" in process.environment
        )
        is_users = process.uid in shared_uids and (own_uids or _works_in(root, process.pid))
        is_step = process.name == STEP_DAEMON and _works_in(root, process.pid)
        if process.mark == str(root) or is_job or is_users or is_step:
            found[process.pid] = process
    grown = True
    while grown:
        grown = False
        for process in everything.values():
            if process.pid not in found and process.parent in found:
                found[process.pid] = process
                grown = True
    return list(found.values())


def _works_in(root: Path, pid: int) -> bool:
    """Its working directory or one of its open files is under the root."""
    directory = f"/proc/{pid}"
    try:
        links = [
            f"{directory}/cwd",
            *(f"{directory}/fd/{n}" for n in os.listdir(f"{directory}/fd")),
        ]
        return any(os.readlink(link).startswith(f"{root}/") for link in links)
    except OSError:  # it ended, or a file was closed, while we looked: the next round tells
        return False


def find_other_roots(root: Path) -> set[str]:
    """Roots of other testbeds whose processes live, wherever their directories are."""
    return {process.mark for process in list_processes()} - {"", str(root)}


def kill_marked(
    root: Path, shared_uids: frozenset[int], own_uids: bool, timeout: float = 20.0
) -> int:
    """Kill every process of a testbed, again and again until none is left; count them."""
    killed: set[tuple[int, int]] = set()
    deadline = time.monotonic() + timeout
    while found := find_marked(root, shared_uids, own_uids):
        if time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in found)
            raise TestbedError(f"these processes of {root} don't die: {pids}")
        for process in found:
            send_signal(process.pid, signal.SIGKILL)
            killed.add((process.pid, process.started_ticks))
        time.sleep(0.05)
    return len(killed)


def send_signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
