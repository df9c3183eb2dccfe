"""The supervisor in real jobs: one node and two, exit codes, signals, a node that fails."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.cluster import Testbed

pytestmark = pytest.mark.cluster

USER = "swt-alice"
SLURMWRAP = f"{sys.executable} -P -m slurmwrap"
ENDED = {"", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"}


SAVER = """
import signal, sys, time
def save(number, frame):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it comes twice: from Slurm and from us
    print("saving", flush=True)
    time.sleep(1)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def home(testbed: Testbed) -> Path:
    return testbed.instance.home(USER)


@pytest.fixture
def submit(testbed: Testbed, home: Path) -> Callable[..., int]:
    """Submits a batch script that ends in `exec slurmwrap run ...`."""
    environment = {
        "SLURMWRAP_STAGING_CACHE_DIR": str(testbed.root / "nodes" / "{node}" / "nvme"),
        "SLURMWRAP_STAGING_HEADROOM": "0",
        # Nobody listens there: the job must not care.
        "SLURMWRAP_DAEMON_URL": "http://127.0.0.1:9",
        "SLURMWRAP_MUNGE_SOCKET": testbed.facts["munge_socket"],
    }

    def start(arguments: str, *options: str) -> int:
        return testbed.submit(
            USER,
            "--time=2",
            f"--output={home}/run-%j.log",
            *options,
            wrap=f"exec {SLURMWRAP} run {arguments}",
            env=environment,
        )

    return start


def wait_for_log(testbed: Testbed, home: Path, job: int, text: str) -> None:
    log = home / f"run-{job}.log"
    testbed.wait_for(
        lambda: log.exists() and text in log.read_text(), timeout=60, what=f"{text!r} in {log}"
    )


def wait_for_end(testbed: Testbed, home: Path, job: int) -> tuple[dict[str, str], str]:
    """The job's own record and its log."""
    testbed.wait_for(
        lambda: testbed.job_state(job) in ENDED, timeout=90, what=f"the end of job {job}"
    )

    def record() -> dict[str, str] | None:
        rows = testbed.sacct("-X", "-j", str(job), "--format=JobID,State,ExitCode")
        return rows[0] if rows and rows[0]["State"] not in {"RUNNING", "PENDING"} else None

    log = (home / f"run-{job}.log").read_text(encoding="utf-8", errors="surrogateescape")
    row = testbed.wait_for(record, timeout=30, what=f"the record of job {job}")
    assert row is not None
    return row, log


def test_exit_code_is_in_slurms_record(
    testbed: Testbed, home: Path, submit: Callable[..., int]
) -> None:
    """S13: the command fails with 7, everything after it succeeds: sacct says FAILED 7:0."""
    job = submit("-- sh -c " + shlex.quote("echo working; exit 7"))
    row, log = wait_for_end(testbed, home, job)
    assert (row["State"], row["ExitCode"]) == ("FAILED", "7:0")
    assert "working\n" in log


def test_two_nodes_each_have_their_copy(
    testbed: Testbed, home: Path, submit: Callable[..., int]
) -> None:
    """Both nodes stage at once; tasks find their own node's copy; the second job copies nothing."""
    script = "rm -rf pair; mkdir pair; cd pair; head -c 50000 /dev/urandom > x; date +%N > y"
    testbed.run_as(USER, ["sh", "-c", script], check=True)
    task = 'echo "$SLURMD_NODENAME:$SLURMWRAP_DATA"; cmp pair/x "$SLURMWRAP_DATA/x"'
    command = (
        f"srun --ntasks-per-node=1 {SLURMWRAP} run --task -- sh -c {shlex.quote(task)};"
        ' echo "batch:$SLURMWRAP_DATA"'
    )
    arguments = f"--stage pair -- sh -c {shlex.quote(command)}"
    first = submit(arguments, "--nodes=2", "--ntasks-per-node=1")
    row, log = wait_for_end(testbed, home, first)
    assert (row["State"], row["ExitCode"]) == ("COMPLETED", "0:0"), log
    for node in ("gpu1", "gpu2"):
        assert f"slurmwrap: {node}: pair: 2 files" in log
        assert f"{node}:{testbed.root}/nodes/{node}/nvme/{USER}/" in log
    assert f"batch:{testbed.root}/nodes/gpu1/" in log
    assert log.count("copied in") == 2
    second = submit(arguments, "--nodes=2", "--ntasks-per-node=1")
    row, log = wait_for_end(testbed, home, second)
    assert row["ExitCode"] == "0:0", log
    assert log.count("already on the node") == 2


def test_node_that_can_not_stage_is_named(
    testbed: Testbed, home: Path, submit: Callable[..., int]
) -> None:
    """S35: one node's cache is broken: it is named, the command runs on no node, code 60."""
    testbed.run_as(USER, ["sh", "-c", "mkdir -p odd; date +%N > odd/x"], check=True)
    disk = testbed.root / "nodes" / "gpu2" / "nvme"
    mode = disk.stat().st_mode & 0o7777
    disk.chmod(0o777)  # without the sticky bit others could exchange what is in it
    try:
        job = submit("--stage odd -- echo ran", "--nodes=2", "--ntasks-per-node=1")
        row, log = wait_for_end(testbed, home, job)
    finally:
        disk.chmod(mode)
    assert (row["State"], row["ExitCode"]) == ("FAILED", "60:0"), log
    assert "1 of 2 nodes have 'odd'; gpu2: the cache can't lie in" in log
    assert "ran\n" not in log


