"""Staging on a real cluster: each node its copy, the next job none, no lease of a dead job."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from testbed.cluster import Testbed

pytestmark = pytest.mark.cluster

USER = "swt-bob"
SLURMWRAP = f"{sys.executable} -P -m slurmwrap"


def make_data(testbed: Testbed, name: str, files: int = 3) -> Path:
    """A folder of the user's, new each time."""
    folder = testbed.instance.home(USER) / name
    script = (
        f"rm -rf {name}; mkdir -p {name}/sub;"
        f" for i in $(seq {files}); do head -c 20000 /dev/urandom > {name}/sub/f$i; done"
    )
    testbed.run_as(USER, ["sh", "-c", script], check=True)
    return folder


def run_job(testbed: Testbed, script: str, *options: str, cache: str) -> tuple[int, str]:
    """Submit, wait for the end, and return the job's id and its log."""
    log = testbed.instance.home(USER) / "stage-%j.log"
    job = testbed.submit(
        USER,
        "--time=2",
        f"--output={log}",
        *options,
        wrap=script,
        env={"SLURMWRAP_STAGING_CACHE_DIR": cache, "SLURMWRAP_STAGING_HEADROOM": "0"},
    )
    testbed.wait_for(
        lambda: testbed.job_state(job) in {"", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"},
        timeout=90,
        what=f"the end of job {job}",
    )
    path = Path(str(log).replace("%j", str(job)))
    return job, path.read_text(encoding="utf-8", errors="surrogateescape")


def test_second_job_on_the_node_copies_nothing(testbed: Testbed) -> None:
    """The first job copies to the node's disk, the second one finds it; both see the data."""
    make_data(testbed, "hot")
    cache = str(testbed.root / "nodes" / "{node}" / "nvme")
    script = (
        f"set -e; data=$({SLURMWRAP} stage in hot --json | tail -1);"
        ' cmp -s hot/sub/f3 "$data/sub/f3"; echo "$data"'
    )
    first_job, first = run_job(testbed, script, "--nodelist=gpu1", cache=cache)
    second_job, second = run_job(testbed, script, "--nodelist=gpu1", cache=cache)
    assert "copied in" in first
    assert "already on the node" in second
    path = Path(first.splitlines()[-1])
    assert second.splitlines()[-1] == str(path)
    assert path.is_relative_to(testbed.root / "nodes" / "gpu1" / "nvme" / USER)
    leases = {
        json.loads(lease.read_text())["job_id"] for lease in (path.parents[1] / "leases").iterdir()
    }
    assert leases == {first_job, second_job}


def test_leases_end_with_their_jobs(testbed: Testbed) -> None:
    """S25: which jobs live is asked of the real squeue: a running one counts, an ended one not."""
    question = (
        "from slurmwrap.config.settings import SlurmSettings;"
        "from slurmwrap.runtime.slurm_questions import live_job_ids;"
        "from slurmwrap.slurm.commands import SlurmCommands;"
        "print(sorted(live_job_ids(SlurmCommands(SlurmSettings()).run)))"
    )

    def live() -> list[int]:
        argv = [sys.executable, "-P", "-c", question]
        answer: list[int] = json.loads(testbed.run_as(USER, argv, check=True).stdout)
        return answer

    job = testbed.submit(USER, "--time=2", "--output=/dev/null", wrap="sleep 100")
    testbed.wait_for(lambda: testbed.job_state(job) == "RUNNING", timeout=60)
    assert job in live()
    testbed.run_as(USER, ["scancel", str(job)], check=True)
    testbed.wait_for(lambda: testbed.job_state(job) in {"", "CANCELLED"}, timeout=60)
    assert job not in live()
