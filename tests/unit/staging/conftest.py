"""Stagers over real folders, and a small file system that can be filled."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmwrap.staging.cache import NodeCache
from slurmwrap.staging.leases import Holder, current_holder
from slurmwrap.staging.stage_in import Stager

MakeStager = Callable[..., Stager]


def make_job(job_id: int) -> Holder:
    """A holder as `slurmwrap stage in` makes one inside a job."""
    return current_holder(job_id)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small tree: two files, one of them in a folder, and an empty folder."""
    root = tmp_path / "source"
    (root / "sub").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "first.txt").write_bytes(b"one")
    (root / "sub" / "second.bin").write_bytes(bytes(range(256)) * 100)
    return root


@pytest.fixture
def make_stager(tmp_path: Path) -> MakeStager:
    """Builds a stager into tmp_path/cache; everything can be said otherwise."""

    def make(cache: Path | None = None, **options: Any) -> Stager:
        values: dict[str, Any] = {
            "workers": 2,
            "headroom": 0.0,
            "holder": current_holder(None),
            "live_jobs": lambda: frozenset(),
            **options,
        }
        return Stager(NodeCache(str(cache or tmp_path / "cache"), node="n1"), **values)

    return make


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 32 MiB; skipped where it can't be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m,mode=1777", "tmpfs", str(place)]
    if os.getuid() != 0 or subprocess.run(mount, check=False, timeout=10).returncode != 0:
        pytest.skip("mounting a small tmpfs needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True, timeout=10)
