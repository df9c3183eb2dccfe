"""Bringing a testbed up and taking it down, whatever state it was left in."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from testbed import (
    accounting,
    configuration,
    daemons,
    driver_build,
    packages,
    processes,
    unix_users,
)
from testbed.failures import DaemonFailed, TestbedError
from testbed.instance import NODES, Instance, choose_ports, name_instance, root_of_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def talk(message: str) -> None:
    print(f"testbed: {message}", file=sys.stderr, flush=True)


def up(name: str, say: Callable[[str], None] = talk) -> Instance:
    """Bring an instance up; an instance that is up stays as it is."""
    packages.check_machine()
    with _one_at_a_time(say):
        instance = name_instance(name)
        if is_up(instance):
            say(f"{name} is up in {instance.root}")
            return instance
        if _heal(instance, say):
            return instance
        begin = time.monotonic()
        installed = packages.install_missing()
        if installed:
            say(f"installed {', '.join(installed)} in {time.monotonic() - begin:.1f} s")
        begin = time.monotonic()
        _clear(instance)
        try:
            instance = _build(choose_ports(instance), say)
        except BaseException:
            _clear(instance)
            raise
        say(f"{name} is up in {instance.root} after {time.monotonic() - begin:.1f} s")
        return instance


def down(name: str, say: Callable[[str], None] = talk) -> None:
    """Remove every process, file and user of an instance, also after a crash."""
    packages.check_machine()
    with _one_at_a_time(say):
        begin = time.monotonic()
        packages.restore_policy()
        instance = name_instance(name)
        killed, removed = _clear(instance)
        users = f", {len(removed)} users removed" if removed else ""
        say(f"{name} is down: {killed} processes ended{users}, {time.monotonic() - begin:.1f} s")


def is_up(instance: Instance) -> bool:
    return bool(instance.ports) and all(daemons.find(instance, name) for name in daemons.NAMES)


def _heal(instance: Instance, say: Callable[[str], None]) -> bool:
    """Start the daemons that died in an instance that was up; False when it can't be saved."""
    if not instance.ports or packages.find_missing():
        return False
    dead = [name for name in daemons.NAMES if not daemons.find(instance, name)]
    try:
        unix_users.create_users()
        for name in dead:
            daemons.start(instance, name)
        wait_nodes(instance)
    except TestbedError as error:
        say(f"{instance.name} can't be mended and is built anew: {error}")
        return False
    say(f"{instance.name} is up again in {instance.root}: started {', '.join(dead)}")
    return True


def wait_nodes(instance: Instance, timeout: float = 30.0) -> None:
    """Wait until slurmctld has heard from every node."""
    deadline = time.monotonic() + timeout
    while True:
        answer = subprocess.run(
            ["sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %T"],
            env=daemons.own_environment(instance),
            capture_output=True,
            text=True,
            check=False,
        )
        states = dict(line.split() for line in answer.stdout.splitlines())
        if len(states) == len(NODES) and set(states.values()) <= {"idle", "mixed", "allocated"}:
            return
        for node in NODES:
            if daemons.find(instance, f"slurmd-{node.name}") is None:
                tail = daemons.log_tail(instance, f"slurmd-{node.name}")
                raise DaemonFailed(f"slurmd-{node.name}", "ended", tail)
        if time.monotonic() > deadline:
            tail = daemons.log_tail(instance, "slurmctld")
            raise DaemonFailed("slurmctld", f"sees the nodes as {states}", tail)
        time.sleep(0.1)


def _build(instance: Instance, say: Callable[[str], None]) -> Instance:
    unix_users.create_users()
    configuration.write_tree(instance)
    munged = daemons.start(instance, "munged", wait=False)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for work in [pool.submit(_create_database, instance), pool.submit(_build_cards, instance)]:
            work.result()
    daemons.start(instance, "mariadb")
    daemons.wait_ready(instance, "munged", munged)
    daemons.start(instance, "slurmdbd")
    accounting.create_associations(instance)
    daemons.start(instance, "slurmctld")
    for node in NODES:
        daemons.start(instance, f"slurmd-{node.name}", wait=False)
    wait_nodes(instance)
    instance.save()
    return instance


def _build_cards(instance: Instance) -> None:
    """One library under one path per node: from its own path it knows which node it is."""
    environment = daemons.own_environment(instance)
    driver_build.build_burn(instance.root / "bin", environment=environment)
    library = driver_build.build_library(instance.root / "nvml", environment=environment)
    for node in NODES:
        os.link(library, instance.node_dir(node.name) / "lib" / library.name)


def _create_database(instance: Instance) -> None:
    done = subprocess.run(
        [
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={instance.root}/mariadb",
            "--auth-root-authentication-method=socket",
            "--skip-test-db",
            "--skip-name-resolve",
            "--innodb-flush-method=nosync",
            "--innodb-log-file-size=8M",
        ],
        user="slurm",
        group="slurm",
        extra_groups=[],
        cwd="/",
        env=daemons.own_environment(instance),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-12:])
        raise DaemonFailed("mariadb", "could not create its tables", tail)


def _clear(instance: Instance) -> tuple[int, list[str]]:
    """Kill the processes, delete the directory, remove the users when nobody needs them."""
    is_last = not _others_exist(instance)
    ours = (unix_users.find_uid(user) for user in unix_users.created_by_us())
    uids = frozenset(uid for uid in ours if uid)
    killed = processes.kill_marked(instance.root, uids, own_uids=is_last)
    _remove_tree(instance)
    removed: list[str] = []
    if is_last:
        removed = unix_users.remove_users()
        with contextlib.suppress(OSError):
            root_of_all().rmdir()
    return killed, removed


def _remove_tree(instance: Instance) -> None:
    """Delete the directory, though a program that is not ours may still write in it."""
    for attempt in range(20):
        if not instance.root.exists():
            return
        try:
            shutil.rmtree(instance.root)
        except OSError as error:
            if attempt == 19:
                raise TestbedError(f"can't delete {instance.root}: {error}") from error
            time.sleep(0.1)


def _others_exist(instance: Instance) -> bool:
    parent = root_of_all()
    siblings = [path for path in parent.iterdir() if path.is_dir()] if parent.is_dir() else []
    return any(path != instance.root for path in siblings) or bool(
        processes.find_other_roots(instance.root)
    )


@contextlib.contextmanager
def _one_at_a_time(say: Callable[[str], None]) -> Iterator[None]:
    """One `up` or `down` on this machine at a time; the lock leaves no file and dies with us."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as lock:
        deadline = time.monotonic() + 300
        told = False
        while True:
            try:
                lock.bind(b"\0slurmwrap-testbed-lock")
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise TestbedError("another `testbed up` or `down` runs for 300 s") from None
            if not told:
                say("waiting for another `testbed up` or `down`")
                told = True
            time.sleep(0.1)
        os.umask(0o022)
        yield
