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

# Set in every daemon we start; slurmstepd inherits it, people's shells never have it.
MARK = "SLURMWRAP_TESTBED_MARK"


@dataclass(frozen=True)
class Process:
    pid: int
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
    fields = text[text.rindex(b")") + 2 :].split()
    state = fields[0].decode()
    if state in "ZX":
        return None
    pairs = (entry.partition(b"=") for entry in environ.split(b"\0") if entry)
    environment = {name: value for name, _, value in pairs}
    return Process(pid, int(fields[1]), uid, state, int(fields[19]), environment)


def list_processes() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            process = read_process(int(name))
            if process is not None:
                yield process


def find_marked(root: Path, uids: frozenset[int] = frozenset()) -> list[Process]:
    """The daemons of a testbed, its job steps and jobs, and all processes of `uids`.

    A job's process is known by the environment slurmd gave it (our slurm.conf and a node name:
    a person's shell may have the first, never the second) or by descent from one that is.
    """
    everything = {process.pid: process for process in list_processes()}
    slurm_conf = os.fsencode(root / "etc/slurm.conf")
    found: dict[int, Process] = {}
    for process in everything.values():
        is_job = (
            process.environment.get(b"SLURM_CONF") == slurm_conf
            and b"SLURMD_NODENAME" in process.environment
        )
        if process.mark == str(root) or is_job or process.uid in uids:
            found[process.pid] = process
    grown = True
    while grown:
        grown = False
        for process in everything.values():
            if process.pid not in found and process.parent in found:
                found[process.pid] = process
                grown = True
    return list(found.values())


def find_other_roots(root: Path) -> set[str]:
    """Roots of other testbeds whose processes live, wherever their directories are."""
    return {process.mark for process in list_processes()} - {"", str(root)}


def kill_marked(root: Path, uids: frozenset[int] = frozenset(), timeout: float = 20.0) -> int:
    """Kill every process of a testbed, again and again until none is left; count them."""
    killed: set[tuple[int, int]] = set()
    deadline = time.monotonic() + timeout
    while found := find_marked(root, uids):
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