def test_command_hears_scancel_and_the_record_is_cancelled(
    testbed: Testbed, home: Path, submit: Callable[..., int]
) -> None:
    """S2, S7: `scancel` reaches the command, which has its time to write; nothing stays behind."""
    job = submit(f"-- {sys.executable} -c {shlex.quote(SAVER)}")
    wait_for_log(testbed, home, job, "ready")
    testbed.run_as(USER, ["scancel", str(job)], check=True)
    row, log = wait_for_end(testbed, home, job)
    assert row["State"].startswith("CANCELLED")
    assert "asked to end (SIGTERM)" in log
    assert "saved\n" in log


def test_time_limit_warning_reaches_the_supervisor(
    testbed: Testbed, home: Path, submit: Callable[..., int]
) -> None:
    """S2: --signal=B:USR1 reaches the batch script, which is the supervisor: the log says so, and
    the command lives on and ends as it likes."""
    script = "echo ready; while [ ! -e done.$SLURM_JOB_ID ]; do sleep 0.2; done; exit 3"
    job = submit("-- sh -c " + shlex.quote(script), "--signal=B:USR1@60")
    wait_for_log(testbed, home, job, "ready")
    testbed.run_as(USER, ["scancel", "--batch", "--signal=USR1", str(job)], check=True)
    wait_for_log(testbed, home, job, "the time limit is near (SIGUSR1)")
    testbed.run_as(USER, ["touch", f"done.{job}"], check=True)
    row, _ = wait_for_end(testbed, home, job)
    assert (row["State"], row["ExitCode"]) == ("FAILED", "3:0")


def test_torchrun_is_started_once_per_node(
    testbed: Testbed, home: Path, submit: Callable[..., int]
) -> None:
    """S28, S29: one torchrun per node, all with the first node's address and one port.

    The torchrun of this test only says how it was called: PyTorch's own is too large for it.
    """
    fake = '#!/bin/sh\necho "$SLURMD_NODENAME called: $* with $SLURMWRAP_DATA"\n'
    script = (
        f"mkdir -p bin set; echo x > set/x; printf %s {shlex.quote(fake)} > bin/torchrun;"
        " chmod 755 bin/torchrun"
    )
    testbed.run_as(USER, ["sh", "-c", script], check=True)
    job = testbed.submit(
        USER,
        "--time=2",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--gres=gpu:2",
        f"--output={home}/run-%j.log",
        wrap=f"PATH=$PWD/bin:$PATH exec {SLURMWRAP} run --stage set --launcher torchrun"
        " --launcher-arg=--log-dir=logs -- train.py --lr 1e-3",
        env={
            "SLURMWRAP_STAGING_CACHE_DIR": str(testbed.root / "nodes" / "{node}" / "nvme"),
            "SLURMWRAP_STAGING_HEADROOM": "0",
            "SLURMWRAP_DAEMON_URL": "http://127.0.0.1:9",
        },
    )
    row, log = wait_for_end(testbed, home, job)
    assert row["ExitCode"] == "0:0", log
    called = sorted(line for line in log.splitlines() if " called: " in line)
    assert [line.split()[0] for line in called] == ["gpu1", "gpu2"]
    words = [line.split(" called: ")[1].split(" with ")[0] for line in called]
    assert words[0].startswith("--nproc-per-node=2 --node-rank=0 --nnodes=2 --rdzv-backend=static ")
    assert words[0].replace("--node-rank=0", "--node-rank=1") == words[1]
    assert words[0].endswith(f" --rdzv-id={job} --log-dir=logs train.py --lr 1e-3")
    assert "localhost" not in words[0]
    assert f"with {testbed.root}/nodes/gpu2/nvme" in called[1]


def test_next_job_removes_what_a_killed_one_left(
    testbed: Testbed, home: Path, submit: Callable[..., int]
) -> None:
    """S7, S26: the supervisor is killed outright; the user's next job on the node cleans up."""
    killed = submit("-- sh -c " + shlex.quote('echo "$SLURMWRAP_METRICS"; kill -9 $PPID'))
    _, log = wait_for_end(testbed, home, killed)
    folder = Path(next(line for line in log.splitlines() if "metrics.jsonl" in line)).parent
    assert folder.name.startswith(f"slurmwrap-{killed}-")
    assert folder.is_dir()
    waiting = f"while [ -e {folder} ]; do sleep 0.1; done"
    row, log = wait_for_end(testbed, home, submit("-- sh -c " + shlex.quote(waiting)))
    assert row["ExitCode"] == "0:0"
    assert f"removed {folder.name}, which a job that was killed had left" in log
