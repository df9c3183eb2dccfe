"""Room on the node's file system: measured, reserved before a copy, and made by eviction."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import threading
from dataclasses import dataclass

from slurmwrap.errors import NoRoomError
from slurmwrap.staging.cache import NodeCache
from slurmwrap.staging.leases import LeaseCheck
from slurmwrap.staging.manifest import Manifest, shown
from slurmwrap.staging.treecopy import remove_tree
from slurmwrap.units import format_size

_SMALLEST_STEP_BYTES = 1024 * 1024
_LARGEST_STEP_BYTES = 64 * 1024 * 1024
# For the record, leases and folders of the cache itself.
_OWN_BLOCKS = 16
_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV})


@dataclass(frozen=True)
class Amount:
    """Bytes and inodes on a file system."""

    size_bytes: int
    inodes: int

    def covers(self, other: Amount) -> bool:
        return self.size_bytes >= other.size_bytes and self.inodes >= other.inodes

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.size_bytes + other.size_bytes, self.inodes + other.inodes)


@dataclass(frozen=True)
class _Candidate:
    """Something of the cache that may be removed."""

    folder: bytes
    amount: Amount


class Reservation:
    """Room that is really taken on the file system, and given back as the copy needs it.

    The room is a file with allocated blocks beside the copy, so that no other program can use
    it meanwhile, whoever runs it; only the step that is given back ahead is open to all. Where
    the file system can't allocate without writing, only the check before the copy protects it.
    """

    def __init__(self, path: bytes, size_bytes: int, *, block_bytes: int) -> None:
        self._path = path
        self._left = size_bytes
        self._block = block_bytes
        self._step = step_bytes(size_bytes)
        self._given_back = 0
        """Room given back that is not yet filled."""
        self._lock = threading.Lock()
        self._descriptor: int | None = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            _allocate(self._descriptor, size_bytes)
        except OSError:
            self.close()
            raise

    def spend(self, size_bytes: int) -> None:
        """So many bytes are about to be written. Safe in several threads."""
        with self._lock:
            self._given_back -= -(-size_bytes // self._block) * self._block
            if self._given_back < 0 and self._descriptor is not None:
                more = max(self._step, -self._given_back)
                self._left = max(0, self._left - more)
                self._given_back += more
                os.ftruncate(self._descriptor, self._left)

    def close(self) -> None:
        """Give back what is left."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                with contextlib.suppress(FileNotFoundError):  # its whole folder was removed
                    os.unlink(self._path)
                self._descriptor = None


