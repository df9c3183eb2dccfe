"""Programs that stand in for Slurm's: they print what a real one was recorded to print, or fail."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurmwrap.config.settings import Duration, SlurmSettings
from slurmwrap.slurm.commands import SlurmCommands

RECORDED = Path(__file__).parents[2] / "data/slurm/22.05"
"""Output of a real Slurm 22.05.8 (the testbed's): alice's plain job 10, her array 11 (tasks 0
and 1, raw ids 14 and 11) and her heterogeneous job 12+0 and 12+1 (raw ids 12 and 13), carol's
job 15 on both nodes, bob's suspended job 16 with a hostile name, his job 17 that was suspended
for 4 s and goes on, and his job 18 that waits."""


@dataclass
class FakeSlurm:
    """A folder with stand-ins. Each call is noted in PROGRAM.calls."""

    folder: Path
    _rules: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def answer(
        self,
        program: str,
        stdout: bytes | str | Path = b"",
        *,
        when: str = "",
        status: int = 0,
        stderr: str = "",
        script: str = "",
    ) -> None:
        """What the program does when its arguments contain ``when``. The latest rule that fits
        is the one that counts."""
        rules = self._rules.setdefault(program, [])
        if isinstance(stdout, Path):
            source = stdout
        else:
            source = self.folder / f"{program}.{len(rules)}.out"
            source.write_bytes(stdout.encode() if isinstance(stdout, str) else stdout)
        body = script or (
            f"cat {shlex.quote(str(source))}; printf %s {shlex.quote(stderr)} >&2; exit {status}"
        )
        rules.insert(0, (when, body))
        calls = shlex.quote(str(self.folder / f"{program}.calls"))
        environment = shlex.quote(str(self.folder / f"{program}.env"))
        cases = "\n".join(
            f"*{shlex.quote(words) if words else ''}*) {action} ;;" for words, action in rules
        )
        path = self.folder / program
        path.write_text(
            f"#!/bin/sh\nprintf '%s\\n' \"$*\" >> {calls}\nenv > {environment}\n"
            f'case " $* " in\n{cases}\nesac\n'
        )
        path.chmod(0o755)

    def calls(self, program: str) -> list[str]:
        path = self.folder / f"{program}.calls"
        return path.read_text().splitlines() if path.exists() else []

    def environment(self, program: str) -> dict[str, str]:
        lines = (self.folder / f"{program}.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def commands(self, *, timeout: int = 20, cluster: str = "testbed") -> SlurmCommands:
        settings = SlurmSettings(
            cluster=cluster, bin_dir=str(self.folder), command_timeout=Duration(timeout)
        )
        return SlurmCommands(settings)


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    """Stand-ins of our own; none exists until it is given an answer."""
    folder = tmp_path / "slurm-bin"
    folder.mkdir()
    return FakeSlurm(folder)


@pytest.fixture
def recorded() -> Path:
    """Output that a real Slurm printed."""
    return RECORDED
