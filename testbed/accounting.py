"""What slurmdbd knows in a testbed: accounts, users, levels, qualities of service."""

from __future__ import annotations

import subprocess

from testbed.daemons import client_environment
from testbed.failures import TestbedError
from testbed.instance import CLUSTER, Instance

COMMANDS = f"""\
add cluster {CLUSTER}
add qos high Priority=100
modify cluster {CLUSTER} set QosLevel=normal,high DefaultQOS=normal
add account lab Description=lab Organization=testbed
add account vision parent=lab Description=vision Organization=testbed
add account nlp parent=lab Description=nlp Organization=testbed
add account physics Description=physics Organization=testbed
add user swt-alice account=vision,nlp DefaultAccount=vision
add user swt-bob account=nlp DefaultAccount=nlp
add user swt-carol account=physics DefaultAccount=physics
add user swt-dave account=vision DefaultAccount=vision
add coordinator account=lab names=swt-dave
add user slurmwrap account=root DefaultAccount=root AdminLevel=Administrator
add user swt-admin account=root DefaultAccount=root AdminLevel=Operator
quit
"""


def create_associations(instance: Instance) -> None:
    """Enter the testbed's accounts and users into a fresh slurmdbd, in one sacctmgr."""
    done = subprocess.run(
        ["sacctmgr", "-i"],
        input=COMMANDS,
        env=client_environment(instance),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode != 0 or "rror" in done.stdout + done.stderr:
        raise TestbedError(
            f"sacctmgr refused the testbed's accounts:\n{done.stdout}{done.stderr}\n(exit code {done.returncode})"
        )
