"""The directory of a testbed and the configuration files in it."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from pathlib import Path
from string import Template

from testbed import cards, unix_users
from testbed.instance import ADDRESS, CLUSTER, NODES, Instance, Node

TEMPLATES = Path(__file__).parent / "conf"
NULL_DEVICE = os.makedev(1, 3)


def write_tree(instance: Instance) -> None:
    """Create the directories, devices, keys and configuration files of an instance."""
    root = instance.root
    root.mkdir(parents=True, mode=0o755)
    for name in ("etc", "bin", "home", "nodes", "dev", "nvml", "spool"):
        _make_dir(root / name, 0o755)
    _make_dir(root / "run", 0o755)
    _make_dir(root / "run/pid", 0o700)
    _make_dir(root / "run/munge", 0o755, "munge")
    _make_dir(root / "run/mariadb", 0o755, "slurm")
    _make_dir(root / "munge", 0o700, "munge")
    _make_dir(root / "mariadb", 0o700, "slurm")
    _make_dir(root / "state", 0o755, "slurm")
    _make_dir(root / "log", 0o755, "slurm")
    _make_dir(root / "var", 0o750, "slurmwrap")
    for user in unix_users.ALL:
        _make_dir(instance.home(user), 0o700, user)
    for node in NODES:
        _make_node(instance, node)
    instance.munge_key.touch(0o600)
    instance.munge_key.write_bytes(os.urandom(128))
    shutil.chown(instance.munge_key, "munge", "munge")
    _write_files(instance)


def _make_node(instance: Instance, node: Node) -> None:
    _make_dir(instance.node_dir(node.name), 0o755)
    _make_dir(instance.node_dir(node.name) / "nvme", 0o1777)
    _make_dir(instance.node_dir(node.name) / "lib", 0o755)
    cards.create_cards(
        instance.node_dir(node.name) / "nvml", node.minors, node.card_name, node.memory_total_mib
    )
    _make_dir(instance.root / "spool" / node.name, 0o755)
    devices = instance.root / "dev" / node.name
    _make_dir(devices, 0o755)
    for index in range(node.cards):
        # Slurm only wants character devices; these are /dev/null under another name.
        os.mknod(devices / f"nvidia{index}", stat.S_IFCHR | 0o666, NULL_DEVICE)


def _make_dir(path: Path, mode: int, owner: str = "root") -> None:
    path.mkdir()
    path.chmod(mode)
    if owner != "root":
        shutil.chown(path, owner, owner)


def _write_files(instance: Instance) -> None:
    host = socket.gethostname().partition(".")[0]
    values = {
        "cluster": CLUSTER,
        "host": host,
        "address": ADDRESS,
        "root": str(instance.root),
        "munge_socket": str(instance.munge_socket),
        "mariadb_socket": str(instance.mariadb_socket),
        "nodes": "\n".join(_describe_node(instance, node, host) for node in NODES),
        **{f"{name}_port": str(port) for name, port in instance.ports.items()},
    }
    etc = instance.root / "etc"
    for template in sorted(TEMPLATES.iterdir()):
        (etc / template.name).write_text(Template(template.read_text()).substitute(values))
    gres = [
        f"NodeName={node.name} Name=gpu Type={node.gpu_type}"
        f" File={instance.root}/dev/{node.name}/nvidia[0-{node.cards - 1}]\n"
        for node in NODES
    ]
    (etc / "gres.conf").write_text("".join(gres))
    # slurmdbd refuses a configuration that others can read.
    (etc / "slurmdbd.conf").chmod(0o600)
    shutil.chown(etc / "slurmdbd.conf", "slurm", "slurm")


def _describe_node(instance: Instance, node: Node, host: str) -> str:
    return (
        f"NodeName={node.name} NodeHostname={host} NodeAddr={ADDRESS}"
        f" Port={instance.ports[node.name]} CPUs={node.cpus} Sockets=1"
        f" CoresPerSocket={node.cpus} ThreadsPerCore=1 RealMemory={node.memory_mb}"
        f" Gres=gpu:{node.gpu_type}:{node.cards} State=UNKNOWN"
    )
