"""The supervisor's own folder on the node: made with a mark, removed at the end, and cleaned up by
the user's next job where its supervisor was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from slurmwrap.runtime.identity import JobIdentity

PREFIX = "slurmwrap-"
_MARK = "slurmwrap.json"
_LONGEST_MARK_BYTES = 4096
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: what has the mark's name may be a FIFO.
_OPEN_MARK = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class _Mark:
    """Whose folder it is. The same job id may exist in another cluster that shares the host."""

    job_id: int
    cluster: str
    conf: str


class JobFolder:
    """A new folder of the caller's own, locked for as long as this process lives.

    Raises:
        OSError: it can't be made.
    """

    def __init__(self, identity: JobIdentity, conf: str) -> None:
        """``conf``: the slurm.conf that the job was given, as SLURM_CONF says; may be empty."""
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{identity.job_id or 'run'}-"))
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._lock = os.open(self.path / _MARK, flags, 0o600)
        # Told by the kernel even when we are killed, and across PID namespaces.
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        if identity.job_id is not None:
            mark = {"job_id": identity.job_id, "cluster": identity.cluster, "conf": conf}
            os.write(self._lock, json.dumps({"slurmwrap": "job-folder", **mark}).encode("ascii"))

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def clean_up(
    identity: JobIdentity, conf: str, ask_live_jobs: Callable[[], frozenset[int] | None]
) -> list[str]:
    """Remove what supervisors of the caller's ended jobs left on this node; returns their names.

    Only folders go that are the caller's own and nobody else's to write, that carry our mark for
    this cluster, that no living supervisor has locked, and whose job Slurm says is not on nodes.
    When Slurm does not answer, nothing goes.

    Args:
        ask_live_jobs: asked once, and only if there is such a folder.
    """
    parent = tempfile.gettempdir()
    removed: list[str] = []
    with contextlib.suppress(OSError), _opened(parent, os.O_RDONLY | os.O_DIRECTORY) as place:
        # Listed before Slurm is asked: a job that starts in between has no folder in the list.
        marks = {name: mark for name in _names(place) if (mark := _read_mark(place, name))}
        wanted = {
            name: mark
            for name, mark in marks.items()
            if (mark.cluster, mark.conf) == (identity.cluster, conf)
            and mark.job_id != identity.job_id
        }
        live = ask_live_jobs() if wanted else None
        for name, mark in wanted.items():
            if live is not None and mark.job_id not in live and _remove(place, name):
                removed.append(name)
    return removed


def _names(place: int) -> list[str]:
    with os.scandir(place) as found:
        return [item.name for item in found if item.name.startswith(PREFIX)]


def _read_mark(place: int, name: str) -> _Mark | None:
    """The mark of a folder that is ours alone and without a living supervisor, else None."""
    try:
        with _opened(name, _OPEN_FOLDER, place) as folder, _locked_mark(folder) as mark:
            return _parse_mark(os.pread(mark, _LONGEST_MARK_BYTES, 0))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _parse_mark(data: bytes) -> _Mark | None:
    document = json.loads(data)
    if document["slurmwrap"] != "job-folder" or type(document["job_id"]) is not int:
        return None
    return _Mark(document["job_id"], str(document["cluster"]), str(document["conf"]))


def _remove(place: int, name: str) -> bool:
    """Remove a folder, its mark last: one that is interrupted can be gone on with."""
    try:
        with _opened(name, _OPEN_FOLDER, place) as folder, _locked_mark(folder):
            with os.scandir(folder) as found:
                items = [(item.name, item.is_dir(follow_symlinks=False)) for item in found]
            for item, is_folder in items:
                if is_folder:
                    shutil.rmtree(item, dir_fd=folder)  # follows no links, also under a race
                elif item != _MARK:
                    os.unlink(item, dir_fd=folder)
            os.unlink(_MARK, dir_fd=folder)
        os.rmdir(name, dir_fd=place)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _opened(path: str, flags: int, place: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, flags, dir_fd=place)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked_mark(folder: int) -> Iterator[int]:
    """The mark of an open folder, locked.

    Raises:
        OSError: somebody else's folder, or no mark, or a living supervisor has locked it.
    """
    status = os.fstat(folder)
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError("not a folder of our own")
    with _opened(_MARK, _OPEN_MARK, folder) as mark:
        if not stat.S_ISREG(os.fstat(mark).st_mode):
            raise PermissionError("not a mark")
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield mark
