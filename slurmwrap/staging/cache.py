"""A user's cache on one node: its folder, opened safely, its locks and its entries.

    USER/cache.json               the mark: this folder is ours
    USER/lock                     held for moments: room, leases, publishing, eviction
    USER/locks/KEY                held as long as KEY is being copied
    USER/partial/KEY/             a copy that is not whole yet
    USER/entries/KEY[-N]/data/NAME   a published copy
    USER/entries/KEY[-N]/record.json what it is a copy of; its time is that of the last use
    USER/entries/KEY[-N]/leases/  who uses it

Everything below the user's folder can be changed by the user and root alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from slurmwrap.errors import StagingError
from slurmwrap.staging.manifest import shown
from slurmwrap.staging.treecopy import remove_tree

FORMAT = 1
_MARK = "cache.json"
_LOCK_POLL_SECONDS = 0.1
_MOST_LINKS = 40
_BOOT_ID = b"/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class Record:
    """What a published entry says of itself."""

    source: str
    """Real path, with surrogates for bytes that are no UTF-8."""
    name: str
    """Name of the copy under data/."""
    files: int
    total_bytes: int
    boot_id: str
    """The boot in which it was copied. After a crash of the node its files may be empty, since
    staging doesn't wait for the disk: an entry of another boot is not used."""
    format: int = FORMAT


@dataclass(frozen=True)
class CacheEntry:
    """A published copy."""

    folder: bytes
    record: Record
    used_at: float

    @property
    def data(self) -> bytes:
        return os.path.join(self.folder, b"data", os.fsencode(self.record.name))


class NodeCache:
    """The cache of the calling user under a folder of the node.

    Args:
        place: the site's folder. With ``{user}`` in it, it is this user's alone; otherwise the
            user's folder is made below it.

    Raises:
        StagingError: somebody else could change what is in it.
    """

    def __init__(self, place: str, *, node: str) -> None:
        user = _user_name()
        named = place.replace("{node}", node).replace("{user}", user)
        if not os.path.isabs(named) or "\n" in named:
            raise StagingError(
                f"the cache {named!r} must be an absolute path on one line",
                hint="set staging.cache_dir in slurmwrap.toml, or give --cache",
            )
        folder = named if "{user}" in place else os.path.join(named, user)
        self.folder = _open_private_folder(os.fsencode(folder), shared="{user}" not in place)
        self.node = node
        self.boot_id = _read_boot_id()
        for name in (b"locks", b"partial", b"entries"):
            os.makedirs(self._path(name), mode=0o700, exist_ok=True)
        self._write_mark()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the whole cache for a moment; never while copying."""
        with _locked(self._path(b"lock")):
            yield

    @contextmanager
    def lock_key(
        self,
        key: str,
        *,
        on_wait: Callable[[], None] = lambda: None,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[None]:
        """Hold the right to copy one key, waiting for whoever copies it now.

        Raises:
            StagingError: told to stop while it waited.
        """
        descriptor = _open_lock(self._lock_file(key))
        try:
            waited = False
            pause = threading.Event()
            while not _try_lock(descriptor):
                if not waited:
                    on_wait()
                    waited = True
                if is_cancelled():
                    raise StagingError("staging was interrupted while it waited for another job")
                pause.wait(_LOCK_POLL_SECONDS)
            yield
        finally:
            os.close(descriptor)

    def is_being_copied(self, key: str) -> bool:
        """Whether some process holds the key's lock now."""
        descriptor = _open_lock(self._lock_file(key))
        try:
            return not _try_lock(descriptor)
        finally:
            os.close(descriptor)

    def partial(self, key: str) -> bytes:
        """Where the key's unfinished copy lies."""
        return self._path(b"partial", key.encode())

    def prepare_partial(self, key: str) -> bytes:
        """The folder for the key's unfinished copy, with what an interrupted one left in it.

        What another boot left is removed: its files may be shorter than they say.
        """
        folder = self.partial(key)
        mark = os.path.join(folder, b"boot")
        if _read_text(mark) != self.boot_id:
            remove_tree(folder)
            os.mkdir(folder, 0o700)
            with open(mark, "w", encoding="ascii") as file:
                file.write(self.boot_id)
        os.makedirs(os.path.join(folder, b"data"), mode=0o700, exist_ok=True)
        return folder

    def partial_keys(self) -> list[str]:
        """Keys of which there is an unfinished copy."""
        return sorted(os.fsdecode(name) for name in os.listdir(self._path(b"partial")))

    def entry_folder(self, name: str) -> bytes:
        """Where an entry lies: its name is a key, or a key with a number."""
        return self._path(b"entries", name.encode())

    def read_entry(self, name: str) -> CacheEntry | None:
        """A published copy by its name."""
        return self._read(self.entry_folder(name))

    def list_entries(self) -> list[CacheEntry]:
        """All published copies that can be read, least recently used first."""
        parent = self._path(b"entries")
        found = (self._read(os.path.join(parent, name)) for name in os.listdir(parent))
        return sorted((entry for entry in found if entry), key=lambda entry: entry.used_at)

    def unreadable_entries(self) -> list[bytes]:
        """Folders where entries should be that are none: left over, or of another format."""
        parent = self._path(b"entries")
        folders = [os.path.join(parent, name) for name in sorted(os.listdir(parent))]
        return [folder for folder in folders if self._read(folder) is None]

    def write_record(self, key: str, record: Record) -> None:
        """Say in the key's whole partial copy what it is a copy of."""
        path = os.path.join(self.partial(key), b"record.json")
        with open(path, "w", encoding="ascii") as file:
            json.dump(asdict(record), file)

    def publish(self, key: str, name: str) -> CacheEntry:
        """Turn the key's partial copy into the entry ``name``. The lock must be held."""
        folder = self.entry_folder(name)
        os.rename(self.partial(key), folder)
        entry = self._read(folder)
        assert entry is not None, "its record was written before"
        return entry

    def note_use(self, entry: CacheEntry) -> None:
        """Make an entry the most recently used one."""
        os.utime(os.path.join(entry.folder, b"record.json"))

    def _read(self, folder: bytes) -> CacheEntry | None:
        try:
            status = os.lstat(folder)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (os.getuid(), 0):
                return None
            path = os.path.join(folder, b"record.json")
            with open(path, encoding="ascii") as file:
                record = Record(**json.load(file))
                used_at = os.fstat(file.fileno()).st_mtime
        except (OSError, ValueError, TypeError):
            return None
        return CacheEntry(folder, record, used_at) if record.format == FORMAT else None

    def _write_mark(self) -> None:
        mark = self._path(_MARK.encode())
        if os.path.lexists(mark):
            return
        with open(mark, "w", encoding="ascii") as file:
            json.dump({"slurmwrap": "cache", "format": FORMAT, "node": self.node}, file)

    def _lock_file(self, key: str) -> bytes:
        return self._path(b"locks", key.encode())

    def _path(self, *names: bytes) -> bytes:
        return os.path.join(self.folder, *names)


