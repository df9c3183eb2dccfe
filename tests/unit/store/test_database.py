"""Opening the database: only ours, only of this version, only on a local disk."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from slurmwrap.errors import SchemaError, StoreError
from slurmwrap.store.database import StoreDatabase, _file_system_kind, known_migrations


def test_a_new_database_has_every_migration(tmp_path: Path) -> None:
    """A file that does not exist is made with the whole schema, in WAL mode."""
    database = StoreDatabase.open(tmp_path / "new.db")
    names = [row["name"] for row in database.query("SELECT name FROM _sqlite_migrations")]
    assert names == known_migrations()
    assert database.query("PRAGMA journal_mode")[0][0] == "wal"
    database.close()


def test_every_table_is_strict(tmp_path: Path) -> None:
    """No table of ours takes text where a number belongs."""
    database = StoreDatabase.open(tmp_path / "new.db")
    rows = database.query(
        "SELECT name, strict FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
        " AND name NOT LIKE 'sqlite_%' AND name NOT LIKE '_sqlite_%'"
    )
    database.close()
    assert [row["name"] for row in rows if not row["strict"]] == []
    assert len(rows) >= 13


def test_an_older_schema_is_refused_with_the_command_that_fixes_it(tmp_path: Path) -> None:
    """An older database is left alone until the administrator upgrades it."""
    path = tmp_path / "old.db"
    StoreDatabase.open(path).close()
    _forget_last_migration(path)
    with pytest.raises(SchemaError, match="older slurmwrap") as caught:
        StoreDatabase.open(path)
    assert "slurmwrapd upgrade" in str(caught.value.hint)


def test_upgrading_brings_an_older_schema_up_to_date(tmp_path: Path) -> None:
    """With upgrade=True the missing migrations run and the rows stay."""
    path = tmp_path / "old.db"
    database = StoreDatabase.open(path)
    with database.writing() as connection:
        connection.execute("INSERT INTO agent VALUES ('gpu1', 100, 90, 0, 0, '127.0.0.1', '')")
    database.close()
    _forget_last_migration(path)
    database = StoreDatabase.open(path, upgrade=True)
    assert database.query("SELECT node FROM agent")[0]["node"] == "gpu1"
    assert database.query("SELECT count(*) AS n FROM task_health")[0]["n"] == 0
    database.close()


def test_a_newer_schema_is_refused_with_the_command_that_fixes_it(tmp_path: Path) -> None:
    """A database of a newer version is never touched."""
    path = tmp_path / "newer.db"
    StoreDatabase.open(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
            " VALUES ('slurmwrap', '9999_future', 'later')"
        )
    connection.close()
    with pytest.raises(SchemaError, match="newer slurmwrap") as caught:
        StoreDatabase.open(path)
    assert "pip install --upgrade" in str(caught.value.hint)


def test_a_strange_database_is_refused(tmp_path: Path) -> None:
    """A file with other tables is not ours and stays as it is."""
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    with pytest.raises(StoreError, match="not one of slurmwrap's"):
        StoreDatabase.open(path)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    """Rubbish at the path is an error that names the path, not a traceback."""
    path = tmp_path / "rubbish.db"
    path.write_bytes(b"not a database, certainly not" * 100)
    with pytest.raises(StoreError, match=r"rubbish\.db"):
        StoreDatabase.open(path)


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    """Eight threads that read and then write lose nothing and never see a locked database."""
    database = StoreDatabase.open(tmp_path / "busy.db")
    with database.writing() as connection:
        connection.execute("INSERT INTO watermark VALUES ('count', 0)")

    def add_one_forty_times() -> None:
        for _ in range(40):
            with database.writing() as connection:
                row = connection.execute("SELECT at FROM watermark").fetchone()
                connection.execute("UPDATE watermark SET at = ?", (row["at"] + 1,))

    threads = [threading.Thread(target=add_one_forty_times) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert database.query("SELECT at FROM watermark")[0]["at"] == 320
    database.close()


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    """A transaction that raises is undone whole."""
    database = StoreDatabase.open(tmp_path / "undo.db")

    def write_half() -> None:
        with database.writing() as connection:
            connection.execute("INSERT INTO watermark VALUES ('half', 1)")
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_half()
    assert database.query("SELECT * FROM watermark") == []
    database.close()


def test_a_backup_is_whole_while_writers_go_on(tmp_path: Path) -> None:
    """The copy opens with the rows that were committed, and no .part file stays."""
    database = StoreDatabase.open(tmp_path / "live.db")
    with database.writing() as connection:
        connection.execute("INSERT INTO watermark VALUES ('slurmdbd', 7)")
    database.back_up(tmp_path / "copy.db")
    database.close()
    copy = StoreDatabase.open(tmp_path / "copy.db")
    assert copy.query("SELECT at FROM watermark")[0]["at"] == 7
    copy.close()
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/home/x", "nfs4"), ("/home", "nfs4"), ("/homework", "ext4"), ("/var/lib", "ext4")],
)
def test_the_longest_mount_point_tells_the_file_system(folder: str, kind: str) -> None:
    """A folder below a network mount is on it; one that only shares its first letters is not."""
    mounts = [("/", "rootfs"), ("/", "ext4"), ("/home", "nfs4")]
    assert _file_system_kind(Path(folder), mounts) == kind


def _forget_last_migration(path: Path) -> None:
    """Undo the newest migration by hand: what an older version would have left."""
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE task_health")
        connection.execute("DROP TABLE watermark")
        connection.execute("DELETE FROM _sqlite_migrations WHERE name = '0004_health'")
    connection.close()


def test_a_commit_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """A disk that is full at the end of a transaction: undone, and the next one begins."""
    database = StoreDatabase.open(tmp_path / "new.db")
    insert = "INSERT INTO suspension (run_id, started_at) VALUES (77, 1)"
    with pytest.raises(sqlite3.IntegrityError), database.writing() as connection:  # noqa: PT012
        # Seen only when it is committed, as a full disk can be.
        connection.execute("PRAGMA defer_foreign_keys = ON")
        connection.execute(insert)
    with database.writing() as connection:
        connection.execute("INSERT INTO watermark (source, at) VALUES ('a', 1)")
    assert database.query("SELECT run_id FROM suspension") == []
    assert len(database.query("SELECT at FROM watermark")) == 1
    database.close()


def test_connections_of_threads_that_ended_are_closed(tmp_path: Path) -> None:
    """Worker threads come and go by the thousand: files stay open for the living only."""
    database = StoreDatabase.open(tmp_path / "new.db")
    descriptors = Path("/proc/self/fd")

    def count_open() -> int:
        links = [path.readlink() for path in descriptors.iterdir() if path.is_symlink()]
        return sum(link.name.startswith("new.db") for link in links)

    for _ in range(50):
        thread = threading.Thread(target=database.query, args=("SELECT 1 FROM run",))
        thread.start()
        thread.join()
    assert count_open() <= 8
    database.close()
    assert count_open() == 0


def test_the_log_is_cut_after_a_burst(tmp_path: Path) -> None:
    """What a large write left in the write-ahead log is not kept for ever."""
    database = StoreDatabase.open(tmp_path / "new.db")
    limit = database.query("PRAGMA journal_size_limit")[0][0]
    assert 0 < limit <= 64 * 1024 * 1024
    database.close()
