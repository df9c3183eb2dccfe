"""What the supervisor asks Slurm about its own job."""

from __future__ import annotations

import os
from collections.abc import Callable

from slurmwrap.errors import LaunchError, SlurmwrapError

AskSlurm = Callable[..., str]
"""Runs a Slurm program with arguments and returns what it printed (SlurmCommands.run)."""

# A job in one of these is not on nodes. Any other word, also one that is new, counts as live.
_NOT_ON_NODES = frozenset(
    {
        "PENDING",
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "REVOKED",
        "REQUEUED",
    }
)


def live_job_ids(ask: AskSlurm) -> frozenset[int] | None:
    """Raw ids of the caller's jobs that Slurm has on nodes; None: it did not answer."""
    try:
        text = ask("squeue", "-h", "-u", str(os.getuid()), "-t", "all", "-o", "%A|%T")
    except SlurmwrapError:
        return None
    ids: set[int] = set()
    for line in text.splitlines():
        number, _, state = line.strip().partition("|")
        if number.isdecimal() and state not in _NOT_ON_NODES:
            ids.add(int(number))
    return frozenset(ids)


def ask_start(ask: AskSlurm, job_id: int) -> int | None:
    """When the job's present run began; None: Slurm did not say."""
    try:
        text = ask("squeue", "-h", "-j", str(job_id), "-o", "%A|%S")
    except SlurmwrapError:
        return None
    for line in text.splitlines():
        number, _, start = line.strip().partition("|")
        # The raw id of one task can be the id of its whole array, which squeue then lists.
        if number == str(job_id) and start.isdecimal():
            return int(start)
    return None


def ask_node_names(ask: AskSlurm, node_list: str) -> tuple[str, ...]:
    """The names in a host list expression, in Slurm's order: the first runs the batch script."""
    names = tuple(ask("scontrol", "show", "hostnames", node_list).split())
    if not names:
        raise LaunchError(f"Slurm names no nodes for {node_list!r}")
    return names


def ask_node_address(ask: AskSlurm, node: str) -> str | None:
    """The address at which Slurm itself reaches a node (NodeAddr); None: it did not say."""
    try:
        text = ask("scontrol", "-o", "show", "node", node)
    except SlurmwrapError:
        return None
    for word in text.split():
        key, _, value = word.partition("=")
        if key == "NodeAddr" and value:
            return value
    return None
