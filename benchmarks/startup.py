"""How long a command takes to start, against the bare interpreter with click."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 15
TARGET_RATIO = 2.0
SLURMWRAP = str(Path(sys.prefix) / "bin/slurmwrap")

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "python -c 'import click'": [sys.executable, "-c", "import click"],
    "slurmwrap --help": [SLURMWRAP, "--help"],
    "slurmwrap submit --help": [SLURMWRAP, "submit", "--help"],
    "slurmwrap submit --dry-run": [
        *[SLURMWRAP, "submit", "--dry-run", "--gpus", "1", "--time", "1:00:00"],
        *["--", "python", "train.py"],
    ],
}
BASE = "python -c 'import click'"
JUDGED = ("slurmwrap --help", "slurmwrap submit --dry-run")


def measure_seconds(words: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=True)
    return time.perf_counter() - begun


def main() -> int:
    # In turns, so that a slow moment of the machine hits all alike.
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(ROUNDS + 1):
        for name, words in COMMANDS.items():
            seconds = measure_seconds(words)
            if turn:  # the first turn fills the page cache
                times[name].append(seconds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    missed = False
    for name, median in medians.items():
        ratio = median / medians[BASE]
        is_missed = name in JUDGED and ratio > TARGET_RATIO
        missed = missed or is_missed
        note = f"  over the target of {TARGET_RATIO}" if is_missed else ""
        print(f"{name:30} {median * 1000:7.1f} ms  {ratio:5.2f}{note}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
