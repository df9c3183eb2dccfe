"""What a source holds: its files, folders and links, found in parallel, and their identity."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from slurmwrap.errors import NotFoundError, StagingError
from slurmwrap.staging.crew import work_through

FOLDER = "d"
FILE = "f"
LINK = "l"

_NAMED_AT_MOST = 5
_CHUNK = 64
# Set-uid, set-gid and sticky bits mean nothing in a private copy.
_KEPT_BITS = 0o777
_SPECIAL_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISCHR, "a character device"),
)


class Entry(NamedTuple):
    """One thing of a source. Paths are bytes: names need not be text."""

    path: bytes
    """Relative to the source; empty for the source itself."""
    kind: str
    mode: int
    """Permission bits."""
    size: int
    """Bytes of a file; 0 otherwise."""
    mtime_ns: int
    target: bytes = b""
    """Where a link points."""
    source: bytes = b""
    """What to read, where a link out of the tree leads to or above it."""
    inode: tuple[int, int] | None = None
    """Device and inode of a file with several names."""


@dataclass(frozen=True)
class Manifest:
    """Everything a source held at one moment, in the order of the paths."""

    root: bytes
    """The source's real path."""
    entries: tuple[Entry, ...]

    @property
    def key(self) -> str:
        """Content identity: equal when nothing that a reader could notice has changed."""
        digest = hashlib.blake2b(self.root + b"\0\0", digest_size=16)
        for entry in self.entries:
            # A folder's own size and time change with every temporary file; its names are here.
            size, mtime_ns = (0, 0) if entry.kind == FOLDER else (entry.size, entry.mtime_ns)
            digest.update(
                b"%s\0%s\0%o %d %d\0%s\0"
                % (entry.path, entry.kind.encode(), entry.mode, size, mtime_ns, entry.target)
            )
        return digest.hexdigest()

    @property
    def is_single_file(self) -> bool:
        return self.entries[0].kind == FILE and not self.entries[0].path

    @property
    def files(self) -> int:
        return sum(entry.kind == FILE for entry in self.entries)

    @property
    def total_bytes(self) -> int:
        return sum(entry.size for entry in self.entries if entry.kind == FILE)

    def source_of(self, entry: Entry) -> bytes:
        """The path to read for an entry."""
        if entry.source:
            return entry.source
        return os.path.join(self.root, entry.path) if entry.path else self.root


def shown(path: bytes) -> str:
    """A path for a message: on one line and printable, whatever bytes it has."""
    text = path.decode("utf-8", errors="backslashreplace")
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def name_some(problems: list[str]) -> str:
    """The first problems in words, and how many more there are."""
    ordered = sorted(problems)
    text = "; ".join(ordered[:_NAMED_AT_MOST])
    rest = len(ordered) - _NAMED_AT_MOST
    return f"{text}; and {rest} more" if rest > 0 else text


def scan_source(
    source: bytes, *, workers: int, is_cancelled: Callable[[], bool] = lambda: False
) -> Manifest:
    """What a file or folder holds now.

    A link that stays inside the tree is kept; one that leads out of it is replaced by the file
    or folder it leads to; one that leads nowhere is kept as it is.

    Raises:
        NotFoundError: there is no such source.
        StagingError: something in it can't be copied: a FIFO, socket or device, a folder that
            can't be read, or a link that leads back to where it came from. All are named.
    """
    root = os.path.realpath(source)
    try:
        status = os.stat(root)
    except OSError as error:
        raise NotFoundError(
            f"can't stage {shown(source)}: {error.strerror}",
            hint="give the path of a file or folder that exists on this node",
        ) from error
    if stat.S_ISREG(status.st_mode):
        return Manifest(root, (_file_entry(b"", status),))
    if not stat.S_ISDIR(status.st_mode):
        raise StagingError(
            f"can't stage {shown(source)}: it is {_kind_in_words(status.st_mode)},"
            " not a file or folder"
        )
    if root == b"/":
        raise StagingError("can't stage /: name the folder that the job reads")
    scan = _Scan(root, is_cancelled)
    scan.run(workers)
    entries = [_folder_entry(b"", status), *scan.entries]
    if scan.problems:
        raise StagingError(
            f"can't stage {shown(source)}: {name_some(scan.problems)}",
            hint="remove them from the source, or stage the folders that hold only data",
        )
    entries.sort(key=lambda entry: entry.path)
    return Manifest(root, tuple(entries))


class _Folder(NamedTuple):
    """A folder of the source."""

    path: bytes
    """Relative path in the copy."""
    real: bytes
    trees: tuple[bytes, ...]
    """Real paths of the trees it lies in: the source, then each one a link has led to."""


class _Names(tuple[bytes, ...]):
    """Names in a folder to examine; none: the folder is still to be listed."""

    folder: _Folder

    def __new__(cls, folder: _Folder, names: Iterable[bytes] = ()) -> _Names:
        made = super().__new__(cls, names)
        made.folder = folder
        return made


