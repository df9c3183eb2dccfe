"""The daemons of a testbed: how each is started, when it is ready, how it is stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from testbed import processes
from testbed.failures import DaemonFailed, TestbedError
from testbed.instance import NODES, Instance

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NAMES = ("munged", "mariadb", "slurmdbd", "slurmctld", *(f"slurmd-{n.name}" for n in NODES))


@dataclass(frozen=True)
class Daemon:
    name: str
    argv: list[str]
    user: str
    is_ready: Callable[[], bool]
    environment: dict[str, str] = field(default_factory=dict)
    ready_seconds: float = 30.0


def describe(instance: Instance, name: str) -> Daemon:
    """Say how a daemon of this instance is run."""
    root = instance.root
    if name == "munged":
        argv = ["munged", "--foreground", f"--key-file={instance.munge_key}"]
        argv += [f"--socket={instance.munge_socket}", f"--seed-file={root}/munge/seed"]
        argv += [f"--pid-file={root}/munge/munged.pid", f"--log-file={instance.log('munged')}"]
        return Daemon(name, argv, "munge", lambda: _answers(instance.munge_socket))
    if name == "mariadb":
        argv = ["mariadbd", f"--defaults-file={root}/etc/mariadb.cnf"]
        return Daemon(name, argv, "slurm", lambda: _answers(instance.mariadb_socket))
    if name == "slurmdbd":
        where = {"SLURM_CONF": str(root / "etc/slurm.conf")}
        where["MYSQL_UNIX_PORT"] = str(instance.mariadb_socket)
        return Daemon(name, ["slurmdbd", "-D"], "slurm", lambda: _slurmdbd_answers(instance), where)
    where = {"SLURM_CONF": str(instance.slurm_conf)}
    if name == "slurmctld":
        argv = ["slurmctld", "-D"]
        return Daemon(name, argv, "slurm", lambda: _slurmctld_answers(instance), where)
    if name not in NAMES:
        raise TestbedError(f"no daemon {name!r} in a testbed; there are: {', '.join(NAMES)}")
    node = name.removeprefix("slurmd-")
    argv = ["slurmd", "-D", "-N", node]
    return Daemon(name, argv, "root", lambda: _listens(instance.ports[node]), where)


def start(instance: Instance, name: str, wait: bool = True) -> subprocess.Popen[bytes] | None:
    """Start a daemon that does not run, and wait until it answers."""
    daemon = describe(instance, name)
    if find(instance, name) is not None:
        return None
    with (instance.root / "log" / f"{name}.out").open("ab") as stream:
        child = subprocess.Popen(
            daemon.argv,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            cwd="/",
            user=daemon.user,
            group=daemon.user,
            extra_groups=[],
            umask=0o022,
            env=_environment(instance, daemon),
        )
    process = processes.read_process(child.pid)
    started = process.started_ticks if process else 0
    _pid_file(instance, name).write_text(f"{child.pid} {started}\n")
    if wait:
        wait_ready(instance, name, child)
    return child


def wait_ready(instance: Instance, name: str, child: subprocess.Popen[bytes] | None = None) -> None:
    """Wait until a started daemon answers; tell its log's end when it doesn't."""
    daemon = describe(instance, name)
    deadline = time.monotonic() + daemon.ready_seconds
    while not daemon.is_ready():
        code = child.poll() if child else None
        if code is not None:
            raise DaemonFailed(name, f"ended with {_describe_exit(code)}", log_tail(instance, name))
        if time.monotonic() > deadline:
            reason = f"did not answer within {daemon.ready_seconds:.0f} s"
            raise DaemonFailed(name, reason, log_tail(instance, name))
        time.sleep(0.05)


def find(instance: Instance, name: str) -> int | None:
    """The pid of a running daemon, by its pid file, start time and mark."""
    try:
        pid, started = map(int, _pid_file(instance, name).read_text().split())
    except (OSError, ValueError):
        return None
    process = processes.read_process(pid)
    if process is None or process.mark != str(instance.root):
        return None
    return pid if started in (0, process.started_ticks) else None


def stop(instance: Instance, name: str, timeout: float = 15.0) -> None:
    """Ask a daemon to end, insist after the timeout, and return when it is gone."""
    describe(instance, name)
    pid = find(instance, name)
    if pid is None:
        return
    processes.send_signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while find(instance, name) is not None:
        if time.monotonic() > deadline:
            processes.send_signal(pid, signal.SIGKILL)
        time.sleep(0.02)
    _reap(pid)


def kill(instance: Instance, name: str, number: int = signal.SIGKILL) -> None:
    """Send a signal to a daemon that runs."""
    describe(instance, name)
    pid = find(instance, name)
    if pid is None:
        raise TestbedError(f"{name} is not running")
    processes.send_signal(pid, number)


def log_tail(instance: Instance, name: str, lines: int = 12) -> str:
    text: list[str] = []
    for path in (instance.log(name), instance.root / "log" / f"{name}.out"):
        if path.exists() and len(text) < lines:
            text += path.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join(f"  {line}" for line in text)


def client_environment(instance: Instance) -> dict[str, str]:
    """The environment in which Slurm's commands speak to this instance and nothing else."""
    return {
        "PATH": f"{instance.root}/bin:{PATH}",
        "LC_ALL": "C.UTF-8",
        "SLURM_CONF": str(instance.slurm_conf),
        "SLURMWRAP_TESTBED": str(instance.root),
        "SLURMWRAP_TESTBED_MUNGE_SOCKET": str(instance.munge_socket),
    }


def own_environment(instance: Instance) -> dict[str, str]:
    """The same for programs that `up` runs: marked, so that `down` ends them when `up` died."""
    return client_environment(instance) | {processes.MARK: str(instance.root)}


def _environment(instance: Instance, daemon: Daemon) -> dict[str, str]:
    base = {"PATH": PATH, "LC_ALL": "C.UTF-8", processes.MARK: str(instance.root)}
    if "TZ" in os.environ:
        base["TZ"] = os.environ["TZ"]
    return base | daemon.environment


def _pid_file(instance: Instance, name: str) -> Path:
    return instance.root / "run/pid" / name


def _describe_exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def _reap(pid: int) -> None:
    """Collect a child of ours, so that no zombie stays while a test session lives."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(5)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _listens(port: int) -> bool:
    """Somebody listens on the port; asked of the kernel, since Slurm logs a probe as an error."""
    wanted = f":{port:04X}"
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in table]
    return any(row[1].endswith(wanted) and row[3] == "0A" for row in rows)


def _slurmdbd_answers(instance: Instance) -> bool:
    return _listens(instance.ports["slurmdbd"]) and _succeeds(
        instance, ["sacctmgr", "-n", "-P", "show", "cluster", "format=cluster"]
    )


def _slurmctld_answers(instance: Instance) -> bool:
    return _listens(instance.ports["slurmctld"]) and _succeeds(
        instance, ["scontrol", "show", "config"]
    )


def _succeeds(instance: Instance, argv: list[str]) -> bool:
    done = subprocess.run(
        argv, env=own_environment(instance), capture_output=True, check=False, timeout=30
    )
    return done.returncode == 0
