"""Copying a whole manifest by several threads, and checking both sides of it."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from slurmwrap.errors import StagingError
from slurmwrap.staging.crew import work_through
from slurmwrap.staging.filecopy import CancelledError, FileCopier, SourceChangedError
from slurmwrap.staging.manifest import FILE, FOLDER, LINK, Entry, Manifest, name_some, shown

_BATCH = 16
_LARGE_BYTES = 4 * 1024 * 1024
_BIG_BYTES = 64 * 1024 * 1024


@dataclass
class CopyReport:
    """What a copy did."""

    resumed_files: int = 0
    """Whole files that an interrupted copy had left."""
    problems: list[str] = field(default_factory=list)
    """Files of the source that could not be read."""


def copy_tree(
    manifest: Manifest,
    target: bytes,
    *,
    workers: int,
    copier: FileCopier,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> CopyReport:
    """Make ``target`` a copy of the manifest's source, resuming what is there.

    Raises:
        SourceChangedError: the source is no longer what the manifest says.
        CancelledError: told to stop.
        StagingError: files of the source can't be read; they are named.
        OSError: the target can't be written.
    """
    folders = [entry for entry in manifest.entries if entry.kind == FOLDER]
    copier.expects_copies = os.path.lexists(target)
    for entry in folders:
        _make_folder(_join(target, entry.path))
    first_names, other_names = _split_hard_links(manifest.entries)
    # The biggest first, so that no thread is left alone with one at the end.
    big = sorted((e for e in first_names if e.size >= _BIG_BYTES), key=lambda e: -e.size)
    small = [entry for entry in first_names if entry.size < _BIG_BYTES]
    report = _copy_files(manifest, target, [*big, *small], workers, copier, is_cancelled)
    if report.problems:
        raise StagingError(
            f"can't stage {shown(manifest.root)}: {name_some(report.problems)}",
            hint="make them readable, or remove them from the source",
        )
    for entry, first in other_names:
        _make_hard_link(_join(target, first.path), _join(target, entry.path))
    for entry in manifest.entries:
        if entry.kind == LINK:
            _make_link(entry.target, _join(target, entry.path))
    # Last and deepest first: a folder without write permission takes no more files.
    for entry in reversed(folders):
        path = _join(target, entry.path)
        os.chmod(path, entry.mode)
        os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))
    return report


def check_source(manifest: Manifest, *, workers: int) -> None:
    """Look at everything again after the copy.

    Raises:
        SourceChangedError: something is no longer what the manifest says, or a name was added.
    """

    def check(entry: Entry) -> str | None:
        path = manifest.source_of(entry)
        status = os.stat(path)
        same = status.st_mtime_ns == entry.mtime_ns
        if entry.kind == FILE:
            same = same and status.st_size == entry.size
        return None if same else f"{shown(path)} has changed"

    # A link can only be replaced, and a name added or removed, by changing the folder's time.
    solid = [entry for entry in manifest.entries if entry.kind != LINK]
    changed = _examine(solid, check, workers)
    if changed:
        raise SourceChangedError(name_some(changed))


def find_differences(manifest: Manifest, copy: bytes, *, workers: int) -> list[str]:
    """How a copy differs from its source as the manifest describes it; names added are ignored.

    Sizes, times, modes and links are compared, not contents.
    """

    def check(entry: Entry) -> str | None:
        status = os.lstat(_join(copy, entry.path))
        mode = status.st_mode
        if entry.kind == FOLDER:
            same = stat.S_ISDIR(mode)
        elif entry.kind == LINK:
            same = stat.S_ISLNK(mode) and os.readlink(_join(copy, entry.path)) == entry.target
        else:
            same = (
                stat.S_ISREG(mode)
                and (status.st_size, status.st_mtime_ns) == (entry.size, entry.mtime_ns)
                and stat.S_IMODE(mode) == entry.mode
            )
        return None if same else f"{shown(entry.path) or '.'} has been changed"

    return _examine(manifest.entries, check, workers)


def remove_tree(path: bytes) -> None:
    """Remove a folder or file of our own cache, also folders without write permission.

    Not by recursion: a tree may be deeper than Python's stack.
    """
    folders: list[bytes] = []
    pending = [path]
    while pending:
        found = pending.pop()
        try:
            is_folder = stat.S_ISDIR(os.lstat(found).st_mode)
        except FileNotFoundError:
            continue
        if not is_folder:
            os.unlink(found)
            continue
        os.chmod(found, 0o700)
        folders.append(found)
        with os.scandir(found) as items:
            for item in items:
                if item.is_dir(follow_symlinks=False):
                    pending.append(item.path)
                else:
                    os.unlink(item.path)
    for folder in reversed(folders):
        os.rmdir(folder)


def _examine(
    entries: Sequence[Entry], check: Callable[[Entry], str | None], workers: int
) -> list[str]:
    problems: list[str] = []

    def examine(batch: Sequence[Entry], should_stop: Callable[[], bool]) -> tuple[()]:
        for entry in batch:
            try:
                problem = check(entry)
            except OSError as error:
                problem = f"{shown(entry.path) or '.'} {(error.strerror or 'fails').lower()}"
            if problem is not None:
                problems.append(problem)
        return ()

    batches = [entries[at : at + _BATCH] for at in range(0, len(entries), _BATCH)]
    work_through(batches, examine, workers=workers)
    return problems


def _copy_files(
    manifest: Manifest,
    target: bytes,
    files: Sequence[Entry],
    workers: int,
    copier: FileCopier,
    is_cancelled: Callable[[], bool],
) -> CopyReport:
    report = CopyReport()
    lock = threading.Lock()

    def copy(batch: Sequence[Entry], should_stop: Callable[[], bool]) -> tuple[()]:
        for entry in batch:
            if should_stop():
                break
            if is_cancelled():
                raise CancelledError
            source = manifest.source_of(entry)
            try:
                copied = copier.copy(source, _join(target, entry.path), entry)
            except OSError as error:
                if error.filename != source:
                    raise
                with lock:
                    report.problems.append(f"{shown(source)} can't be copied ({error.strerror})")
            else:
                if not copied:
                    with lock:
                        report.resumed_files += 1
        return ()

    # Large files are moved by the kernel, which several threads can ask at once.
    large = sum(entry.size >= _LARGE_BYTES for entry in files)
    work_through(_share(files), copy, workers=workers, at_once=large)
    return report


def _share(files: Sequence[Entry]) -> list[Sequence[Entry]]:
    """Batches of files, of which the big ones are one each."""
    batches: list[Sequence[Entry]] = []
    at = 0
    while at < len(files):
        size = 1 if files[at].size >= _BIG_BYTES else _BATCH
        batches.append(files[at : at + size])
        at += size
    return batches


def _split_hard_links(
    entries: Iterable[Entry],
) -> tuple[list[Entry], list[tuple[Entry, Entry]]]:
    """Files to copy, and further names of files among them."""
    first: dict[tuple[int, int], Entry] = {}
    to_copy: list[Entry] = []
    to_link: list[tuple[Entry, Entry]] = []
    for entry in entries:
        if entry.kind != FILE:
            continue
        known = first.setdefault(entry.inode, entry) if entry.inode is not None else entry
        if known is entry:
            to_copy.append(entry)
        else:
            to_link.append((entry, known))
    return to_copy, to_link


def _join(folder: bytes, path: bytes) -> bytes:
    return folder + b"/" + path if path else folder


def _make_folder(path: bytes) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        os.chmod(path, 0o700)


def _make_hard_link(first: bytes, path: bytes) -> None:
    try:
        os.link(first, path, follow_symlinks=False)
    except FileExistsError:
        os.unlink(path)
        os.link(first, path, follow_symlinks=False)


def _make_link(target: bytes, path: bytes) -> None:
    try:
        os.symlink(target, path)
    except FileExistsError:
        os.unlink(path)
        os.symlink(target, path)
