"""The supervisor's folder, and what the next job may remove of dead ones."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmwrap.runtime.identity import JobIdentity, read_identity
from slurmwrap.runtime.job_folder import JobFolder, clean_up

CONF = "/etc/slurm/slurm.conf"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def job(job_id: int, cluster: str = "c1") -> JobIdentity:
    return read_identity({"SLURM_JOB_ID": str(job_id), "SLURM_CLUSTER_NAME": cluster})


def leave_behind(identity: JobIdentity, conf: str = CONF) -> Path:
    """What a supervisor that was killed leaves: the kernel has dropped its lock."""
    folder = JobFolder(identity, conf)
    (folder.path / "metrics.jsonl").write_text("{}\n")
    (folder.path / "sub").mkdir()
    (folder.path / "sub" / "file").touch()
    os.close(folder._lock)
    return folder.path


def clean(live: frozenset[int] | None, identity: JobIdentity | None = None) -> list[str]:
    return clean_up(identity or job(99), CONF, lambda: live)


def test_folder_is_private_and_goes(place: Path) -> None:
    """Mode 0700, named after its job, and nothing of it stays."""
    folder = JobFolder(job(12), CONF)
    assert folder.path.name.startswith("slurmwrap-12-")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.remove()
    assert list(place.iterdir()) == []


def test_folder_of_an_ended_job_is_removed(place: Path) -> None:
    """S26: marked, ours, unlocked, and its job is gone."""
    path = leave_behind(job(12))
    assert clean(frozenset({99})) == [path.name]
    assert list(place.iterdir()) == []


def test_folders_that_stay(place: Path) -> None:
    """S26: of a live job, of our own, of another cluster, of no job, without a mark, locked."""
    leave_behind(job(12))
    leave_behind(job(99))
    leave_behind(job(13, cluster="c2"))
    leave_behind(job(13), conf="/elsewhere/slurm.conf")
    leave_behind(dataclasses.replace(job(1), job_id=None))
    (place / "slurmwrap-13-abc").mkdir(mode=0o700)
    (place / "slurmwrap-13-abd").write_text("no folder")
    locked = JobFolder(job(13), CONF)
    before = sorted(place.iterdir())
    assert clean(frozenset({12, 99})) == []
    assert sorted(place.iterdir()) == before
    locked.remove()


def test_nothing_goes_while_slurm_is_silent(place: Path) -> None:
    """No answer is not the answer that there are no jobs."""
    path = leave_behind(job(12))
    assert clean(None) == []
    assert path.exists()


def test_slurm_is_asked_only_when_needed(place: Path) -> None:
    """A clean node costs slurmctld nothing."""

    def ask() -> frozenset[int]:
        raise AssertionError("asked")

    assert clean_up(job(99), CONF, ask) == []


@pytest.fixture
def bait(place: Path) -> Iterator[Path]:
    """Something that must stay, whatever a neighbour prepares."""
    path = place / "precious"
    path.mkdir()
    (path / "thesis").touch()
    yield path
    assert (path / "thesis").exists()


def test_links_are_not_followed(place: Path, bait: Path) -> None:
    """A link under our name, and one inside a folder of ours, lead nowhere."""
    (place / "slurmwrap-12-link").symlink_to(bait)
    path = leave_behind(job(12))
    (path / "sub" / "way").symlink_to(bait)
    (path / "way").symlink_to(bait)
    mark = (path / "slurmwrap.json").read_text()
    (bait / "slurmwrap.json").write_text(mark)
    assert clean(frozenset()) == [path.name]
    assert (place / "slurmwrap-12-link").is_symlink()


@pytest.mark.parametrize("kind", ["fifo", "link", "garbage", "text", "deep"])
def test_forged_marks_are_none(place: Path, bait: Path, kind: str) -> None:
    """A mark that is no file of our form: its folder stays, and nobody waits for it."""
    path = place / "slurmwrap-12-forged"
    path.mkdir(mode=0o700)
    mark = path / "slurmwrap.json"
    if kind == "fifo":
        os.mkfifo(mark)
    elif kind == "link":
        good = leave_behind(job(99)) / "slurmwrap.json"
        mark.symlink_to(good)
    else:
        mark.write_text({"garbage": "\0", "text": '{"slurmwrap": "job-folder", "job_id": "12"}',
                         "deep": "[" * 4000}[kind])  # fmt: skip
    assert clean(frozenset()) == []
    assert mark.parent.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_folders_of_others_stay(place: Path) -> None:
    """S26: also for root, and also when they carry our mark; and such that others may write to."""
    foreign = leave_behind(job(12))
    os.chown(foreign, 12345, 12345)
    open_to_all = leave_behind(job(13))
    open_to_all.chmod(0o777)
    assert clean(frozenset()) == []
    assert foreign.exists()
    assert open_to_all.exists()


def test_removal_that_was_interrupted_goes_on(place: Path) -> None:
    """The mark goes last: what is left can be removed by the next job."""
    path = leave_behind(job(12))
    shutil.rmtree(path / "sub")
    (path / "metrics.jsonl").unlink()
    assert json.loads((path / "slurmwrap.json").read_text())["job_id"] == 12
    assert clean(frozenset()) == [path.name]