def _open_private_folder(folder: bytes, *, shared: bool) -> bytes:
    """The real path of the user's own folder, made if need be.

    Raises:
        StagingError: it, or a folder above it, is in another user's power.
    """
    above, name = os.path.split(folder.rstrip(b"/"))
    above = _resolve_links(above)
    _make_parents(above, shared=shared)
    _check_parents(above)
    real = os.path.join(above, name)
    try:
        os.mkdir(real, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise StagingError(
            f"can't make the cache folder {shown(real)}: {error.strerror}",
            hint="an administrator makes the folder above it with mode 1777,"
            " or sets staging.cache_dir to another one",
        ) from error
    status = os.lstat(real)
    if stat.S_ISLNK(status.st_mode) or not stat.S_ISDIR(status.st_mode):
        raise StagingError(f"the cache {shown(real)} is not a folder; it is not used")
    if status.st_uid != os.getuid():
        raise StagingError(
            f"the cache {shown(real)} belongs to uid {status.st_uid},"
            f" not to uid {os.getuid()}; it is not used",
            hint="ask an administrator to remove it",
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise StagingError(
            f"the cache {shown(real)} is open to others"
            f" (mode {stat.S_IMODE(status.st_mode):04o}, expected 0700); it is not used",
            hint=f"remove it, or if you trust what is in it: chmod 0700 {shown(real)}",
        )
    return real


def _resolve_links(path: bytes) -> bytes:
    """The path without links, up to what is not there yet.

    Raises:
        StagingError: a link on the way is another user's: in /tmp, anybody can make one that leads
            into the folders of the one who will follow it.
    """
    resolved = b"/"
    pending = path.split(b"/")[::-1]
    links = 0
    while pending:
        name = pending.pop()
        if name == b"..":
            resolved = os.path.dirname(resolved)
        elif name not in (b"", b"."):
            here = os.path.join(resolved, name)
            try:
                status = os.lstat(here)
            except OSError:
                return os.path.join(here, *pending[::-1])
            if not stat.S_ISLNK(status.st_mode):
                resolved = here
                continue
            links += 1
            if status.st_uid not in (0, os.getuid()) or links > _MOST_LINKS:
                raise StagingError(
                    f"the cache can't lie behind the link {shown(here)}: it belongs to uid"
                    f" {status.st_uid}, or leads round in a circle",
                    hint="name the folder itself, or ask an administrator to remove the link",
                )
            target = os.readlink(here)
            resolved = b"/" if target.startswith(b"/") else resolved
            pending += target.split(b"/")[::-1]
    return resolved


def _make_parents(folder: bytes, *, shared: bool) -> None:
    if os.path.isdir(folder):
        return
    try:
        os.makedirs(folder, mode=0o755, exist_ok=True)
        if shared and os.getuid() == 0:
            os.chmod(folder, 0o1777)  # every user makes a folder of their own in it
    except OSError as error:
        raise StagingError(
            f"can't make the cache folder {shown(folder)}: {error.strerror}",
            hint="an administrator makes it with mode 1777,"
            " or sets staging.cache_dir to another one",
        ) from error


def _check_parents(folder: bytes) -> None:
    """Refuse a path that others could rename under our feet. ``folder`` has no links."""
    path = folder
    while True:
        status = os.lstat(path)
        if status.st_uid not in (0, os.getuid()):
            raise StagingError(
                f"the cache can't lie in {shown(path)}: it belongs to uid {status.st_uid},"
                " who could exchange its contents",
                hint="name a folder that belongs to root or to you",
            )
        if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
            raise StagingError(
                f"the cache can't lie in {shown(path)}: others can rename what is in it"
                f" (mode {stat.S_IMODE(status.st_mode):04o})",
                hint="an administrator sets its sticky bit: chmod +t",
            )
        if path == b"/":
            return
        path = os.path.dirname(path)


@contextmanager
def _locked(path: bytes) -> Iterator[None]:
    descriptor = _open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open_lock(path: bytes) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _read_boot_id() -> str:
    return _read_text(_BOOT_ID) or "unknown"


def _read_text(path: bytes) -> str:
    """A small file's text without its line end; empty when there is none."""
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
