"""testbed-burn: what a card shows while a program uses it, and when it dies."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed import cards
from tests.unit.nvml_simulation.driver_process import Reader, utils

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc to compile the driver with"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the driver is for Linux"),
]
pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")


def test_burn_uses_the_cards_slurm_names_by_minor_number(
    driver: Reader, burn: Callable[..., subprocess.Popen[bytes]]
) -> None:
    child = burn("--util", "90", "--memory-mib", "7000", used_cards=2, SLURM_JOB_GPUS="0,2")
    assert utils(driver) == [0, 90, 0, 90]  # minors 3, 2, 1, 0
    processes = driver.ask("[vars(p) for p in n.nvmlDeviceGetComputeRunningProcesses(card(3))]")
    assert [(p["pid"], p["usedGpuMemory"]) for p in processes] == [(child.pid, 7000 << 20)]
    assert driver.ask("n.nvmlDeviceGetMemoryInfo(card(3)).used") == 7500 << 20
    assert driver.ask("n.nvmlDeviceGetPowerUsage(card(3))") == 321_000
    assert driver.ask("n.nvmlDeviceGetComputeRunningProcesses(card(0))") == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_burn_frees_its_card_at_once(
    driver: Reader, burn: Callable[..., subprocess.Popen[bytes]], number: int
) -> None:
    child = burn("--cards", "1")
    assert utils(driver) == [0, 0, 95, 0]
    child.send_signal(number)
    deadline = time.monotonic() + 5
    while utils(driver) != [0, 0, 0, 0]:  # not waited for: a zombie uses no card
        assert time.monotonic() < deadline
    assert driver.ask("n.nvmlDeviceGetComputeRunningProcesses(card(2))") == []
    assert child.wait() == -number


def test_another_process_with_a_dead_burns_pid_does_not_inherit_its_card(
    driver: Reader, burn: Callable[..., subprocess.Popen[bytes]], state: Path
) -> None:
    child = burn("--cards", "1")
    (file,) = (state / "use").iterdir()
    text = file.read_text().replace(f"pid={child.pid}", f"pid={os.getpid()}")
    child.kill()
    child.wait()
    file.write_text(text)
    assert utils(driver) == [0, 0, 0, 0]


def test_burns_on_one_card_add_up(
    driver: Reader, burn: Callable[..., subprocess.Popen[bytes]]
) -> None:
    burn("--util", "30", "--cards", "0")
    burn("--util", "25", "--cards", "0-1", used_cards=2)
    burn("--pattern", "60:100,0:100", "--cards", "1")
    assert utils(driver) == [0, 0, 85, 55]
    burn("--util", "90", "--cards", "1")
    assert utils(driver) == [0, 0, 100, 55]


def test_a_burn_ends_on_time_and_leaves_no_file(
    driver: Reader, burn: Callable[..., subprocess.Popen[bytes]], state: Path
) -> None:
    begin = time.monotonic()
    child = burn("--cards", "0", "--seconds", "0.5")
    assert child.wait(10) == 0
    assert time.monotonic() - begin >= 0.5
    assert utils(driver) == [0, 0, 0, 0]
    assert list((state / "use").iterdir()) == []


def test_what_the_file_says_wins_over_use(
    driver: Reader, burn: Callable[..., subprocess.Popen[bytes]], state: Path
) -> None:
    burn("--cards", "0")
    cards.set_card(state, 3, util=0, power_mw=300_000, memory_used_mib=70_000)
    assert utils(driver) == [0, 0, 0, 0]
    assert driver.ask("n.nvmlDeviceGetPowerUsage(card(3))") == 300_000
    assert len(driver.ask("n.nvmlDeviceGetComputeRunningProcesses(card(3))")) == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--util", "101", "--cards", "0"), "101"),
        (("--pattern", "5,6", "--cards", "0"), "5,6"),
        (("--cards", "NoDevFiles"), "NoDevFiles"),
        ((), "SLURM_JOB_GPUS"),
        (("extra",), "extra"),
    ],
)
def test_burn_refuses_what_it_cannot_do(
    built: Path, state: Path, arguments: tuple[str, ...], word: str
) -> None:
    done = subprocess.run(
        [built / "testbed-burn", *arguments],
        env={"SLURMWRAP_TESTBED_NVML": str(state)},
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    assert done.returncode == 2
    assert word in done.stderr
