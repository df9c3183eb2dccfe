"""Who uses an entry: a lease per job, or per process outside jobs, and whether it still counts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LiveJobs = Callable[[], frozenset[int] | None]
"""The user's raw job ids that Slurm still has on nodes; None when Slurm did not answer."""


@dataclass(frozen=True)
class Holder:
    """Who takes a lease: a job, or a process when there is no job."""

    job_id: int | None
    pid: int
    pid_started: int
    """Start time of the process in clock ticks since boot: a pid alone is reused."""

    @property
    def file_name(self) -> str:
        if self.job_id is not None:
            return f"job-{self.job_id}"
        return f"process-{self.pid}-{self.pid_started}"


def current_holder(job_id: int | None) -> Holder:
    """The calling job or process."""
    pid = os.getpid()
    return Holder(job_id, pid, read_start_ticks(pid) or 0)


def take_lease(entry_folder: bytes, holder: Holder) -> bool:
    """Say that ``holder`` uses the entry; True when it said so before. The lock must be held."""
    folder = os.path.join(entry_folder, b"leases")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, holder.file_name.encode())
    is_known = os.path.lexists(path)
    _drop_dead_processes(folder)
    temporary = path + b".new"
    with open(temporary, "w", encoding="ascii") as file:
        json.dump(
            {"job_id": holder.job_id, "pid": holder.pid, "pid_started": holder.pid_started}, file
        )
    os.rename(temporary, path)
    return is_known


def _drop_dead_processes(folder: bytes) -> None:
    """Keep the folder small: a lease of a process that is gone says nothing."""
    for name in os.listdir(folder):
        kind, _, rest = name.partition(b"-")
        pid, _, started = rest.partition(b"-")
        if (
            kind == b"process"
            and pid.isdigit()
            and started.isdigit()
            and read_start_ticks(int(pid)) != int(started)
        ):
            os.unlink(os.path.join(folder, name))


def drop_lease(entry_folder: bytes, holder: Holder) -> None:
    """Say that ``holder`` does not use the entry."""
    path = os.path.join(entry_folder, b"leases", holder.file_name.encode())
    Path(os.fsdecode(path)).unlink(missing_ok=True)


class LeaseCheck:
    """Tells which leases count; asks Slurm once, and only when a job's lease is met."""

    def __init__(self, live_jobs: LiveJobs) -> None:
        self._live_jobs = live_jobs
        self._asked = False
        self._jobs: frozenset[int] | None = None

    def live_holders(self, entry_folder: bytes) -> list[str]:
        """Names of the holders whose lease counts, such as ``job 12``.

        A job's lease counts as long as Slurm knows the job, and when Slurm can't be asked; a
        process's as long as it lives. A lease that can't be read counts.
        """
        folder = os.path.join(entry_folder, b"leases")
        try:
            names = sorted(os.listdir(folder))
        except FileNotFoundError:
            return []
        holders = [self._live_holder(os.path.join(folder, name)) for name in names]
        return [holder for holder in holders if holder is not None]

    def _live_holder(self, path: bytes) -> str | None:
        if path.endswith(b".new"):
            return None
        try:
            with open(path, encoding="ascii") as file:
                lease = json.load(file)
            job_id, pid, started = lease["job_id"], int(lease["pid"]), int(lease["pid_started"])
        except (OSError, ValueError, KeyError, TypeError):
            return f"an unreadable lease {os.fsdecode(os.path.basename(path))}"
        if job_id is not None:
            return f"job {job_id}" if self._job_is_live(int(job_id)) else None
        return f"process {pid}" if read_start_ticks(pid) == started else None

    def _job_is_live(self, job_id: int) -> bool:
        if not self._asked:
            self._jobs = self._live_jobs()
            self._asked = True
        return self._jobs is None or job_id in self._jobs


def read_start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None: there is none (proc(5))."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses, which may itself hold anything.
    return int(text.rpartition(")")[2].split()[19])
