"""Command lines for other nodes, ports and addresses."""

from __future__ import annotations

import socket

import pytest

from slurmwrap.errors import LaunchError
from slurmwrap.runtime.launch import (
    choose_port,
    find_master_address,
    first_failure,
    set_defaults,
    step_environment,
    torchrun_step,
    torchrun_task,
)


def torchrun_words(
    command: tuple[str, ...], *launcher_arguments: str, node_rank: int = 1
) -> list[str]:
    step = torchrun_step(
        "/usr/bin/srun",
        nodes=2,
        address="gpu1",
        port=12345,
        job_id=7,
        launcher_arguments=launcher_arguments,
        command=command,
    )
    return torchrun_task(4, f"gpu{node_rank + 1}", node_rank, step[step.index("--") + 1 :])


def test_torchrun_meets_at_the_first_node() -> None:
    """One torchrun per node, one process per card, our port and job id, arguments as typed.

    The node's rank is Slurm's: torchrun's own choice gave rank 0 to any node, and its metrics went
    into a file there that nobody read.
    """
    assert torchrun_words(("train.py", "--name", "a b\n'c'"), "--log-dir", "a b") == [
        "torchrun",
        "--nproc-per-node=4",
        "--node-rank=1",
        "--nnodes=2",
        "--rdzv-backend=static",
        "--rdzv-endpoint=gpu1:12345",
        "--rdzv-id=7",
        "--log-dir",
        "a b",
        "train.py",
        "--name",
        "a b\n'c'",
    ]


@pytest.mark.parametrize("asked", [["--max-restarts=2"], ["--max_restarts", "2"]])
def test_restarts_need_a_meeting_that_can_be_repeated(asked: list[str]) -> None:
    """With restarts torchrun meets by c10d, where rank 0 stays on the first node, by its address.

    c10d sorts the nodes by the name each gives; seen on PyTorch 2.13: the second one, as localhost.
    """
    for node_rank, own in enumerate(
        (
            ["--rdzv-conf=is_host=1", "--local-addr=gpu1"],
            ["--rdzv-conf=is_host=0", "--local-addr=~gpu2"],
        )
    ):
        assert torchrun_words(("train.py",), *asked, node_rank=node_rank) == [
            "torchrun",
            "--nproc-per-node=4",
            *own,
            "--nnodes=2",
            "--rdzv-backend=c10d",
            "--rdzv-endpoint=gpu1:12345",
            "--rdzv-id=7",
            *asked,
            "train.py",
        ]
    assert "--rdzv-backend=static" in torchrun_words(("train.py",), "--max-restarts=0")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("-m", "pkg.train"), ["-m", "pkg.train"]),
        (("python", "train.py"), ["--no-python", "python", "train.py"]),
        (("./train.sh",), ["--no-python", "./train.sh"]),
    ],
)
def test_torchrun_starts_modules_and_programs_too(
    command: tuple[str, ...], words: list[str]
) -> None:
    """torchrun takes its first word for a Python file; programs need --no-python."""
    assert torchrun_words(command)[7:] == words


def test_ports_of_jobs_differ_and_are_free() -> None:
    """S29: another job's port is not taken, nor one that anything listens on."""
    first, second = choose_port(1000), choose_port(1001)
    assert first != second
    with socket.socket() as other:
        other.bind(("", first))
        other.listen()
        again = choose_port(1000)
        assert again not in (first, second)
        assert 12000 <= again < 32000


def test_master_is_a_name_that_resolves() -> None:
    """S28: the node's own name if it resolves, else Slurm's address for it, else an error."""
    assert find_master_address("localhost", lambda node: None) == "localhost"
    assert find_master_address("no-such-node.invalid", lambda node: "127.0.0.1") == "127.0.0.1"
    with pytest.raises(LaunchError, match="no-such-node"):
        find_master_address("no-such-node.invalid", lambda node: None)
    with pytest.raises(LaunchError, match="no-such-node"):
        find_master_address("no-such-node.invalid", lambda node: "also-none.invalid")


def test_options_about_tasks_do_not_reach_our_steps() -> None:
    """sbatch's --gpus-per-task or --ntasks-per-gpu would refuse or halve one task per node."""
    environment = {
        "SLURM_NTASKS_PER_GPU": "1",
        "SLURM_GPUS_PER_TASK": "1",
        "SRUN_CPUS_PER_TASK": "2",
        "SLURM_CPUS_PER_TASK": "8",
        "SLURM_JOB_ID": "7",
        "HOME": "/home/alice",
    }
    assert step_environment(environment) == {
        "SLURM_CPUS_PER_TASK": "8",
        "SLURM_JOB_ID": "7",
        "HOME": "/home/alice",
    }


@pytest.mark.parametrize(
    ("variables", "words", "threads"),
    [
        ({}, ["--nproc-per-node=4", "--nnodes=2", "train.py"], "1"),
        ({}, ["--nproc-per-node=1", "--nnodes=2", "train.py"], None),
        ({}, ["--nproc-per-node=1", "--nproc_per_node=2", "train.py"], "1"),
        ({}, ["--nproc-per-node=1", "train.py", "--nproc-per-node=2"], None),
        ({"OMP_NUM_THREADS": "8"}, ["--nproc-per-node=4", "train.py"], "8"),
    ],
)
def test_threads_are_torchruns_own_without_its_banner(
    variables: dict[str, str], words: list[str], threads: str | None
) -> None:
    """torchrun sets one thread per process where nobody chose, with five lines on every node."""
    environment = dict(variables)
    set_defaults(environment, ["torchrun", *words])
    assert environment.get("OMP_NUM_THREADS") == threads


@pytest.mark.parametrize(
    ("status", "meant"), [(0, 0), (1, 1), (15, 1), (143, 1), (9, 9), (127, 127)]
)
def test_failure_is_torchruns_not_that_of_those_ended_with_it(status: int, meant: int) -> None:
    """S13: srun ends the other nodes' torchruns with SIGTERM and then gives that, the highest."""
    assert first_failure(status) == meant


def test_restarts_do_not_read_the_addresses_of_before() -> None:
    """Seen on PyTorch 2.13: after one rank failed, the other node dialled the dead processes."""
    environment: dict[str, str] = {}
    set_defaults(environment, ["torchrun", "--rdzv-backend=c10d", "train.py"])
    assert environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    environment = {}
    set_defaults(environment, ["torchrun", "--rdzv-backend=static", "train.py"])
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in environment
