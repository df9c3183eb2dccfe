"""slurmwrapd backup and upgrade, as an administrator calls them."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmwrap.store.database import StoreDatabase, known_migrations

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database of this version with a watermark in it."""
    path = tmp_path / "slurmwrap.db"
    made = StoreDatabase.open(path)
    with made.writing() as connection:
        connection.execute("INSERT INTO agent VALUES ('gpu1', 100, 90, 0, 0, '127.0.0.1', '')")
    made.close()
    return path


@pytest.fixture
def run(database: Path) -> Run:
    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).parent / "slurmwrapd"), *words],
            env={
                "PATH": os.environ["PATH"],
                "SLURMWRAP_DAEMON_DATABASE": str(database),
                "LC_ALL": "C.UTF-8",
            },
            capture_output=True,
            text=True,
            timeout=60,
        )

    return call


def test_a_backup_is_a_whole_database(run: Run, tmp_path: Path) -> None:
    """The copy opens with its rows, stdout names it, nothing half written stays."""
    target = tmp_path / "copy.db"
    done = run("backup", str(target))
    assert (done.returncode, done.stdout) == (0, f"{target}\n"), done.stderr
    assert nodes(target) == ["gpu1"]
    assert not list(tmp_path.glob("*.part"))


def test_a_backup_that_cannot_be_written_says_so(run: Run, tmp_path: Path) -> None:
    """A target in a folder that is not there: exit 30, no traceback."""
    done = run("backup", str(tmp_path / "missing" / "copy.db"))
    assert done.returncode == 30
    assert "missing/copy.db" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_database_is_no_backup(run: Run, database: Path, tmp_path: Path) -> None:
    """A wrong path does not make an empty database, nor a backup of one."""
    database.unlink()
    done = run("backup", str(tmp_path / "copy.db"))
    assert done.returncode == 30
    assert not database.exists()
    assert not (tmp_path / "copy.db").exists()


def test_an_older_database_is_upgraded_after_a_backup(
    run: Run, database: Path, tmp_path: Path
) -> None:
    """Refused until it is upgraded; then the rows are there, and so is the old file's copy."""
    forget_migrations(database, known_migrations()[3:])
    refused = run("backup", str(tmp_path / "copy.db"))
    assert refused.returncode == 31
    assert "slurmwrapd upgrade" in refused.stderr
    done = run("upgrade")
    assert done.returncode == 0, done.stderr
    assert "up to date" in done.stdout
    assert nodes(database) == ["gpu1"]
    (backup,) = tmp_path.glob("slurmwrap.db.before-upgrade-*")
    assert nodes(backup) == ["gpu1"]
    assert run("backup", str(tmp_path / "copy.db")).returncode == 0


def test_a_running_service_keeps_its_database(run: Run, database: Path) -> None:
    """The upgrade takes the service's lock: exit 72 while another holds it."""
    with Path(f"{database}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run("upgrade")
    assert done.returncode == 72
    assert "another slurmwrapd" in done.stderr


def nodes(path: Path) -> list[str]:
    with sqlite3.connect(path) as connection:
        found = [row[0] for row in connection.execute("SELECT node FROM agent")]
    connection.close()
    return found


def forget_migrations(path: Path, names: list[str]) -> None:
    """Leave the schema as a version without these migrations had it."""
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE IF EXISTS task_health")
        connection.execute("DROP TABLE IF EXISTS watermark")
        connection.execute("DROP INDEX IF EXISTS run_by_end")
        connection.executemany(
            "DELETE FROM _sqlite_migrations WHERE name = ?", [(name,) for name in names]
        )
    connection.close()
