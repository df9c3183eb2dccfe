"""What programs and tests need to know of a running testbed: exports and one JSON object."""

from __future__ import annotations

from typing import Any

from testbed import unix_users
from testbed.instance import ADDRESS, CLUSTER, NODES, Instance, Node


def exports(instance: Instance) -> dict[str, str]:
    """Environment variables; PATH is the caller's matter: DIR/bin goes first."""
    return {
        "SLURM_CONF": str(instance.slurm_conf),
        "SLURMWRAP_TESTBED": str(instance.root),
        "SLURMWRAP_TESTBED_NAME": instance.name,
        "SLURMWRAP_TESTBED_MUNGE_SOCKET": str(instance.munge_socket),
        "SLURMWRAP_TESTBED_DAEMON_PORT": str(instance.ports["daemon"]),
        "SLURMWRAP_TESTBED_SMTP_PORT": str(instance.ports["smtp"]),
    }


def describe(instance: Instance) -> dict[str, Any]:
    """Everything, for `env --json`."""
    root = instance.root
    return {
        "name": instance.name,
        "cluster": CLUSTER,
        "root": str(root),
        "slurm_conf": str(instance.slurm_conf),
        "munge_socket": str(instance.munge_socket),
        "munge_key": str(instance.munge_key),
        "mariadb_socket": str(instance.mariadb_socket),
        "mariadb_database": "slurm_acct",
        "sacctmgr": "/usr/bin/sacctmgr",
        "bin": str(root / "bin"),
        "var": str(root / "var"),
        "log": str(root / "log"),
        "home": {user: str(instance.home(user)) for user in unix_users.ALL},
        "ports": dict(instance.ports),
        "daemon_port": instance.ports["daemon"],
        "smtp_port": instance.ports["smtp"],
        "users": {user: unix_users.find_uid(user) for user in unix_users.ALL},
        "nodes": {node.name: _describe_node(instance, node) for node in NODES},
        "environment": exports(instance),
    }


def _describe_node(instance: Instance, node: Node) -> dict[str, Any]:
    directory = instance.node_dir(node.name)
    return {
        "addr": ADDRESS,
        "port": instance.ports[node.name],
        "cards": node.cards,
        "gpu_type": node.gpu_type,
        "minors": list(node.minors),
        "cpus": node.cpus,
        "memory_mb": node.memory_mb,
        "dir": str(directory),
        "nvme": str(directory / "nvme"),
        "nvml_library": str(directory / "lib"),
        "nvml_state": str(directory / "nvml"),
        "devices": str(instance.root / "dev" / node.name),
        "slurmd_log": str(instance.log(f"slurmd-{node.name}")),
        "spool": str(instance.root / "spool" / node.name),
    }
