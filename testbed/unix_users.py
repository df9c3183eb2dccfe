"""The Unix users of the testbeds: shared by all of them, removed with the last."""

from __future__ import annotations

import pwd
import subprocess

from testbed.failures import TestbedError

GECOS = "slurmwrap testbed"
PEOPLE = ("swt-alice", "swt-bob", "swt-carol", "swt-dave", "swt-admin")
SERVICES = ("slurmwrap", "slurmwrap-agent")
ALL = PEOPLE + SERVICES


def find_uid(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def create_users() -> None:
    """Create the users that don't exist; a user that exists is used as it is."""
    for user in ALL:
        if find_uid(user) is not None:
            continue
        argv = ["useradd", "--no-create-home", "--home-dir", "/nonexistent", "--comment", GECOS]
        if user in SERVICES:
            argv += ["--system", "--user-group", "--shell", "/usr/sbin/nologin"]
        else:
            argv += ["--user-group", "--shell", "/bin/bash"]
        _run([*argv, user])


def created_by_us() -> list[str]:
    """Only users that carry our comment: a site's own `slurmwrap` user is not ours to remove."""
    return [e.pw_name for e in pwd.getpwall() if e.pw_name in ALL and e.pw_gecos == GECOS]


def remove_users() -> list[str]:
    removed = created_by_us()
    for user in removed:
        _run(["userdel", "--force", user])
    return removed


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TestbedError(f"{' '.join(argv)} failed ({done.returncode}): {done.stderr.strip()}")
