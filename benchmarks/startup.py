"""How long a command takes to start, against the bare interpreter with click, and sbatch.

Every round runs each command once, in turns, so that a slow moment of the machine hits all alike.
A ratio is the median of the rounds' own ratios; that of processor time is steadier than that of
elapsed time where other work runs beside. The commands compared must be compiled (.pyc), as
an installed wheel is. Submission is measured where a testbed is up; its jobs are held, and
cancelled at the end.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROUNDS = 25
USER = "swt-alice"
SLURMWRAP = str(Path(sys.prefix) / "bin/slurmwrap")
REQUEST = ["--gpus", "1", "--time", "1:00:00", "--", "python", "train.py"]

CLICK = "python -c 'import click'"
HELP = "slurmwrap --help"
DRY_RUN = "slurmwrap submit --dry-run"
CONFIGURED = "  with a site's settings"
SBATCH = "sbatch"
SUBMIT = "slurmwrap submit"

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    CLICK: [sys.executable, "-c", "import click"],
    HELP: [SLURMWRAP, "--help"],
    "slurmwrap submit --help": [SLURMWRAP, "submit", "--help"],
    DRY_RUN: [SLURMWRAP, "submit", "--dry-run", *REQUEST],
}
SITE = """
[daemon]
url = "http://slurmwrap.example.org:8642"
[billing]
timezone = "Asia/Shanghai"
currency = "CNY"
[notify]
user_urls = ["mailto://smtp.example.org:25?from=slurmwrap@example.org&to={user}@example.org"]
[staging]
cache_dir = "/nvme/slurmwrap-{user}"
workers = 16
[submit]
template_dirs = ["/shared/slurmwrap/templates"]
"""
TARGETS = {
    HELP: ([CLICK], 2.0),
    DRY_RUN: ([CLICK], 2.0),
    CONFIGURED: ([CLICK], 2.0),
    SUBMIT: ([DRY_RUN, SBATCH], 1.3),
}
"""Per command, the commands that its time is compared with, summed, and the largest ratio."""


class Measured(NamedTuple):
    """One call of a command."""

    seconds: float
    processor_seconds: float
    output: str


Measure = Callable[[], Measured]


def measure_once(words: list[str], **how: Any) -> Measured:
    begun, used = time.perf_counter(), processor_seconds()
    done = subprocess.run(words, capture_output=True, timeout=60, check=True, text=True, **how)
    return Measured(time.perf_counter() - begun, processor_seconds() - used, done.stdout)


def processor_seconds() -> float:
    """What the processes that have ended so far used."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure_all(commands: Mapping[str, Measure]) -> dict[str, list[Measured]]:
    results: dict[str, list[Measured]] = {name: [] for name in commands}
    for number in range(ROUNDS + 1):
        for name, measure in commands.items():
            measured = measure()
            if number:  # the first round fills the page cache
                results[name].append(measured)
    return results


def find_testbed() -> dict[str, Any] | None:
    name = os.environ.get("SLURMWRAP_TESTBED_NAME", "dev")
    words = [sys.executable, "-m", "testbed", "env", "--name", name, "--json"]
    done = subprocess.run(words, capture_output=True, timeout=60, check=False)
    if done.returncode or os.geteuid():
        print("submission is not measured: it needs root and a testbed (./dev testbed up)")
        return None
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def submission_commands(facts: dict[str, Any], jobs: list[str]) -> dict[str, Measure]:
    """sbatch and submit of one script, as a user of the testbed; their jobs go into ``jobs``."""
    home = facts["home"][USER]
    environment = {"PATH": os.environ["PATH"], "SLURM_CONF": facts["slurm_conf"], "HOME": home}
    how = {"user": USER, "group": USER, "extra_groups": [], "cwd": home, "env": environment}
    hold = ["--sbatch", "hold"]
    script = measure_once([SLURMWRAP, "submit", "--dry-run", *hold, *REQUEST], **how).output

    def measure(words: list[str], **more: Any) -> Measured:
        measured = measure_once(words, **how, **more)
        jobs.append(measured.output.partition(";")[0].strip())
        return measured

    return {
        DRY_RUN: partial(measure_once, COMMANDS[DRY_RUN], **how),
        SBATCH: partial(measure, ["sbatch", "--parsable"], input=script),
        SUBMIT: partial(measure, [SLURMWRAP, "submit", *hold, *REQUEST]),
    }


def report(results: dict[str, list[Measured]]) -> bool:
    """Print a line per command; whether every target was kept."""
    kept = True
    for name, measured in results.items():
        elapsed = [one.seconds for one in measured]
        least, median = min(elapsed) * 1000, statistics.median(elapsed) * 1000
        line = f"{name:28} min {least:6.1f}  median {median:6.1f} ms"
        base, target = TARGETS.get(name, ([CLICK], None))
        if all(other in results for other in base):
            others = list(zip(*(results[other] for other in base), strict=True))
            low, ratio, high = quartiles(
                one.seconds / sum(other.seconds for other in round_)
                for one, round_ in zip(measured, others, strict=True)
            )
            _, processor_ratio, _ = quartiles(
                one.processor_seconds / sum(other.processor_seconds for other in round_)
                for one, round_ in zip(measured, others, strict=True)
            )
            line += f"  {ratio:5.2f} ({low:.2f} to {high:.2f}), processor {processor_ratio:5.2f}"
            line += f" x {' + '.join(base)}"
            if target is not None:
                kept = kept and ratio <= target
                line += f", target {target}{'' if ratio <= target else ': MISSED'}"
        print(line)
    return kept


def quartiles(ratios: Iterable[float]) -> list[float]:
    return statistics.quantiles(ratios, n=4)


def main() -> int:
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as site:
        site.write(SITE)
        site.flush()
        return measure_and_judge(site.name)


def measure_and_judge(site_file: str) -> int:
    print(f"{ROUNDS} rounds; ratios: median of the rounds' own (middle half of them)")
    commands = {**COMMANDS, CONFIGURED: list(COMMANDS[DRY_RUN])}
    commands[CONFIGURED][1:1] = ["--config", site_file]
    kept = report(
        measure_all({name: partial(measure_once, words) for name, words in commands.items()})
    )
    facts = find_testbed()
    if facts is not None:
        jobs: list[str] = []
        try:
            kept = report(measure_all(submission_commands(facts, jobs))) and kept
        finally:
            environment = {**os.environ, "SLURM_CONF": facts["slurm_conf"]}
            subprocess.run(["scancel", *jobs], env=environment, timeout=60, check=False)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
