"""Leases: who counts as using a copy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from slurmwrap.staging.leases import (
    Holder,
    LeaseCheck,
    current_holder,
    drop_lease,
    read_start_ticks,
    take_lease,
)


def test_lease_of_a_job_counts_while_slurm_knows_it(tmp_path: Path) -> None:
    """Job 5 is on nodes, job 6 is not any more."""
    for job_id in (5, 6):
        take_lease(os.fsencode(tmp_path), current_holder(job_id))
    check = LeaseCheck(lambda: frozenset({5, 99}))
    assert check.live_holders(os.fsencode(tmp_path)) == ["job 5"]


def test_slurm_is_asked_once_and_only_for_jobs(tmp_path: Path) -> None:
    """One question for all leases, and none where only processes hold them."""
    asked: list[int] = []

    def ask() -> frozenset[int]:
        asked.append(1)
        return frozenset()

    check = LeaseCheck(ask)
    take_lease(os.fsencode(tmp_path), current_holder(None))
    assert check.live_holders(os.fsencode(tmp_path)) == [f"process {os.getpid()}"]
    assert asked == []
    for job_id in (5, 6):
        take_lease(os.fsencode(tmp_path), current_holder(job_id))
    assert check.live_holders(os.fsencode(tmp_path)) == [f"process {os.getpid()}"]
    assert asked == [1]


def test_pid_of_a_later_process_does_not_count(tmp_path: Path) -> None:
    """A pid is reused; with another start time it is somebody else."""
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    started = read_start_ticks(child.pid)
    assert started is not None
    take_lease(os.fsencode(tmp_path), Holder(None, child.pid, started))
    check = LeaseCheck(lambda: None)
    assert check.live_holders(os.fsencode(tmp_path)) == [f"process {child.pid}"]
    take_lease(os.fsencode(tmp_path), Holder(None, child.pid, started + 1))
    assert check.live_holders(os.fsencode(tmp_path)) == [f"process {child.pid}"]
    child.communicate(b"\n", timeout=30)
    assert check.live_holders(os.fsencode(tmp_path)) == []


def test_unreadable_lease_counts(tmp_path: Path) -> None:
    """Rather keep a copy too long than take it from a running job."""
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases" / "job-5").write_text("{", encoding="ascii")
    check = LeaseCheck(lambda: frozenset())
    assert check.live_holders(os.fsencode(tmp_path)) == ["an unreadable lease job-5"]


def test_dropped_lease_is_gone(tmp_path: Path) -> None:
    """Taking says whether it was taken before; dropping twice is no error."""
    folder, holder = os.fsencode(tmp_path), current_holder(5)
    assert not take_lease(folder, holder)
    assert take_lease(folder, holder)
    drop_lease(folder, holder)
    drop_lease(folder, holder)
    assert LeaseCheck(lambda: None).live_holders(folder) == []
