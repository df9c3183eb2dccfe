"""The Debian packages a testbed needs, and how they are installed without starting a service."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.failures import NotSupported, TestbedError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Never slurm-wlm-emulator: it turns slurmctld and slurmd into a front-end build.
REQUIRED = (
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-mysql-plugin",
    "munge",
    "libmunge2",
    "mariadb-server-core",
    "mariadb-client-core",
    "gcc",
    "libc6-dev",
    "passwd",
    "procps",
)
REFUSED = "slurm-wlm-emulator"
POLICY = Path("/usr/sbin/policy-rc.d")
POLICY_BACKUP = Path("/usr/sbin/policy-rc.d.before-slurmwrap-testbed")
POLICY_TEXT = (
    "#!/bin/sh\n# slurmwrap testbed: no service starts while packages are installed\nexit 101\n"
)
LISTS = Path("/var/lib/apt/lists")
LISTS_MAX_AGE_SECONDS = 24 * 3600


def check_machine() -> None:
    """Refuse early, in words, where a testbed can't run."""
    if os.geteuid() != 0:
        raise NotSupported("the testbed must run as root: it starts slurmd and creates users")
    if not Path("/etc/debian_version").exists() or shutil.which("apt-get") is None:
        raise NotSupported("the testbed needs Debian 12 (apt-get): this machine is something else")


def find_missing() -> list[str]:
    """Name the required packages that are not installed; refuse the emulator."""
    answer = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *REQUIRED, REFUSED],
        capture_output=True,
        text=True,
        check=False,  # 1 when a package is unknown: exactly what is asked
    )
    installed = {
        words[0]
        for words in (line.split() for line in answer.stdout.splitlines())
        if len(words) == 2 and words[1] == "installed"
    }
    if REFUSED in installed:
        raise TestbedError(
            f"package {REFUSED} is installed: it replaces slurmctld and slurmd by a build that"
            f" breaks multi-node steps; run: apt-get remove {REFUSED}"
        )
    return [name for name in REQUIRED if name not in installed]


def install_missing() -> list[str]:
    """Install what is missing and return its names; nothing happens when all is there."""
    restore_policy()
    missing = find_missing()
    if not missing:
        return []
    if not _lists_are_fresh():
        _apt(["update", "-q"])
    with _services_kept_down():
        try:
            _apt(["install", "-y", "-q", "--no-install-recommends", *missing])
        except TestbedError:
            # An earlier run was killed half way, or the lists name versions the mirror dropped.
            subprocess.run(["dpkg", "--configure", "-a"], capture_output=True, check=False)
            _apt(["update", "-q"])
            _apt(["install", "-y", "-q", "--no-install-recommends", *missing])
    return missing


def restore_policy() -> None:
    """Undo what an `up` that was killed while it installed left behind."""
    if POLICY_BACKUP.exists() or POLICY_BACKUP.is_symlink():
        POLICY_BACKUP.replace(POLICY)
    elif POLICY.is_file() and POLICY.read_bytes() == POLICY_TEXT.encode():
        POLICY.unlink()


@contextlib.contextmanager
def _services_kept_down() -> Iterator[None]:
    if POLICY.exists() or POLICY.is_symlink():
        POLICY.replace(POLICY_BACKUP)
    POLICY.write_text(POLICY_TEXT)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        restore_policy()


def _lists_are_fresh() -> bool:
    stamps = [path.stat().st_mtime for path in LISTS.glob("*_Packages*")]
    stamps += [path.stat().st_mtime for path in LISTS.glob("*_InRelease")]
    return bool(stamps) and time.time() - max(stamps) < LISTS_MAX_AGE_SECONDS


def _apt(arguments: list[str]) -> None:
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive", LC_ALL="C")
    argv = ["apt-get", "-o", "DPkg::Lock::Timeout=300", *arguments]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise TestbedError(f"{' '.join(argv)} failed with exit code {done.returncode}:\n{tail}")
