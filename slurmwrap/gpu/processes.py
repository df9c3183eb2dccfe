"""Who a process on a card is: its user, its start, and the Slurm job whose cgroup holds it.

What /proc and the cgroup tree say is the kernel's and slurmstepd's word; a process can't
forge it, unlike its environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from slurmwrap.gpu.reader import DriverProcess
from slurmwrap.model import CardProcess

MAX_PROCESSES = 128
"""Told per card at most: a message has a size, and a fork bomb may use a card too."""

_SCOPE = re.compile(r"(?:.+_)?slurmstepd\.scope")
_JOB_FOLDER = re.compile(r"job_(\d+)")
_SLUID = re.compile(r"s[0-9A-HJKMNP-TV-Z]{13}")
_USER_TREE = re.compile(r"user\.slice|user-\d+\.slice|user@\d+\.service|machine\.slice")
_STEPD_TITLE = re.compile(r"slurmstepd: \[(\d+)\.")


class JobFolder(Struct, frozen=True):
    """A job's folder in the cgroup tree."""

    job_id: int | None
    """None: the folder is named by the job's SLUID, which does not hold the id."""
    path: str
    """Of the job's own folder, from the root of the hierarchy."""


def find_job_folder(cgroup_text: str) -> JobFolder | None:
    """The Slurm job in the text of /proc/PID/cgroup; None when it belongs to none.

    The layouts of Slurm 22.05 to 26.05 (sources: slurm.schedmd.com/cgroup_v2.html,
    cgroup.conf(5), Slurm's cgroup/v1 plugin):

    - v1 ``/slurm/uid_1000/job_12/step_0``, or ``/slurm_NODE/…`` with several slurmds per host;
    - v2 ``/system.slice/slurmstepd.scope/job_12/step_batch/user/task_0``, or
      ``NODE_slurmstepd.scope``; the slice is a setting (CgroupSlice);
    - v2 since 26.05 ``…/slurmstepd.scope/sEKNKTV3WPV500/step_0/…``, unless
      CgroupJobIdPaths=yes.

    A user may own a part of the tree below user.slice and name folders in it as he likes:
    nothing is believed there.
    """
    for line in cgroup_text.splitlines():
        _, _, rest = line.partition(":")
        _, _, path = rest.partition(":")
        folder = _job_folder(path)
        if folder is not None:
            return folder
    return None


def _job_folder(path: str) -> JobFolder | None:
    parts = path.split("/")
    for place, part in enumerate(parts[:-1]):
        if _USER_TREE.fullmatch(part):
            return None
        if _SCOPE.fullmatch(part):
            own_path = "/".join(parts[: place + 2])
            return _named_job(parts[place + 1], own_path)
        if part == "slurm" or part.startswith("slurm_"):
            below = parts[place + 1 : place + 3]
            if len(below) == 2 and re.fullmatch(r"uid_\d+", below[0]):
                return _named_job(below[1], "/".join(parts[: place + 3]))
    return None


def _named_job(name: str, path: str) -> JobFolder | None:
    match = _JOB_FOLDER.fullmatch(name)
    if match is not None:
        return JobFolder(job_id=int(match[1]), path=path)
    return JobFolder(job_id=None, path=path) if _SLUID.fullmatch(name) else None


class ProcessTable:
    """Looks processes up in /proc."""

    def __init__(
        self, proc: Path = Path("/proc"), cgroup_root: Path = Path("/sys/fs/cgroup")
    ) -> None:
        self._proc = proc
        self._cgroup_root = cgroup_root
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")

    def describe(self, processes: Sequence[DriverProcess]) -> tuple[CardProcess, ...]:
        """The driver's processes with what /proc knows of each; unknown is None.

        One that has ended meanwhile is left with its pid alone.
        """
        job_ids: dict[str, int | None] = {}
        by_pid = {process.pid: process for process in processes}
        return tuple(
            self._describe_one(by_pid[pid], job_ids) for pid in sorted(by_pid)[:MAX_PROCESSES]
        )

    def _describe_one(self, process: DriverProcess, job_ids: dict[str, int | None]) -> CardProcess:
        folder = self._proc / str(process.pid)
        job = find_job_folder(_text(folder / "cgroup"))
        job_id = job.job_id if job is not None else None
        if job is not None and job_id is None:
            if job.path not in job_ids:
                job_ids[job.path] = self._job_id_of(job.path)
            job_id = job_ids[job.path]
        return CardProcess(
            pid=process.pid,
            uid=_uid(_text(folder / "status")),
            started_at=self._started_at(_text(folder / "stat")),
            job_id=job_id,
            memory_bytes=process.memory_bytes,
        )

    def _started_at(self, stat: str) -> int | None:
        """Start in epoch seconds: field 22 of proc_pid_stat(5), counted from the boot."""
        # The second field is the program's name in parentheses, and may hold any byte.
        fields = stat.rpartition(")")[2].split()
        boot = re.search(r"^btime (\d+)$", _text(self._proc / "stat"), re.MULTILINE)
        if len(fields) < 20 or not fields[19].isdecimal() or boot is None:
            return None
        return int(boot[1]) + int(fields[19]) // self._ticks_per_second

    def _job_id_of(self, job_path: str) -> int | None:
        """The job of a folder named by SLUID: its slurmstepd carries the id in its title.

        Each step's slurmstepd stays in ``step_*/slurm`` of the job's folder, where only root
        can put a process.
        """
        folder = self._cgroup_root / job_path.lstrip("/")
        for procs in sorted(folder.glob("step_*/slurm/cgroup.procs")):
            for pid in _text(procs).split():
                title = _STEPD_TITLE.match(_text(self._proc / pid / "cmdline"))
                if title is not None:
                    return int(title[1])
        return None


def _text(path: Path) -> str:
    """The file's text; empty when the process is gone or /proc hides it."""
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _uid(status: str) -> int | None:
    match = re.search(r"^Uid:\s+(\d+)", status, re.MULTILINE)
    return int(match[1]) if match else None
