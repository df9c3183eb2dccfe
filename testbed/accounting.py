"""What slurmdbd knows in a testbed: accounts, users, levels, qualities of service."""

from __future__ import annotations

import subprocess

from testbed.daemons import own_environment
from testbed.failures import DaemonFailed
from testbed.instance import Instance


def create_associations(instance: Instance) -> None:
    """Enter the testbed's accounts and users into a fresh slurmdbd."""
    associations = instance.root / "etc/associations.cfg"
    for argv in (
        ["sacctmgr", "-i", "-Q", "add", "qos", "high", "Priority=100"],
        ["sacctmgr", "-i", "load", str(associations)],
    ):
        done = subprocess.run(
            argv,
            env=own_environment(instance),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if done.returncode != 0 or "error" in done.stderr:
            output = "\n".join((done.stdout + done.stderr).splitlines()[-12:])
            raise DaemonFailed("slurmdbd", f"refused {' '.join(argv)}", output)