class _Scan:
    """One walk over a tree by several threads: stat calls of a slow source overlap."""

    def __init__(self, root: bytes, is_cancelled: Callable[[], bool]) -> None:
        self._root = root
        self._is_cancelled = is_cancelled
        self._lock = threading.Lock()
        self.problems: list[str] = []
        self.entries: list[Entry] = []

    def run(self, workers: int) -> None:
        first = _Names(_Folder(b"", self._root, (self._root,)))
        work_through([first], self._visit, workers=workers)

    def _visit(self, names: _Names, should_stop: Callable[[], bool]) -> Iterable[_Names]:
        if self._is_cancelled():
            raise StagingError("staging was interrupted while it read the source")
        return self._examine(names.folder, names) if names else self._list(names.folder)

    def _list(self, folder: _Folder) -> list[_Names]:
        try:
            names = os.listdir(folder.real)
        except OSError as error:
            self._note(folder.path, f"can't be listed ({error.strerror})")
            return []
        return [_Names(folder, names[at : at + _CHUNK]) for at in range(0, len(names), _CHUNK)]

    def _examine(self, folder: _Folder, names: Iterable[bytes]) -> list[_Names]:
        entries: list[Entry] = []
        folders: list[_Names] = []
        followed = len(folder.trees) > 1
        for name in names:
            path = folder.path + b"/" + name if folder.path else name
            real = folder.real + b"/" + name
            try:
                status = os.lstat(real)
            except OSError as error:
                self._note(path, f"can't be read ({error.strerror})")
                continue
            mode = status.st_mode
            if stat.S_ISREG(mode):
                entries.append(_file_entry(path, status, real if followed else b""))
            elif stat.S_ISDIR(mode):
                entries.append(_folder_entry(path, status, real if followed else b""))
                folders.append(_Names(_Folder(path, real, folder.trees)))
            elif stat.S_ISLNK(mode):
                self._examine_link(folder, path, real, entries, folders)
            else:
                self._note(path, f"is {_kind_in_words(mode)}")
        with self._lock:
            self.entries += entries
        return folders

    def _examine_link(
        self,
        folder: _Folder,
        path: bytes,
        link: bytes,
        entries: list[Entry],
        folders: list[_Names],
    ) -> None:
        try:
            target = os.readlink(link)
            status = os.stat(link)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR) and os.path.islink(link):
                entries.append(_link_entry(path, target))
            else:
                self._note(path, f"can't be followed ({error.strerror})")
            return
        real = os.path.realpath(link)
        tree = folder.trees[-1]
        if _is_within(real, tree):
            entries.append(_link_entry(path, _inner_target(tree, link, target, real)))
        elif stat.S_ISREG(status.st_mode):
            entries.append(_file_entry(path, status, real))
        elif not stat.S_ISDIR(status.st_mode):
            self._note(path, f"leads to {_kind_in_words(status.st_mode)}")
        elif any(_is_within(known, real) or _is_within(real, known) for known in folder.trees):
            self._note(path, f"leads back to {shown(real)}, which it is part of")
        else:
            entries.append(_folder_entry(path, status, real))
            folders.append(_Names(_Folder(path, real, (*folder.trees, real))))

    def _note(self, path: bytes, what: str) -> None:
        with self._lock:
            self.problems.append(f"{shown(path) or '.'} {what}")


def _is_within(path: bytes, tree: bytes) -> bool:
    return path == tree or path.startswith(tree.rstrip(b"/") + b"/")


def _inner_target(tree: bytes, link: bytes, target: bytes, real: bytes) -> bytes:
    """The text of a kept link: its own where that works in a copy too, else a relative one."""
    folder = os.path.dirname(link)
    if not target.startswith(b"/"):
        lexical = os.path.normpath(os.path.join(folder, target))
        if _is_within(lexical, tree) and os.path.realpath(lexical) == real:
            return target
    return os.path.relpath(real, folder)


def _file_entry(path: bytes, status: os.stat_result, source: bytes = b"") -> Entry:
    return Entry(
        path,
        FILE,
        # The copy belongs to the reader, who may have read the source by its group.
        stat.S_IMODE(status.st_mode) & _KEPT_BITS | stat.S_IRUSR,
        status.st_size,
        status.st_mtime_ns,
        source=source,
        inode=(status.st_dev, status.st_ino) if status.st_nlink > 1 else None,
    )


def _folder_entry(path: bytes, status: os.stat_result, source: bytes = b"") -> Entry:
    mode = stat.S_IMODE(status.st_mode) & _KEPT_BITS | stat.S_IRUSR | stat.S_IXUSR
    return Entry(path, FOLDER, mode, 0, status.st_mtime_ns, source=source)


def _link_entry(path: bytes, target: bytes) -> Entry:
    return Entry(path, LINK, 0, 0, 0, target=target)


def _kind_in_words(mode: int) -> str:
    for is_kind, words in _SPECIAL_KINDS:
        if is_kind(mode):
            return words
    return "of no kind that can be copied"
