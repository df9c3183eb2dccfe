"""Compiling the simulated driver and the program that uses its cards."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from testbed.failures import TestbedError

SOURCES = Path(__file__).parent / "nvml"
LIBRARY = "libnvidia-ml.so.1"
LIBRARY_PARTS = ("text", "uses", "scenario", "system", "identity", "readings", "events")
BURN = "testbed-burn"
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra")


def build_library(directory: Path, *flags: str, environment: dict[str, str] | None = None) -> Path:
    """Compile libnvidia-ml.so.1 into a directory that LD_LIBRARY_PATH can name."""
    target = directory / LIBRARY
    sources = [str(SOURCES / f"{part}.c") for part in LIBRARY_PARTS]
    shared = ("-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{LIBRARY}")
    _compile([*FLAGS, *flags, *shared, *sources, "-lm", "-ldl", "-lpthread"], target, environment)
    return target


def build_burn(directory: Path, *flags: str, environment: dict[str, str] | None = None) -> Path:
    """Compile testbed-burn into a directory."""
    target = directory / BURN
    _compile([*FLAGS, *flags, str(SOURCES / "burn.c")], target, environment)
    target.chmod(0o755)
    return target


def _compile(arguments: list[str], target: Path, environment: dict[str, str] | None) -> None:
    temporary = target.with_name(f".{target.name}.new")
    argv = ["gcc", *arguments, "-o", str(temporary)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TestbedError(f"{' '.join(argv)} failed:\n{done.stderr}")
    os.replace(temporary, target)
