"""Opening the SQLite file, its transactions, and who may write: one process, many threads."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlite_utils import Database

from slurmwrap.errors import SchemaError, StoreError
from slurmwrap.store.schema import migrations

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_BUSY_SECONDS = 30.0
# To what the write-ahead log is cut after it was taken over: a burst does not keep the disk.
_WAL_BYTES = 64 * 1024 * 1024
# File systems on which SQLite's locks and shared memory can't be trusted (sqlite.org/wal.html:
# all processes using a WAL database must be on the same host).
_NETWORK_FILE_SYSTEMS = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "lustre",
        "gpfs",
        "beegfs",
        "ceph",
        "afs",
        "orangefs",
        "pvfs2",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.ceph",
        "fuse.juicefs",
        "fuse.s3fs",
        "fuse.rclone",
    }
)


class StoreDatabase:
    """The file and one connection per thread.

    Reading needs nothing special; every change happens inside :meth:`writing`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = threading.local()
        self._connections: list[tuple[threading.Thread, sqlite3.Connection]] = []
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, *, upgrade: bool = False) -> StoreDatabase:
        """The database at ``path``, created if it does not exist.

        Args:
            upgrade: bring an older schema up to date instead of refusing it.

        Raises:
            StoreError: a network file system, no permission, or a file that is not ours.
            SchemaError: a schema that this version does not know, or an older one.
        """
        _refuse_network_file_system(path)
        database = cls(path)
        try:
            database._prepare_schema(upgrade=upgrade)
        except sqlite3.Error as error:
            database.close()
            raise StoreError(f"can't open the database {path}: {error}") from error
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def open_existing(cls, path: Path, *, any_schema: bool = False) -> StoreDatabase:
        """The database at ``path``, which must be there.

        Args:
            any_schema: take an older schema as it is, to back it up.

        Raises:
            StoreError: there is none, or it can't be read.
            SchemaError: its schema is not this version's.
        """
        if not path.is_file():
            raise StoreError(
                f"there is no database at {path}",
                hint="slurmwrapd serve makes it; is daemon.database right?",
            )
        return cls(path) if any_schema else cls.open(path)

    @property
    def connection(self) -> sqlite3.Connection:
        """This thread's connection, in autocommit mode."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
            self._local.connection = connection
            with self._lock:
                self._close_of_the_dead()
                self._connections.append((threading.current_thread(), connection))
        return connection

    def _close_of_the_dead(self) -> None:
        """Close the connections of threads that have ended: a server's workers come and go."""
        for thread, connection in self._connections:
            if not thread.is_alive():
                connection.close()
        self._connections = [item for item in self._connections if item[0].is_alive()]

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that holds the write lock from its start, committed at the end.

        sqlite-utils' own ``atomic()`` begins deferred: two threads that read and then write
        would fail with "database is locked" instead of waiting for each other.
        """
        connection = self.connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            # A commit can fail too (disk full): left open, no later transaction could begin.
            connection.commit()
        except BaseException:
            connection.rollback()
            raise

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[sqlite3.Row]:
        """All rows of a question."""
        return self.connection.execute(sql, parameters).fetchall()

    def query_plain(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a question as plain tuples: for many rows that are read at once."""
        cursor = self.connection.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, parameters).fetchall()

    def query_one(self, sql: str, parameters: Sequence[object] = ()) -> sqlite3.Row | None:
        """The first row of a question, if any."""
        row: sqlite3.Row | None = self.connection.execute(sql, parameters).fetchone()
        return row

    def back_up(self, target: Path) -> None:
        """Write a consistent copy while others go on; the copy appears whole or not at all."""
        temporary = target.with_name(target.name + ".part")
        temporary.unlink(missing_ok=True)
        try:
            with sqlite3.connect(temporary) as copy:
                self.connection.backup(copy)
            copy.close()
            descriptor = os.open(temporary, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(target)
        except (sqlite3.Error, OSError) as error:
            temporary.unlink(missing_ok=True)
            raise StoreError(f"can't write the backup {target}: {error}") from error

    def close(self) -> None:
        """Close every thread's connection."""
        with self._lock:
            for _, connection in self._connections:
                connection.close()
            self._connections.clear()
        self._local = threading.local()

    def _prepare_schema(self, *, upgrade: bool) -> None:
        self.connection.execute("PRAGMA journal_mode = WAL")
        with self.writing() as connection:
            database = Database(connection)
            tables = set(database.table_names())
            applied = [migration.name for migration in migrations.applied(database)]
            if tables and not applied:
                raise StoreError(
                    f"{self.path} is a database, but not one of slurmwrap's",
                    hint="set daemon.database to another path",
                )
            unknown = [name for name in applied if name not in known_migrations()]
            if unknown:
                raise SchemaError(
                    f"{self.path} was written by a newer slurmwrap (it has {unknown[-1]})",
                    hint="install that version: pip install --upgrade slurmwrap",
                )
            missing = [name for name in known_migrations() if name not in applied]
            if applied and missing and not upgrade:
                raise SchemaError(
                    f"{self.path} was written by an older slurmwrap (it lacks {missing[0]})",
                    hint="stop the service and run `slurmwrapd upgrade`, which keeps a backup",
                )
            migrations.apply(database)


def known_migrations() -> list[str]:
    """Names of the migrations that this version has, oldest first."""
    empty = Database(memory=True)
    try:
        return [migration.name for migration in migrations.pending(empty)]
    finally:
        empty.close()


def _refuse_network_file_system(path: Path) -> None:
    kind = _file_system_kind(path.resolve().parent, _mounts())
    if kind in _NETWORK_FILE_SYSTEMS:
        raise StoreError(
            f"the database {path} would lie on a network file system ({kind}),"
            " where SQLite's locks can't be trusted",
            hint="set daemon.database to a path on a local disk",
        )


def _mounts() -> Iterable[tuple[str, str]]:
    """(mount point, kind) of every mount; empty where /proc is not mounted."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    fields = (line.split(" ") for line in lines.splitlines())
    return [(_unescape(parts[1]), parts[2]) for parts in fields if len(parts) > 2]


def _file_system_kind(folder: Path, mounts: Iterable[tuple[str, str]]) -> str | None:
    """Kind of the mount that holds ``folder``: the longest mount point; the last one wins."""
    best: tuple[int, str] | None = None
    for point, kind in mounts:
        if folder.is_relative_to(point) and (best is None or len(point) >= best[0]):
            best = (len(point), kind)
    return best[1] if best else None


def _unescape(text: str) -> str:
    """Mount points write space, tab, newline and backslash in octal (proc(5))."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
