"""Staging one source to this node: reuse the copy that is there, or make one and publish it."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from slurmwrap.errors import NoRoomError, StagingError
from slurmwrap.staging.cache import CacheEntry, NodeCache, Record
from slurmwrap.staging.filecopy import CancelledError, FileCopier, SourceChangedError
from slurmwrap.staging.leases import Holder, LeaseCheck, LiveJobs, drop_lease, take_lease
from slurmwrap.staging.manifest import Manifest, name_some, scan_source, shown
from slurmwrap.staging.room import Room
from slurmwrap.staging.treecopy import check_source, copy_tree, find_differences, remove_tree
from slurmwrap.units import format_size

_ATTEMPTS = 2


@dataclass(frozen=True)
class StagedData:
    """A source that lies on this node now, and how it came there."""

    source: bytes
    path: bytes
    key: str
    node: str
    is_hit: bool
    """Nothing was copied: the node had it."""
    files: int
    total_bytes: int
    resumed_files: int
    """Files that an interrupted copy had left whole."""
    seconds: float

    @property
    def bytes_per_second(self) -> float | None:
        """Rate of a copy; None when nothing was copied."""
        return None if self.is_hit or self.seconds <= 0 else self.total_bytes / self.seconds

    def describe(self) -> str:
        """One line for people."""
        files = "1 file" if self.files == 1 else f"{self.files} files"
        what = f"{files}, {format_size(self.total_bytes)}"
        line = f"{self.node}: {shown(self.source)}: {what}, "
        if self.is_hit:
            return line + f"already on the node (checked in {self.seconds:.1f} s)"
        line += f"copied in {self.seconds:.1f} s"
        if self.bytes_per_second is not None:
            line += f" ({format_size(int(self.bytes_per_second))}/s)"
        if self.resumed_files:
            line += f", {self.resumed_files} files were there from an interrupted copy"
        return line

    def to_event(self) -> str:
        """One line of JSON for programs; bytes of a path that are no UTF-8 are surrogates."""
        return json.dumps(
            {
                "event": "stage-in",
                "node": self.node,
                "source": os.fsdecode(self.source),
                "path": os.fsdecode(self.path),
                "key": self.key,
                "hit": self.is_hit,
                "files": self.files,
                "bytes": self.total_bytes,
                "resumed_files": self.resumed_files,
                "seconds": round(self.seconds, 3),
                "bytes_per_second": self.bytes_per_second and round(self.bytes_per_second),
                "detail": self.describe(),
            }
        )


class Stager:
    """Stages sources into one cache.

    Args:
        workers: threads that scan and copy.
        headroom: share of the file system that stays free.
        holder: the job or process that will use the copies.
        live_jobs: asked only when room is needed.
        talk: told what takes long, in words.
    """

    def __init__(
        self,
        cache: NodeCache,
        *,
        workers: int,
        headroom: float,
        holder: Holder,
        live_jobs: LiveJobs,
        talk: Callable[[str], None] = lambda line: None,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._cache = cache
        self._workers = workers
        self._headroom = headroom
        self._holder = holder
        self._live_jobs = live_jobs
        self._talk = talk
        self._is_cancelled = is_cancelled

    def stage_in(self, source: bytes) -> StagedData:
        """Make sure that the node has a copy of the source as it is now.

        Raises:
            NotFoundError: there is no such source.
            NoRoomError: too little room, with the numbers.
            StagingError: it holds what can't be copied, it changed twice while it was copied,
                or staging was told to stop.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._stage_once(source)
            except SourceChangedError as error:
                changed = str(error)
                if attempt < _ATTEMPTS:
                    self._talk(f"{shown(source)} changed while it was copied; once more")
            except CancelledError as error:
                raise StagingError(
                    f"staging of {shown(source)} was interrupted",
                    hint="the next run goes on from there",
                ) from error
        raise StagingError(
            f"{shown(source)} keeps changing while it is copied: {changed}",
            hint="stage it when nothing writes to it any more, or stage a copy of it",
        )

    def _stage_once(self, source: bytes) -> StagedData:
        started = time.monotonic()
        manifest = scan_source(source, workers=self._workers, is_cancelled=self._is_cancelled)
        if (self._cache.folder + b"/").startswith(manifest.root + b"/"):
            raise StagingError(
                f"can't stage {shown(manifest.root)}: the cache {shown(self._cache.folder)}"
                " lies in it"
            )
        key = manifest.key
        is_hit, resumed_files = True, 0
        entry, name = self._find(manifest, key)
        if entry is None:
            with self._cache.lock_key(
                key,
                on_wait=lambda: self._talk(f"{shown(source)}: another job copies it; waiting"),
                is_cancelled=self._is_cancelled,
            ):
                entry, name = self._find(manifest, key)
                if entry is None:
                    is_hit = False
                    entry, resumed_files = self._copy(manifest, key, name)
        return StagedData(
            source=source,
            path=entry.data,
            key=key,
            node=self._cache.node,
            is_hit=is_hit,
            files=manifest.files,
            total_bytes=manifest.total_bytes,
            resumed_files=resumed_files,
            seconds=time.monotonic() - started,
        )

    def _find(self, manifest: Manifest, key: str) -> tuple[CacheEntry | None, str]:
        """A good copy, leased to us, or the name under which one can be published.

        A copy that a job has changed is removed, unless another job still uses it: then it
        stays for that job, and the next good one gets a number.
        """
        leases = LeaseCheck(self._live_jobs)
        number = 1
        while True:
            name = key if number == 1 else f"{key}-{number}"
            with self._cache.lock():
                entry = self._cache.read_entry(name)
                usable = entry is not None and entry.record.boot_id == self._cache.boot_id
                if not usable and self._clear(name, leases):
                    return None, name
                was_ours = False
                if usable and entry is not None:
                    was_ours = take_lease(entry.folder, self._holder)
            if usable and entry is not None:
                differences = find_differences(manifest, entry.data, workers=self._workers)
                with self._cache.lock():
                    if not differences:
                        self._cache.note_use(entry)
                        return entry, name
                    if not was_ours:
                        drop_lease(entry.folder, self._holder)
                    self._talk(
                        f"the copy on {self._cache.node} is not used, since a job changed it:"
                        f" {name_some(differences)}"
                    )
                    if self._clear(name, leases):
                        return None, name
            number += 1

    def _clear(self, name: str, leases: LeaseCheck) -> bool:
        """Remove an entry that is no good; False when somebody still uses it."""
        folder = self._cache.entry_folder(name)
        if leases.live_holders(folder):
            return False
        remove_tree(folder)
        return True

    def _copy(self, manifest: Manifest, key: str, name: str) -> tuple[CacheEntry, int]:
        """Copy, check and publish; the key's lock is held."""
        partial = self._cache.prepare_partial(key)
        local_name = _local_name(manifest.root)
        room = Room(self._cache, headroom=self._headroom, leases=LeaseCheck(self._live_jobs))
        with self._cache.lock():
            reservation = room.reserve(key, manifest)
        try:
            copier = FileCopier(announce=reservation.spend, is_cancelled=self._is_cancelled)
            report = copy_tree(
                manifest,
                os.path.join(partial, b"data", local_name),
                workers=self._workers,
                copier=copier,
                is_cancelled=self._is_cancelled,
            )
            check_source(manifest, workers=self._workers)
            record = Record(
                source=os.fsdecode(manifest.root),
                name=os.fsdecode(local_name),
                files=manifest.files,
                total_bytes=manifest.total_bytes,
                boot_id=self._cache.boot_id,
            )
            reservation.close()  # what is left is for the cache's own files
            self._cache.write_record(key, record)
            take_lease(partial, self._holder)
        except SourceChangedError:
            remove_tree(partial)
            raise
        except OSError as error:
            reservation.close()  # or its room would be missing in the numbers
            raise self._explain(error, manifest, partial) from error
        finally:
            reservation.close()
        with self._cache.lock():
            return self._cache.publish(key, name), report.resumed_files

    def _explain(self, error: OSError, manifest: Manifest, partial: bytes) -> StagingError:
        where = f"{self._cache.node}: can't copy {shown(manifest.root)} to {shown(partial)}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            # What is there would only take room from whoever filled the disk.
            remove_tree(partial)
            system = os.statvfs(self._cache.folder)
            return NoRoomError(
                f"{where}: {error.strerror}; free are"
                f" {format_size(system.f_bavail * system.f_frsize)} of"
                f" {format_size(system.f_blocks * system.f_frsize)}",
                hint="something else filled the disk during the copy, or a quota is reached",
            )
        return StagingError(f"{where}: {error.strerror}")


def _local_name(root: bytes) -> bytes:
    """The copy's name: the source's own, without what would break a line."""
    return bytes(
        ord("_") if letter < 0x20 or letter == 0x7F else letter for letter in os.path.basename(root)
    )
