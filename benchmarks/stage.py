"""`slurmwrap stage in` against cp, rsync and dd: one large file, and many small ones.

Rounds in turns, each program into a new folder, with the page cache dropped before each where that
is permitted (root). Needs 3 GiB for "large" and 1 GiB per round for "small".
Usage: stage.py [--rounds N] [--place DIR] [large] [small]
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

SLURMWRAP = str(Path(sys.prefix) / "bin/slurmwrap")
LARGE_BYTES = 2 * 1024**3
SMALL_FILES, SMALL_BYTES, FILES_PER_FOLDER = 20_000, 16 * 1024, 500
DROP_CACHES = Path("/proc/sys/vm/drop_caches")

# What may be missed, as seconds of slurmwrap over seconds of the other.
TARGETS = {
    ("large", "dd"): 1 / 0.95,
    ("small", "cp -a"): 0.9,
    ("small", "rsync -a"): 0.8,
}
HIT_TARGET = 1 / 20

Program = Callable[[Path, Path], list[str]]
PROGRAMS: dict[str, Program] = {
    "slurmwrap": lambda source, target: [
        *[SLURMWRAP, "stage", "in", "--cache", str(target), "--headroom", "0", str(source)]
    ],
    "cp -a": lambda source, target: ["cp", "-a", str(source), str(target)],
    "rsync -a": lambda source, target: ["rsync", "-a", str(source), str(target)],
}
LARGE_ONLY: dict[str, Program] = {
    "dd": lambda source, target: [
        *["dd", f"if={source}", f"of={target / source.name}", "bs=4M", "status=none"]
    ],
}


def make_large(folder: Path) -> Path:
    path = folder / "large.bin"
    block = os.urandom(8 * 1024 * 1024)
    with path.open("wb") as file:
        for _ in range(LARGE_BYTES // len(block)):
            file.write(block)
    return path


def make_small(folder: Path) -> Path:
    root = folder / "small"
    data = os.urandom(SMALL_BYTES)
    for number in range(SMALL_FILES):
        place = root / f"part{number // FILES_PER_FOLDER:03}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"sample{number:05}.bin").write_bytes(data)
    return root


def drop_caches() -> bool:
    """Write everything out and forget what was read; False where that is not permitted."""
    os.sync()
    try:
        DROP_CACHES.write_text("3\n")
    except OSError:
        return False
    return True


def measure_seconds(words: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


def run_rounds(
    source: Path, place: Path, programs: dict[str, Program], rounds: int
) -> Iterator[tuple[str, float]]:
    """Pairs of program and seconds; the order turns with every round.

    Small files stay until all is measured: for some minutes ext4 avoids the inodes of files that
    were removed, and searching around 20,000 of them costs more than the copy itself.
    """
    names = list(programs)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            target = place / f"target-{source.name}-{number}-{names.index(name)}"
            target.mkdir(mode=0o755)
            drop_caches()
            words = programs[name](source, target)
            yield name, measure_seconds(words)
            if name == "slurmwrap":
                yield "slurmwrap, again", measure_seconds(words)
                drop_caches()
                yield "slurmwrap, again, cold", measure_seconds(words)
            if source.is_file():
                shutil.rmtree(target)


def report(kind: str, times: dict[str, list[float]]) -> bool:
    """Print medians, spreads and ratios; True when a target is missed."""
    first = statistics.median(times["slurmwrap"])
    missed = False
    for name, seconds in times.items():
        median = statistics.median(seconds)
        line = f"{kind:6} {name:23} {median:7.3f} s  [{min(seconds):.3f} .. {max(seconds):.3f}]"
        if name.startswith("slurmwrap, again"):
            line += f"  {median / first:.3f} of the first"
            target, ratio = HIT_TARGET, median / first
            is_judged = kind == "small" and not name.endswith("cold")
        elif name != "slurmwrap":
            ratio = statistics.median(
                own / other for own, other in zip(times["slurmwrap"], seconds, strict=True)
            )
            line += f"  slurmwrap takes {ratio:.2f} of it"
            target = TARGETS.get((kind, name), 0.0)
            is_judged = target > 0
        else:
            is_judged = False
        if is_judged and ratio > target:
            missed = True
            line += f", over the target of {target:.2f}"
        print(line, flush=True)
    return missed


def describe_machine(place: Path) -> None:
    filesystem = subprocess.run(
        ["stat", "-f", "-c", "%T", str(place)], capture_output=True, text=True, check=True
    ).stdout.strip()
    versions = [
        subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        for program in ("cp", "rsync")
    ]
    print(f"{os.cpu_count()} cores, Linux {platform.release()}, {filesystem} in {place},")
    print(f"Python {platform.python_version()}; " + "; ".join(v.splitlines()[0] for v in versions))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--place", default="/var/tmp", help="a folder of the disk to measure")
    parser.add_argument("kinds", nargs="*", default=["large", "small"])
    arguments = parser.parse_args()
    if shutil.which("rsync") is None:
        print("rsync is not installed: it is not measured")
        del PROGRAMS["rsync -a"]
    place = Path(tempfile.mkdtemp(prefix="slurmwrap-bench-", dir=arguments.place))
    place.chmod(0o755)
    missed = False
    try:
        describe_machine(place)
        print("cold caches" if drop_caches() else "warm caches: dropping them needs root")
        for kind in arguments.kinds:
            source = make_large(place) if kind == "large" else make_small(place)
            programs = {**PROGRAMS, **(LARGE_ONLY if kind == "large" else {})}
            times: dict[str, list[float]] = {}
            for name, seconds in run_rounds(source, place, programs, arguments.rounds):
                times.setdefault(name, []).append(seconds)
            missed = report(kind, times) or missed
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
