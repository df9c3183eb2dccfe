"""PyTorch's own torchrun on two nodes, where SLURMWRAP_TORCH_PYTHON names a Python that has it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from testbed.cluster import Testbed

pytestmark = pytest.mark.cluster

USER = "swt-alice"
ENDED = {"", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"}

TRAIN = """
import json, os, socket, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

failing, attempt = int(sys.argv[1]), os.environ["TORCHELASTIC_RESTART_COUNT"]
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
total = torch.tensor([float(rank)])
dist.all_reduce(total)
node, threads = os.environ["SLURMD_NODENAME"], os.environ["OMP_NUM_THREADS"]
print(f"rank {rank} of {world} on {node}: {total.item():g}, {threads} thread", flush=True)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
for epoch in range(3):
    model(torch.ones(2, 4)).sum().backward()
    if rank == failing and attempt == "0" and epoch == 1:
        sys.exit(7)
    if rank == 0:
        with open(os.environ["SLURMWRAP_METRICS"], "a") as file:
            file.write(json.dumps({"step": epoch, "values": {"val_acc": 0.5}}) + "\\n")
dist.barrier()
dist.destroy_process_group()
if rank == 0:
    print("metrics:", sum(1 for _ in open(os.environ["SLURMWRAP_METRICS"])), flush=True)
"""

Train = Callable[..., tuple[dict[str, str], str]]


@pytest.fixture
def torch_python() -> Path:
    python = os.environ.get("SLURMWRAP_TORCH_PYTHON")
    if not python:
        pytest.skip("SLURMWRAP_TORCH_PYTHON does not name a Python with PyTorch")
    if subprocess.run([python, "-c", "import torch"], capture_output=True, timeout=120).returncode:
        pytest.skip(f"{python} can't import torch")
    return Path(python)


@pytest.fixture
def train(torch_python: Path, testbed: Testbed) -> Train:
    """Runs the script above on two nodes with two cards each; its record and log."""
    home = testbed.instance.home(USER)
    testbed.run_as(USER, ["sh", "-c", "cat > train.py"], input=TRAIN, check=True)

    def run(failing: int, *launcher_arguments: str) -> tuple[dict[str, str], str]:
        words = "".join(f" --launcher-arg={word}" for word in launcher_arguments)
        slurmwrap = f"{sys.executable} -P -m slurmwrap"
        job = testbed.submit(
            USER,
            "--time=5",
            "--nodes=2",
            "--ntasks-per-node=1",
            "--gres=gpu:2",
            f"--output={home}/torch-%j.log",
            wrap=f"PATH={torch_python.parent}:$PATH exec {slurmwrap} run --launcher torchrun{words}"
            f" -- train.py {failing}",
            env={"SLURMWRAP_DAEMON_URL": "http://127.0.0.1:9"},
        )
        testbed.wait_for(
            lambda: testbed.job_state(job) in ENDED, timeout=240, what=f"the end of job {job}"
        )

        def record() -> dict[str, str] | None:
            rows = testbed.sacct("-X", "-j", str(job), "--format=JobID,State,ExitCode")
            return rows[0] if rows and rows[0]["State"] not in {"RUNNING", "PENDING"} else None

        row = testbed.wait_for(record, timeout=30, what=f"the record of job {job}")
        assert row is not None
        return row, (home / f"torch-{job}.log").read_text(encoding="utf-8", errors="replace")

    return run


def lines_of_ranks(log: str) -> list[str]:
    # Not by line: torchrun runs python -u, so that the ends of two ranks' lines may come together.
    return sorted(re.findall(r"rank \d of \d on gpu\d: \d, \d thread", log))


FOUR_RANKS = [
    "rank 0 of 4 on gpu1: 6, 1 thread",
    "rank 1 of 4 on gpu1: 6, 1 thread",
    "rank 2 of 4 on gpu2: 6, 1 thread",
    "rank 3 of 4 on gpu2: 6, 1 thread",
]


def test_ranks_of_two_nodes_work_together(train: Train) -> None:
    """S28: four ranks add up 0 + 1 + 2 + 3; rank 0 is on the first node, where metrics are read."""
    row, log = train(-1)
    assert (row["State"], row["ExitCode"]) == ("COMPLETED", "0:0"), log
    assert lines_of_ranks(log) == FOUR_RANKS
    assert "metrics: 3" in log
    assert "***" not in log


def test_rank_that_fails_ends_the_job_with_torchruns_code(train: Train, testbed: Testbed) -> None:
    """S13: one rank of the second node ends with 7: the job fails with 1; no process stays."""
    row, log = train(2)
    assert (row["State"], row["ExitCode"]) == ("FAILED", "1:0"), log
    assert "exitcode  : 7" in log
    assert "train.py" not in testbed.run_as("root", ["ps", "-u", USER, "-o", "args"]).stdout


def test_restart_brings_all_ranks_together_again(train: Train) -> None:
    """A rank of the second node fails once: with --max-restarts all four begin anew and succeed."""
    row, log = train(3, "--max-restarts=1")
    assert (row["State"], row["ExitCode"]) == ("COMPLETED", "0:0"), log
    assert lines_of_ranks(log) == sorted(FOUR_RANKS * 2)
