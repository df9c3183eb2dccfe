"""The simulated driver, compiled, with a state directory and processes that read and use it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed import cards, driver_build
from tests.unit.nvml_simulation.driver_process import MINORS, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library and testbed-burn, compiled with every warning an error."""
    directory = tmp_path_factory.mktemp("driver")
    driver_build.build_library(directory, "-Wconversion", "-Werror")
    driver_build.build_burn(directory, "-Wconversion", "-Werror")
    return directory


@pytest.fixture
def state(tmp_path: Path) -> Path:
    directory = tmp_path / "nvml"
    cards.create_cards(directory, MINORS)
    return directory


@pytest.fixture
def start(built: Path, state: Path) -> Iterator[Callable[..., Reader]]:
    readers = []

    def start_reader(**environment: str) -> Reader:
        named = {"LD_LIBRARY_PATH": str(built), "SLURMWRAP_TESTBED_NVML": str(state)}
        readers.append(Reader(named | environment))
        return readers[-1]

    yield start_reader
    for reader in readers:
        reader.close()


@pytest.fixture
def driver(start: Callable[..., Reader]) -> Reader:
    reader = start()
    assert reader.ask("n.nvmlInit()") is None
    return reader


@pytest.fixture
def burn(built: Path, state: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    children = []

    def start_burn(
        *arguments: str, used_cards: int = 1, **environment: str
    ) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [built / "testbed-burn", *arguments],
            env={"SLURMWRAP_TESTBED_NVML": str(state), **environment},
        )
        children.append(child)
        deadline = time.monotonic() + 5
        # Not the hidden ones: those have not got their name yet.
        while _count_uses(state, child.pid) < used_cards and child.poll() is None:
            assert time.monotonic() < deadline, "burn left too few files"
            time.sleep(0.005)
        return child

    yield start_burn
    for child in children:
        child.kill()
        child.wait()


def _count_uses(state: Path, pid: int) -> int:
    return len(list((state / "use").glob(f"[0-9]*.{pid}")))
