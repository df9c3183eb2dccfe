"""Who a process on a card is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurmwrap.gpu.processes import MAX_PROCESSES, ProcessTable, find_job_folder
from slurmwrap.gpu.reader import DriverProcess

V1 = """\
11:devices:/slurm/uid_1000/job_12/step_0/task_0
10:cpuset:/slurm/uid_1000/job_12/step_0
4:memory:/slurm/uid_1000/job_12/step_0/task_0
1:name=systemd:/system.slice/slurmd.service
"""


@pytest.mark.parametrize(
    ("text", "job_id"),
    [
        pytest.param(V1, 12, id="v1"),
        pytest.param("3:cpu,cpuacct:/slurm_gpu1/uid_0/job_7/step_batch\n", 7, id="v1, two slurmds"),
        pytest.param(
            "1:name=systemd:/user.slice/user-0.slice\n4:memory:/slurm/uid_0/job_3/step_1\n",
            3,
            id="v1, another hierarchy first",
        ),
        pytest.param(
            "0::/system.slice/slurmstepd.scope/job_12/step_batch/user/task_0\n", 12, id="v2"
        ),
        pytest.param(
            "0::/system.slice/gpu1_slurmstepd.scope/job_34/step_0/user/task_3\n",
            34,
            id="A6: v2, several slurmds per host",
        ),
        pytest.param(
            "0::/system.slice/slurmstepd.scope/job_12/step_extern/user/task_special\n",
            12,
            id="v2, extern step",
        ),
        pytest.param(
            "0::/slurm.slice/slurm-jobs.slice/slurmstepd.scope/job_9/step_0/user/task_0\n",
            9,
            id="v2, CgroupSlice",
        ),
        pytest.param(
            "0::/docker.slice/docker-1f.scope/system.slice/slurmstepd.scope/job_5/step_0/user\n",
            5,
            id="v2, slurmd in a container",
        ),
    ],
)
def test_job_of_a_cgroup(text: str, job_id: int) -> None:
    """Every layout of Slurm 22.05 to 26.05 with a job id in it."""
    folder = find_job_folder(text)
    assert folder is not None
    assert folder.job_id == job_id


def test_a_sluid_folder_is_a_job_without_an_id() -> None:
    """A6: since 26.05 the folder is named by the job's SLUID (example of cgroup.conf(5))."""
    folder = find_job_folder(
        "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0\n"
    )
    assert folder is not None
    assert folder.job_id is None
    assert folder.path == "/system.slice/slurmstepd.scope/sEKNKTV3WPV500"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0::/\n",
        "0::/user.slice/user-1000.slice/session-3.scope\n",
        "0::/system.slice/slurmstepd.scope/system\n",
        "0::/system.slice/slurmstepd.scope\n",
        "0::/system.slice/slurmstepd.scope/job_x/step_0\n",
        "0::/system.slice/slurmstepd.scope/job_/step_0\n",
        "0::/system.slice/ssh.service/job_12\n",
        "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV50/step_0\n",
        "4:memory:/slurm/job_12\n",
        "no colon\n\x00",
    ],
)
def test_an_unknown_form_is_no_job(text: str) -> None:
    """What is none of Slurm's forms belongs to no job, and is not guessed at."""
    assert find_job_folder(text) is None


def test_a_users_own_tree_is_not_believed() -> None:
    """A user owns user@UID.service and may name folders in it like Slurm's."""
    text = (
        "0::/user.slice/user-1000.slice/user@1000.service/system.slice"
        "/slurmstepd.scope/job_12/step_0/user/task_0\n"
    )
    assert find_job_folder(text) is None


def test_what_is_below_a_job_does_not_change_whose_it_is() -> None:
    """A job may have folders of its own, named like another job's."""
    text = "0::/system.slice/slurmstepd.scope/job_12/step_0/user/slurmstepd.scope/job_99/x\n"
    folder = find_job_folder(text)
    assert folder is not None
    assert folder.job_id == 12


def test_a_real_process() -> None:
    """Uid and start time of a child, against the clock around its start."""
    before = time.time()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (process,) = ProcessTable().describe([DriverProcess(pid=child.pid, memory_bytes=5)])
        after = time.time()
    finally:
        child.communicate(timeout=30)
    assert process.uid == os.getuid()
    assert process.memory_bytes == 5
    # The boot time in /proc/stat is whole seconds and moves with clock corrections.
    assert process.started_at is not None
    assert before - 3 <= process.started_at <= after + 3


def test_a_process_that_ended_keeps_its_pid_only() -> None:
    """A12: nothing is said of a pid that nobody has."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(timeout=30)
    (process,) = ProcessTable().describe([DriverProcess(pid=child.pid)])
    assert (process.pid, process.uid, process.started_at, process.job_id) == (
        child.pid,
        None,
        None,
        None,
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_sluid_is_resolved_by_the_title_of_its_slurmstepd(tmp_path: Path) -> None:
    """A6: pid 500 is in a SLUID folder; the step's slurmstepd, pid 400, is titled [3385.0]."""
    scope = "system.slice/gpu1_slurmstepd.scope/sEKNKTV3WPV500"
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    write(proc / "stat", "cpu 1 2 3\nbtime 1790000000\n")
    write(proc / "500/cgroup", f"0::/{scope}/step_0/user/task_0\n")
    write(proc / "500/status", "Name:\tpython\nUid:\t1001\t1001\t1001\t1001\n")
    ticks = os.sysconf("SC_CLK_TCK") * 50
    write(proc / "500/stat", f"500 (a) b (c) S {' '.join(['0'] * 18)} {ticks} 0\n")
    write(proc / "400/cmdline", "slurmstepd: [3385.0]\0\0")
    write(cgroup / scope / "step_0/slurm/cgroup.procs", "400\n")
    write(cgroup / scope / "step_0/user/task_0/cgroup.procs", "500\n")
    (process,) = ProcessTable(proc, cgroup).describe([DriverProcess(pid=500)])
    assert (process.uid, process.started_at, process.job_id) == (1001, 1790000050, 3385)


def test_a_sluid_nobody_can_resolve_is_unknown(tmp_path: Path) -> None:
    """Without a slurmstepd the job stays unknown."""
    proc = tmp_path / "proc"
    write(proc / "500/cgroup", "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0\n")
    (process,) = ProcessTable(proc, tmp_path).describe([DriverProcess(pid=500)])
    assert process.job_id is None


def test_processes_are_told_once_each_in_order_and_not_without_end(tmp_path: Path) -> None:
    """A card with a thousand processes does not make a message too large to send."""
    many = [DriverProcess(pid=pid) for pid in range(5000, 4000, -1)] + [DriverProcess(pid=4001)]
    described = ProcessTable(tmp_path, tmp_path).describe(many)
    assert len(described) == MAX_PROCESSES
    assert [process.pid for process in described] == list(range(4001, 4001 + MAX_PROCESSES))
