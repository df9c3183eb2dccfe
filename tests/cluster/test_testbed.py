"""The testbed keeps its promises: a real Slurm, real users, the right cards, nothing left."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed import cards, configuration, daemons, lifecycle, processes, unix_users
from testbed.cluster import Testbed
from testbed.failures import DaemonFailed, TestbedError, WaitTimeout
from testbed.instance import name_instance

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cluster

CHECKOUT = Path(__file__).parents[2]
READ_CARDS = """
import json, pynvml as n
n.nvmlInit()
handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
print(json.dumps({
    n.nvmlDeviceGetMinorNumber(h): [
        n.nvmlDeviceGetUtilizationRates(h).gpu,
        len(n.nvmlDeviceGetComputeRunningProcesses(h)),
    ]
    for h in handles
}))
"""


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "testbed", *arguments],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def running_pids(testbed: Testbed) -> dict[str, int | None]:
    return {name: daemons.find(testbed.instance, name) for name in daemons.NAMES}


def processes_of(testbed: Testbed) -> list[processes.Process]:
    uids = frozenset(uid for user in unix_users.ALL if (uid := unix_users.find_uid(user)))
    return processes.find_marked(testbed.root, uids, own_uids=False)


def end_job(testbed: Testbed, *jobs: int) -> None:
    for job in jobs:
        testbed.run_as("root", ["scancel", "-s", "KILL", "--full", str(job)])
        testbed.run_as("root", ["scancel", str(job)])
    testbed.wait_for(
        lambda: all(testbed.job_state(job) not in ("RUNNING", "COMPLETING") for job in jobs),
        what=f"the end of jobs {jobs}",
    )


def start_job(testbed: Testbed, user: str, *arguments: str, wrap: str = "sleep 300") -> int:
    job = testbed.submit(user, "-o", "%j.out", *arguments, wrap=wrap)
    testbed.wait_for(lambda: testbed.job_state(job) == "RUNNING", what=f"the start of job {job}")
    return job


def read_cards(testbed: Testbed, node: str) -> dict[str, list[int]]:
    done = testbed.run_as(
        "slurmwrap-agent",
        [sys.executable, "-c", READ_CARDS],
        env={"LD_LIBRARY_PATH": testbed.facts["nodes"][node]["nvml_library"]},
        check=True,
        cwd="/",
    )
    answer: dict[str, list[int]] = json.loads(done.stdout)
    return answer


def test_a_second_up_changes_nothing(testbed: Testbed) -> None:
    before = running_pids(testbed)
    begin = time.monotonic()
    done = run_cli("up", "--name", testbed.instance.name)
    assert done.returncode == 0
    assert f"{testbed.instance.name} is up" in done.stderr
    assert time.monotonic() - begin < 3
    assert running_pids(testbed) == before
    assert None not in before.values()


@pytest.mark.parametrize(("node", "gpu_type"), [("gpu1", "a100"), ("gpu2", "h800")])
def test_a_job_on_each_node_gets_its_cards_and_is_accounted(
    testbed: Testbed, node: str, gpu_type: str
) -> None:
    wrap = "echo $SLURMD_NODENAME $SLURM_GPUS_ON_NODE $SLURM_JOB_GPUS"
    job = testbed.submit("swt-alice", "-w", node, "--gres=gpu:3", "-o", "%j.out", wrap=wrap)
    rows = testbed.wait_for(
        lambda: testbed.sacct("-X", "-j", str(job), "--state=COMPLETED", "--format=ALL"),
        what=f"the accounting record of job {job}",
    )
    tres = dict(pair.split("=") for pair in rows[0]["AllocTRES"].split(","))
    assert (tres["gres/gpu"], tres[f"gres/gpu:{gpu_type}"]) == ("3", "3")
    assert (rows[0]["User"], rows[0]["Account"]) == ("swt-alice", "vision")
    name, count, indexes = (testbed.instance.home("swt-alice") / f"{job}.out").read_text().split()
    assert (name, count, len(indexes.split(","))) == (node, "3", 3)


def test_small_jobs_share_a_node_and_start_within_seconds(testbed: Testbed) -> None:
    begin = time.monotonic()
    jobs = [testbed.submit("swt-bob", "-w", "gpu1", "--gres=gpu:1", wrap="sleep 60") for _ in "123"]
    testbed.wait_for(
        lambda: [testbed.job_state(job) for job in jobs] == ["RUNNING"] * 3, what="three jobs"
    )
    assert time.monotonic() - begin < 5
    end_job(testbed, *jobs)


def test_burn_shows_on_the_right_card_and_only_there(testbed: Testbed) -> None:
    first = start_job(testbed, "swt-alice", "-w", "gpu2", "--gres=gpu:1", wrap="sleep 300")
    second = start_job(
        testbed,
        "swt-bob",
        "-w",
        "gpu2",
        "--gres=gpu:1",
        wrap="export SLURM_JOB_GPUS=0 CUDA_VISIBLE_DEVICES=0; testbed-burn --util 88",
    )
    details = testbed.run_as("root", ["scontrol", "show", "job", "-d", str(second)]).stdout
    index = details.partition("IDX:")[2].partition(")")[0]
    expected = {str(minor): [0, 0] for minor in range(4)} | {index: [88, 1]}
    testbed.wait_for(
        lambda: read_cards(testbed, "gpu2") == expected, what=f"card {index} busy, others idle"
    )
    assert set(map(tuple, read_cards(testbed, "gpu1").values())) == {(0, 0)}
    end_job(testbed, first, second)
    assert set(map(tuple, read_cards(testbed, "gpu2").values())) == {(0, 0)}


def test_slurm_knows_the_users_levels(testbed: Testbed) -> None:
    job = start_job(testbed, "swt-alice")
    comment = ["scontrol", "update", f"JobId={job}", "AdminComment=seen"]
    assert testbed.run_as("swt-admin", comment).returncode != 0
    assert testbed.run_as("slurmwrap", comment).returncode == 0
    for user in ("slurmwrap-agent", "swt-bob", "swt-carol"):
        testbed.run_as(user, ["scancel", str(job)])
        assert testbed.job_state(job) == "RUNNING", user
    testbed.run_as("swt-admin", ["scancel", str(job)], check=True)
    testbed.wait_for(lambda: testbed.job_state(job) == "CANCELLED", what="the Operator's cancel")
    mine, other = start_job(testbed, "swt-alice"), start_job(testbed, "swt-carol")
    testbed.run_as("swt-dave", ["scancel", str(mine), str(other)])
    testbed.wait_for(
        lambda: testbed.job_state(mine) == "CANCELLED", what="the coordinator's cancel"
    )
    assert testbed.job_state(other) == "RUNNING"
    end_job(testbed, other)


def test_accounts_and_limits_are_enforced(testbed: Testbed) -> None:
    refused = testbed.run_as("swt-bob", ["sbatch", "-A", "physics", "--wrap=true"])
    assert refused.returncode != 0
    assert "account" in refused.stderr
    limit = ["sacctmgr", "-i", "modify", "account", "physics", "set"]
    testbed.run_as("root", [*limit, "GrpTRES=gres/gpu=0"], check=True)
    try:
        job = testbed.submit("swt-carol", "--gres=gpu:1", wrap="true")
        reason = ["squeue", "-h", "-o", "%r", "-j", str(job)]
        testbed.wait_for(
            lambda: "AssocGrpGRES" in testbed.run_as("root", reason).stdout, what="the limit's hold"
        )
    finally:
        testbed.run_as("root", [*limit, "GrpTRES=gres/gpu=-1"], check=True)
    testbed.wait_for(lambda: testbed.job_state(job) == "COMPLETED", what="the job after the limit")


@pytest.fixture
def no_grace(testbed: Testbed) -> Iterator[None]:
    """slurmctld looks at grace times every 30 s only; without one it preempts at once."""
    update = ["scontrol", "update", "PartitionName=spot"]
    testbed.run_as("root", [*update, "GraceTime=0"], check=True)
    yield
    testbed.run_as("root", [*update, "GraceTime=5"], check=True)


@pytest.mark.usefixtures("no_grace")
def test_a_spot_job_is_preempted_requeued_and_runs_again(testbed: Testbed) -> None:
    spot = start_job(testbed, "swt-alice", "-p", "spot", "-w", "gpu1", "--gres=gpu:4")
    urgent = start_job(testbed, "swt-bob", "-p", "gpu", "-w", "gpu1", "--gres=gpu:4")
    assert testbed.job_state(spot) == "PENDING"
    end_job(testbed, urgent)
    testbed.wait_for(lambda: testbed.job_state(spot) == "RUNNING", what="the job's second run")
    end_job(testbed, spot)
    records = ("-D", "-X", "-j", str(spot), "--format=JobID,State")
    testbed.wait_for(lambda: len(testbed.sacct(*records)) == 2, what="both records")
    assert [row["State"].split()[0] for row in testbed.sacct(*records)] == [
        "PREEMPTED",
        "CANCELLED",
    ]


def test_run_as_is_the_user_and_nothing_of_the_caller(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "debug")
    script = "id -un; id -Gn; pwd; umask; env | cut -d= -f1 | sort | tr '\\n' ' '"
    output = testbed.run_as("swt-carol", ["sh", "-c", script], env={"MORE": "1"}, check=True).stdout
    user, groups, directory, mask, names = output.splitlines()
    assert (user, groups, mask) == ("swt-carol", "swt-carol", "0022")
    assert directory == str(testbed.instance.home("swt-carol"))
    assert "MORE" in names.split()
    assert "SBATCH_PARTITION" not in names
    hello = testbed.run_as("swt-carol", ["cat"], input="hello").stdout
    assert hello == "hello"
    with pytest.raises(TestbedError, match="swt-carol"):
        testbed.run_as("swt-carol", ["ls", "/root"], check=True)


def test_wait_for_names_what_was_awaited(testbed: Testbed) -> None:
    with pytest.raises(WaitTimeout, match="the moon"):
        testbed.wait_for(list, timeout=0.2, what="the moon")


@pytest.mark.parametrize("daemon", daemons.NAMES)
def test_every_daemon_can_be_stopped_started_and_killed(testbed: Testbed, daemon: str) -> None:
    job = start_job(testbed, "swt-alice", "-w", "gpu1")
    testbed.stop(daemon)
    assert daemons.find(testbed.instance, daemon) is None
    testbed.start(daemon)
    testbed.kill(daemon, signal.SIGKILL)
    testbed.wait_for(lambda: not daemons.find(testbed.instance, daemon), what="its death")
    assert run_cli("start", daemon, "--name", testbed.instance.name).returncode == 0
    testbed.wait_for(lambda: testbed.job_state(job) == "RUNNING", what="the job seen again")
    after = testbed.submit("swt-bob", "-w", "gpu1", wrap="true")
    testbed.wait_for(lambda: testbed.job_state(after) == "COMPLETED", what="a new job's end")
    testbed.wait_for(
        lambda: testbed.sacct("-X", "-j", str(after), "--state=COMPLETED"), what="its record"
    )
    end_job(testbed, job)


def test_the_command_line_tells_and_sets(testbed: Testbed) -> None:
    name = testbed.instance.name
    assert run_cli("status", "--name", name).returncode == 0
    assert run_cli("status", "--name", "no-such").returncode == 3
    facts = json.loads(run_cli("env", "--json", "--name", name).stdout)
    assert facts == testbed.facts
    exports = run_cli("env", "--name", name).stdout
    shown = subprocess.run(
        ["bash", "-c", f"{exports}\nsinfo -h -o %P; command -v testbed-burn"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.split() == ["gpu*", "spot", "debug", f"{testbed.root}/bin/testbed-burn"]
    as_bob = run_cli("shell", "--name", name, "--user", "swt-bob", "--", "id", "-un")
    assert as_bob.stdout == "swt-bob\n"
    state = Path(facts["nodes"]["gpu2"]["nvml_state"])
    card = ("card", "--name", name, "--node", "gpu2", "--minor", "3")
    assert run_cli(*card, "error.GetPowerUsage=15").returncode == 0
    assert cards.read_card(state, 0)["error.GetPowerUsage"] == "15"
    assert run_cli(*card, "--reset").returncode == 0
    assert "error.GetPowerUsage" not in cards.read_card(state, 0)
    wrong = run_cli(*card, "utilisation=5")
    assert wrong.returncode == 1
    assert "util" in wrong.stderr


@pytest.fixture
def second(testbed: Testbed) -> Iterator[Testbed]:
    """Another testbed beside the first, taken down whatever the test did to it."""
    other = Testbed.up(f"{testbed.instance.name}-2")
    yield other
    other.down()


def encode(testbed: Testbed) -> str:
    argv = ["munge", "-n", "-S", str(testbed.instance.munge_socket)]
    return testbed.run_as("swt-alice", argv, check=True).stdout


def decode(testbed: Testbed, credential: str) -> int:
    argv = ["unmunge", "-S", str(testbed.instance.munge_socket)]
    return testbed.run_as("swt-bob", argv, input=credential).returncode


def test_two_testbeds_side_by_side_share_nothing(testbed: Testbed, second: Testbed) -> None:
    ports = [*testbed.facts["ports"].values(), *second.facts["ports"].values()]
    assert len(set(ports)) == len(ports)
    assert decode(testbed, encode(testbed)) == 0
    assert decode(second, encode(testbed)) != 0
    here, there = start_job(testbed, "swt-alice"), start_job(second, "swt-alice")
    assert testbed.submit("swt-bob", wrap="true") > here
    cards.set_card(Path(second.facts["nodes"]["gpu1"]["nvml_state"]), 0, util=50)
    assert read_cards(second, "gpu1")["0"] == [50, 0]
    assert read_cards(testbed, "gpu1")["0"] == [0, 0]
    second.down()
    assert testbed.job_state(here) == "RUNNING"
    assert there
    end_job(testbed, here)


def test_down_leaves_nothing_of_a_crashed_testbed(testbed: Testbed, second: Testbed) -> None:
    """Also a job that left its session, its parents and its environment."""
    escape = "setsid env -i sleep 4242 & setsid env -i PATH=$PATH nohup srun sleep 4243 & sleep 300"
    start_job(second, "swt-alice", "-w", "gpu2", "--gres=gpu:1", wrap=escape)
    second.wait_for(
        lambda: "4242" in subprocess.run(["ps", "ax"], capture_output=True, text=True).stdout,
        what="the escaped process",
    )
    for name in ("slurmctld", "slurmd-gpu2", "mariadb"):
        second.kill(name)
    for process in processes_of(second):
        if Path(f"/proc/{process.pid}/comm").read_text().startswith("slurmstepd"):
            os.kill(process.pid, signal.SIGKILL)
    shell = subprocess.Popen(["sleep", "60"], env=dict(second.facts["environment"]), cwd="/")
    try:
        assert processes_of(second)
        second.down()
        assert processes_of(second) == []
        assert not second.root.exists()
        listing = subprocess.run(["ps", "axo", "args"], capture_output=True, text=True).stdout
        assert "sleep 4242" not in listing
        assert str(second.root) not in Path("/proc/mounts").read_text()
        assert shell.poll() is None, "a person's process was killed"
    finally:
        shell.kill()
        shell.wait()
    assert None not in running_pids(testbed).values()
    assert pwd.getpwnam("swt-alice")


@pytest.mark.parametrize("seconds", [0.3, 1.2, 3.0])
def test_an_up_that_was_killed_half_way_leaves_nothing_after_down(
    testbed: Testbed, seconds: float
) -> None:
    name = f"{testbed.instance.name}-3"
    up = subprocess.Popen(
        [sys.executable, "-m", "testbed", "up", "--name", name],
        cwd=CHECKOUT,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(seconds)
    up.kill()
    up.wait()
    instance = name_instance(name)
    assert run_cli("status", "--name", name).returncode == 3
    lifecycle.down(name)
    assert not instance.root.exists()
    assert processes.find_marked(instance.root, frozenset(), own_uids=False) == []
    assert None not in running_pids(testbed).values()


def test_an_up_after_a_crash_mends_and_keeps_the_jobs(second: Testbed) -> None:
    job = start_job(second, "swt-alice")
    before = running_pids(second)
    second.wait_for(
        lambda: second.sacct("-X", "-j", str(job), "--state=RUNNING"), what="the job's record"
    )
    await_saved_jobs(second, job)
    second.kill("slurmctld")
    second.kill("munged")
    second.wait_for(lambda: not lifecycle.is_up(second.instance), what="their deaths")
    done = run_cli("up", "--name", second.instance.name)
    assert "started munged, slurmctld" in done.stderr
    after = running_pids(second)
    assert {n for n in before if before[n] != after[n]} == {"munged", "slurmctld"}
    second.wait_for(lambda: second.job_state(job) == "RUNNING", what="the job seen again")


def await_saved_jobs(testbed: Testbed, job: int) -> None:
    """Wait until slurmctld has written its jobs after it knew that this one runs.

    It writes some seconds after a change, here of the comment. The first write may have begun
    before the change; the second one begins after the first.
    """
    saved = testbed.root / "state" / "job_state"
    for number in (1, 2):
        changed_at = time.time()
        comment = ["scontrol", "update", f"JobId={job}", f"Comment={number}"]
        testbed.run_as("root", comment, check=True)
        testbed.wait_for(
            lambda since=changed_at: saved.exists() and saved.stat().st_mtime > since,  # type: ignore[misc]
            what="the jobs are saved",
        )


def test_a_failed_up_names_the_daemon_and_cleans_up(
    testbed: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    templates = tmp_path / "conf"
    shutil.copytree(configuration.TEMPLATES, templates)
    with (templates / "slurm.conf").open("a") as file:
        file.write("PartitionName=broken Nodes=nowhere\n")
    monkeypatch.setattr(configuration, "TEMPLATES", templates)
    name = f"{testbed.instance.name}-4"
    with pytest.raises(DaemonFailed, match="slurmctld") as caught:
        lifecycle.up(name)
    assert "nowhere" in str(caught.value)
    instance = name_instance(name)
    assert not instance.root.exists()
    assert processes.find_marked(instance.root, frozenset(), own_uids=False) == []


def test_only_users_with_our_mark_are_removed(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_users, "ALL", ("swt-tested", "swt-foreign"))
    subprocess.run(["useradd", "--comment", "somebody", "swt-foreign"], check=True)
    try:
        unix_users.create_users()
        assert unix_users.find_uid("swt-tested")
        assert unix_users.remove_users() == ["swt-tested"]
        assert unix_users.find_uid("swt-tested") is None
        assert unix_users.find_uid("swt-foreign")
    finally:
        subprocess.run(["userdel", "swt-foreign"], check=True)
