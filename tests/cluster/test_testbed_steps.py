"""A testbed's step daemons end with it, seen by /proc alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.cluster import Testbed

pytestmark = pytest.mark.cluster


def test_down_ends_the_step_of_a_running_job(testbed: Testbed) -> None:
    """slurmstepd clears its environment and its parent: it must not outlive its testbed, or it
    tells the next one of the same name that its first job has ended."""
    other = Testbed.up(f"{testbed.instance.name}-8")
    try:
        job = other.submit("swt-alice", wrap="sleep 300")
        other.wait_for(lambda: other.job_state(job) == "RUNNING", what=f"the start of job {job}")
        step_daemons = other.wait_for(lambda: find_step_daemons(other.root), what="the step daemon")
    finally:
        other.down()
    assert len(step_daemons) == 1
    assert not [pid for pid in step_daemons if is_alive(pid)]


def find_step_daemons(root: Path) -> list[int]:
    """Process ids of the slurmstepd that have files under the root open."""
    found = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            name = comm.read_text().strip()
            files = [os.readlink(link) for link in (comm.parent / "fd").iterdir()]
        except OSError:
            continue
        if name == "slurmstepd" and any(file.startswith(f"{root}/") for file in files):
            found.append(int(comm.parent.name))
    return found


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie is dead."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"
