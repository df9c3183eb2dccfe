"""Command lines that reach the other nodes of a job: srun, torchrun, and our own helper."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence

from slurmwrap.errors import LaunchError

LAUNCHERS = ("none", "torchrun")

# Below the kernel's usual range of short-lived ports (32768 and up), above the services.
_FIRST_PORT = 12000
_PORTS = 20000
_PORT_ATTEMPTS = 200


# What sbatch's options about tasks left in the environment, where srun takes them for its own:
# our steps have one task per node, which gets all cards that the job has there.
_TASK_VARIABLES = frozenset(
    {
        "SLURM_NTASKS_PER_GPU",
        "SLURM_NTASKS_PER_TRES",
        "SLURM_NTASKS_PER_CORE",
        "SLURM_NTASKS_PER_SOCKET",
        "SLURM_GPUS_PER_TASK",
        "SLURM_TRES_PER_TASK",
        "SLURM_GPU_BIND",
        "SLURM_TRES_BIND",
        "SLURM_DISTRIBUTION",
        "SLURM_RELATIVE",
    }
)


def step_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which srun does what our command line says and nothing else."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _TASK_VARIABLES and not name.startswith("SRUN_")
    }


def own_program() -> list[str]:
    """How to start slurmwrap again, on any node. -P: the job's folder may hold a json.py."""
    return [sys.executable, "-P", "-m", "slurmwrap"]


def stage_step(srun: str, nodes: int, arguments: Sequence[str]) -> list[str]:
    """A step that runs slurmwrap once on every node of the job, beside whatever else runs."""
    return [
        srun,
        "--overlap",
        "--export=ALL",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
        "--cpu-bind=none",
        "--mpi=none",
        # One node's failure must not hide what the others say.
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--input=none",
        "--job-name=slurmwrap-stage",
        *own_program(),
        *arguments,
    ]


def torchrun_step(
    srun: str,
    *,
    nodes: int,
    address: str,
    port: int,
    job_id: int,
    launcher_arguments: Sequence[str],
    command: Sequence[str],
) -> list[str]:
    """A step with one task per node, each of which becomes torchrun (see torchrun_task).

    The command's first word is a Python file, or ``-m``, or else a program.
    """
    step = [
        srun,
        "--export=ALL",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
        "--cpu-bind=none",
        "--mpi=none",
        "--kill-on-bad-exit=1",
    ]
    meeting = [
        f"--nnodes={nodes}",
        # The nodes of a job don't change, so each can be told its rank. Only c10d can begin anew
        # after a failure, with all nodes at once; on the last failure it leaves long traces of
        # the lost meeting on each.
        f"--rdzv-backend={'c10d' if _restarts(launcher_arguments) else 'static'}",
        f"--rdzv-endpoint={address}:{port}",
        f"--rdzv-id={job_id}",
        *launcher_arguments,
    ]
    is_script = command[0].endswith(".py") or command[0] == "-m"
    kind = [] if is_script else ["--no-python"]
    task = [*own_program(), "run", "--task", "--launcher", "torchrun", "--"]
    return [*step, *task, *meeting, *kind, *command]


def torchrun_task(
    cards_on_node: int | None, node: str, node_rank: int, words: Sequence[str]
) -> list[str]:
    """torchrun on one node: one process per card that the step has there, else one.

    Nodes of a job may have different numbers of cards. What the user's own arguments say comes
    later and wins. The job's first node has rank 0, where the supervisor reads the metrics.
    """
    options = _options(words)
    own = [f"--nproc-per-node={cards_on_node or 1}"]
    if options.get("rdzv-backend") == "c10d":
        # With c10d, ranks go by the names that nodes give themselves, and only the name of rank 0
        # is used as an address: the first node gives the one that we know to be right (its own
        # idea may be localhost), the others one that sorts behind every address.
        address = options.get("rdzv-endpoint", node).rpartition(":")[0]
        own += [
            f"--rdzv-conf=is_host={int(node_rank == 0)}",
            f"--local-addr={address if node_rank == 0 else f'~{node}'}",
        ]
    else:
        own.append(f"--node-rank={node_rank}")
    return ["torchrun", *own, *words]


def set_defaults(environment: MutableMapping[str, str], argv: Sequence[str]) -> None:
    """Settings for torchrun where nobody has chosen: what it needs, and what it would say itself.

    One thread for each of several processes is its own default, which it explains in five lines
    on every node. Its store of addresses is shared with the meeting since 2.3, and after a restart
    the nodes that had not failed read those of the processes before (seen on 2.13).
    """
    options = _options(argv[1:])
    if options.get("nproc-per-node") != "1":
        environment.setdefault("OMP_NUM_THREADS", "1")
    if options.get("rdzv-backend") == "c10d":
        environment.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")


def first_failure(status: int) -> int:
    """What a torchrun step that ended with this status failed of.

    When one node's torchrun fails, srun ends the others with SIGTERM and exits with the highest
    status of all, which is that of those. torchrun's own is 1, whatever its processes had.
    """
    return 1 if status in (signal.SIGTERM, 128 + signal.SIGTERM) else status


def _options(words: Sequence[str]) -> dict[str, str]:
    """torchrun's options before the script, with dashes; of the same ones the last, as it reads."""
    found: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("-"):
            name, _, value = word.lstrip("-").replace("_", "-", 2).partition("=")
            found[name] = value
        elif name and not found[name]:
            found[name] = word
        else:
            break
    return found


def _restarts(launcher_arguments: Sequence[str]) -> bool:
    return _options(launcher_arguments).get("max-restarts", "0") != "0"


def find_master_address(node: str, ask_address: Callable[[str], str | None]) -> str:
    """A name or address under which the other nodes reach the job's first node.

    Raises:
        LaunchError: there is none. It is never replaced by localhost, where every node would
            train alone.
    """
    for candidate in (node, ask_address(node)):
        if candidate and _resolves(candidate):
            return candidate
    raise LaunchError(
        f"the first node of the job, {node!r}, can't be resolved to an address",
        hint="an administrator adds it to DNS or /etc/hosts, or sets NodeAddr in slurm.conf",
    )


def choose_port(job_id: int) -> int:
    """A port that is free on this node; jobs beside each other start from different ones.

    Raises:
        LaunchError: none of many is free.
    """
    for attempt in range(_PORT_ATTEMPTS):
        port = _FIRST_PORT + (job_id * 7 + attempt * 101) % _PORTS
        if _is_free(port):
            return port
    raise LaunchError(f"none of {_PORT_ATTEMPTS} ports tried on this node is free")


def _resolves(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
