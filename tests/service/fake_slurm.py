"""Slurm's commands as shell scripts that answer from files, fail, or hang, as a test says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """#!/bin/sh
folder=$(dirname "$0")/answers
name=$(basename "$0")
echo "$name $*" >> "$folder/asked"
[ -e "$folder/$name.hangs" ] && exec sleep 600
if [ -e "$folder/$name.fails" ]; then cat "$folder/$name.fails" >&2; exit 1; fi
case "$*" in
  *--helpformat*) cat "$folder/sacct.fields" ;;
  *"show user"*) cat "$folder/users" ;;
  *"show account"*) cat "$folder/accounts" ;;
  *"show assoc"*) cat "$folder/associations" ;;
  *"show config"*) echo "ClusterName = c" ;;
  *) cat "$folder/$name" 2>/dev/null ;;
esac
exit 0
"""
_FIELDS = (
    "JobIDRaw JobID Cluster User Account Partition QOS State Submit Start End ElapsedRaw"
    " Suspended TimelimitRaw NodeList AllocTRES DBIndex Reservation WCKey JobName"
)


@dataclass(frozen=True)
class FakeSlurm:
    """A folder for slurm.bin_dir."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> FakeSlurm:
        (folder / "answers").mkdir(parents=True)
        for name in ("squeue", "sacct", "sacctmgr", "scontrol", "scancel"):
            program = folder / name
            program.write_text(_SCRIPT)
            program.chmod(0o755)
        made = cls(folder)
        made.answer("sacct.fields", _FIELDS)
        for what in ("users", "accounts", "associations"):
            made.answer(what, "")
        return made

    def answer(self, what: str, text: str) -> None:
        """What a command prints from now on."""
        (self.folder / "answers" / what).write_text(text)

    def fail(self, program: str, words: str = "Connection refused") -> None:
        """The program fails from now on."""
        self.answer(f"{program}.fails", words)

    def hang(self, program: str) -> None:
        """The program does not end from now on."""
        self.answer(f"{program}.hangs", "")

    def mend(self, program: str) -> None:
        """The program works again."""
        for kind in ("fails", "hangs"):
            (self.folder / "answers" / f"{program}.{kind}").unlink(missing_ok=True)

    def asked(self, program: str) -> int:
        """How often it was run."""
        path = self.folder / "answers" / "asked"
        lines = path.read_text().splitlines() if path.exists() else []
        return sum(line.startswith(f"{program} ") for line in lines)
