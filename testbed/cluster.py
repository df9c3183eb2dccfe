"""The testbed as tests see it: run as a user, wait, break a daemon, ask sacct."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from testbed import daemons, environment, lifecycle
from testbed.failures import TestbedError, WaitTimeout
from testbed.instance import DEFAULT_NAME, Instance, name_instance

T = TypeVar("T")


@dataclass(frozen=True)
class Testbed:
    """A running instance. `facts` is what `testbed env --json` prints."""

    __test__ = False  # not a test class, whatever pytest thinks of its name

    instance: Instance
    facts: dict[str, Any]

    @classmethod
    def up(cls, name: str = DEFAULT_NAME) -> Testbed:
        instance = lifecycle.up(name)
        return cls(instance, environment.describe(instance))

    @classmethod
    def attach(cls, name: str = DEFAULT_NAME) -> Testbed:
        """Use an instance that is up; refuse one that is not."""
        instance = name_instance(name)
        if not lifecycle.is_up(instance):
            raise TestbedError(f"{name} is not up; run: python3 -m testbed up --name {name}")
        return cls(instance, environment.describe(instance))

    @property
    def root(self) -> Path:
        return self.instance.root

    def down(self) -> None:
        lifecycle.down(self.instance.name)

    def environment(self, user: str = "root") -> dict[str, str]:
        """The clean environment that `run_as` gives a user."""
        home = "/root" if user == "root" else str(self.instance.home(user))
        login = {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash"}
        return daemons.client_environment(self.instance) | login

    def start_as(
        self,
        user: str,
        argv: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        **popen: Any,
    ) -> subprocess.Popen[Any]:
        """Start a program as a Unix user (setuid, its groups, clean environment)."""
        entry = pwd.getpwnam(user)
        values = self.environment(user) | dict(env or {})
        return subprocess.Popen(
            list(argv),
            env=values,
            cwd=cwd or values["HOME"],
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=os.getgrouplist(user, entry.pw_gid),
            umask=0o022,
            **popen,
        )

    def run_as(
        self,
        user: str,
        argv: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        input: str | None = None,
        check: bool = False,
        timeout: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as a Unix user and return its output as text."""
        child = self.start_as(
            user,
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="surrogateescape",
        )
        try:
            stdout, stderr = child.communicate(input, timeout=timeout)
        except BaseException:
            child.kill()
            child.communicate()
            raise
        done = subprocess.CompletedProcess(list(argv), child.returncode, stdout, stderr)
        if check and done.returncode != 0:
            raise TestbedError(f"{user}: {done.args} ended with {done.returncode}: {done.stderr}")
        return done

    def submit(self, user: str, *arguments: str, wrap: str | None = None, **options: Any) -> int:
        """`sbatch --parsable` as a user; returns the job id. Jobs start in the user's home."""
        argv = ["sbatch", "--parsable", *arguments]
        if wrap is not None:
            argv.append(f"--wrap={wrap}")
        return int(self.run_as(user, argv, check=True, **options).stdout.split(";")[0])

    def job_state(self, job: int | str) -> str:
        """The state that slurmctld knows, such as RUNNING; empty when it knows the job no more."""
        argv = ["squeue", "-h", "-t", "all", "-o", "%T", "-j", str(job)]
        return self.run_as("root", argv).stdout.strip()

    def wait_for(
        self,
        predicate: Callable[[], T],
        timeout: float = 30.0,
        what: str = "",
        interval: float = 0.1,
    ) -> T:
        """Call until the answer is true and return it; the error names what was awaited."""
        deadline = time.monotonic() + timeout
        while True:
            answer = predicate()
            if answer:
                return answer
            if time.monotonic() > deadline:
                awaited = what or getattr(predicate, "__name__", "the condition")
                raise WaitTimeout(f"not after {timeout:g} s: {awaited} (last answer: {answer!r})")
            time.sleep(interval)

    def start(self, daemon: str) -> None:
        daemons.start(self.instance, daemon)

    def stop(self, daemon: str) -> None:
        daemons.stop(self.instance, daemon)

    def restart(self, daemon: str) -> None:
        daemons.stop(self.instance, daemon)
        daemons.start(self.instance, daemon)

    def kill(self, daemon: str, signal_number: int = signal.SIGKILL) -> None:
        daemons.kill(self.instance, daemon, signal_number)

    def sacct(self, *arguments: str, user: str = "root") -> list[dict[str, str]]:
        """`sacct -P` as a list of rows; pass `-j`, `-D`, `-X`, `--format=…` as wanted."""
        argv = ["sacct", "-P", "--delimiter=\x1f", *arguments]
        pinned = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC"}
        lines = self.run_as(user, argv, env=pinned, check=True).stdout.rstrip("\n").split("\n")
        if not lines:
            return []
        header = lines[0].split("\x1f")
        return [dict(zip(header, line.split("\x1f"), strict=False)) for line in lines[1:]]