class Room:
    """The room for copies in one cache. Its methods need the cache's lock to be held.

    Args:
        headroom: share of the file system that stays free.
    """

    def __init__(self, cache: NodeCache, *, headroom: float, leases: LeaseCheck) -> None:
        self._cache = cache
        self._headroom = headroom
        self._leases = leases
        self._block = os.statvfs(cache.folder).f_frsize

    def reserve(self, key: str, manifest: Manifest) -> Reservation:
        """Take room for what the key's partial copy still lacks, evicting if need be.

        Raises:
            NoRoomError: even without every copy that nobody uses there is too little; in that
                case nothing was removed.
        """
        needed = self._still_needed(key, manifest)
        self._drop_abandoned_reservations(key)
        if not self._available().covers(needed):
            self._evict_for(needed, key, manifest)
        path = os.path.join(self._cache.partial(key), b"room")
        try:
            reservation = Reservation(path, needed.size_bytes, block_bytes=self._block)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self._refusal(needed, manifest, Amount(0, 0), set()) from error
            raise
        folders = len(manifest.entries) - manifest.files
        reservation.spend(folders * self._block)
        return reservation

    def _still_needed(self, key: str, manifest: Manifest) -> Amount:
        block = self._block
        size = sum(
            -(-entry.size // block) * block if entry.size else 0 for entry in manifest.entries
        )
        folders = len(manifest.entries) - manifest.files
        there = _measure(os.path.join(self._cache.partial(key), b"data"))
        return Amount(
            max(0, size + folders * block - there.size_bytes) + _OWN_BLOCKS * block,
            max(0, len(manifest.entries) - there.inodes) + _OWN_BLOCKS,
        )

    def _available(self) -> Amount:
        system = os.statvfs(self._cache.folder)
        kept = int(system.f_blocks * system.f_frsize * self._headroom)
        # A file system without a fixed number of inodes says that it has none at all.
        inodes = system.f_favail if system.f_files else 1 << 62
        return Amount(system.f_bavail * system.f_frsize - kept, inodes)

    def _evict_for(self, needed: Amount, key: str, manifest: Manifest) -> None:
        available = self._available()
        evictable, holders = self._candidates(key)
        chosen: list[_Candidate] = []
        expected = available
        for candidate in evictable:
            if expected.covers(needed):
                break
            chosen.append(candidate)
            expected += candidate.amount
        if not expected.covers(needed):
            freeable = Amount(
                expected.size_bytes - available.size_bytes, expected.inodes - available.inodes
            )
            raise self._refusal(needed, manifest, freeable, holders)
        for candidate in chosen:
            remove_tree(candidate.folder)
        if not self._available().covers(needed):
            raise self._refusal(needed, manifest, Amount(0, 0), holders)

    def _candidates(self, key: str) -> tuple[list[_Candidate], set[str]]:
        """What nobody uses, first what is of no use; and who uses the rest."""
        holders: set[str] = set()
        useless = [
            self._cache.partial(other)
            for other in self._cache.partial_keys()
            if other != key and not self._cache.is_being_copied(other)
        ]
        useless += self._cache.unreadable_entries()
        entries = self._cache.list_entries()
        useless += [e.folder for e in entries if e.record.boot_id != self._cache.boot_id]
        used = [e.folder for e in entries if e.record.boot_id == self._cache.boot_id]
        free: list[_Candidate] = []
        for folder in [*useless, *used]:
            live = self._leases.live_holders(folder)
            holders.update(live)
            if not live:
                free.append(_Candidate(folder, _measure(folder)))
        return free, holders

    def _drop_abandoned_reservations(self, key: str) -> None:
        for other in self._cache.partial_keys():
            if other != key and not self._cache.is_being_copied(other):
                path = os.path.join(self._cache.partial(other), b"room")
                if os.path.lexists(path):
                    os.unlink(path)

    def _refusal(
        self, needed: Amount, manifest: Manifest, freeable: Amount, holders: set[str]
    ) -> NoRoomError:
        system = os.statvfs(self._cache.folder)
        free = system.f_bavail * system.f_frsize
        kept = int(system.f_blocks * system.f_frsize * self._headroom)
        where = f"on {self._cache.node} in {shown(self._cache.folder)}"
        message = (
            f"no room for {shown(manifest.root)} {where}: it needs"
            f" {format_size(needed.size_bytes)}, free are {format_size(free)}, of which"
            f" {format_size(kept)} ({self._headroom:.0%}) stay free;"
            f" removing unused copies would give {format_size(freeable.size_bytes)}"
        )
        if system.f_files and needed.inodes > system.f_favail:
            message += f"; it needs {needed.inodes} inodes, free are {system.f_favail}"
        if holders:
            message += f"; in use by {', '.join(sorted(holders))}"
        return NoRoomError(
            message, hint="stage less, wait for the other jobs, or use a node with a larger disk"
        )


def step_bytes(size_bytes: int) -> int:
    """How much of a reservation is given back at once."""
    return min(_LARGEST_STEP_BYTES, max(_SMALLEST_STEP_BYTES, size_bytes // 32))


def _measure(folder: bytes) -> Amount:
    """What a folder takes, as the file system counts it."""
    size = 0
    inodes = 0
    pending = [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as found:
                for item in found:
                    status = item.stat(follow_symlinks=False)
                    size += status.st_blocks * 512
                    inodes += 1
                    if item.is_dir(follow_symlinks=False):
                        pending.append(item.path)
        except FileNotFoundError:
            continue
    return Amount(size, inodes)


def _allocate(descriptor: int, size_bytes: int) -> None:
    """Take blocks without writing them (fallocate(2)).

    Not os.posix_fallocate: where the file system can't, that one writes zeros instead.
    """
    if size_bytes == 0:
        return
    library = ctypes.CDLL(None, use_errno=True)
    result = library.fallocate(
        ctypes.c_int(descriptor), ctypes.c_int(0), ctypes.c_int64(0), ctypes.c_int64(size_bytes)
    )
    if result != 0:
        code = ctypes.get_errno()
        if code not in _UNSUPPORTED:
            raise OSError(code, os.strerror(code))
