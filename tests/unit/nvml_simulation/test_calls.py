"""Every function that the simulated driver exports, called through the real pynvml."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed import driver_build
from tests.unit.nvml_simulation.driver_process import Reader

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc to compile the driver with"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the driver is for Linux"),
]
pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")

# How each exported function is called through pynvml; H is the handle of card 0.
CALLS = {
    "nvmlSystemGetDriverVersion": "()",
    "nvmlSystemGetNVMLVersion": "()",
    "nvmlSystemGetCudaDriverVersion": "()",
    "nvmlSystemGetCudaDriverVersion_v2": "()",
    "nvmlSystemGetProcessName": "(1)",
    "nvmlDeviceGetCount_v2": "()",
    "nvmlDeviceGetHandleByIndex_v2": "(0)",
    "nvmlDeviceGetHandleByUUID": "(n.nvmlDeviceGetUUID(H))",
    "nvmlDeviceGetHandleByPciBusId_v2": "(b'00000000:10:00.0')",
    "nvmlDeviceGetHandleBySerial": "(n.nvmlDeviceGetSerial(H))",
    "nvmlDeviceGetTemperature": "(H, 0)",
    "nvmlDeviceGetTemperatureV": "(H, 0)",
    "nvmlDeviceGetTemperatureThreshold": "(H, 0)",
    "nvmlDeviceGetClockInfo": "(H, 1)",
    "nvmlDeviceGetMaxClockInfo": "(H, 1)",
    "nvmlDeviceGetTotalEccErrors": "(H, 0, 0)",
    "nvmlDeviceGetMemoryErrorCounter": "(H, 1, 1, 2)",
    "nvmlDeviceGetMemoryInfo_v2": "(H, n.nvmlMemory_v2)",
    "nvmlDeviceGetFieldValues": "(H, [83, 186, 82, 1])",
    "nvmlEventSetCreate": "()",
    "nvmlEventSetFree": "(n.nvmlEventSetCreate())",
    "nvmlEventSetWait_v2": "(n.nvmlEventSetCreate(), 0)",
    "nvmlDeviceRegisterEvents": "(H, 8, n.nvmlEventSetCreate())",
    "nvmlDeviceGetMigDeviceHandleByIndex": "(H, 0)",
    "nvmlDeviceGetProcessUtilization": "(H, 0)",
    "nvmlDeviceGetSamples": "(H, 0, 0)",
    "nvmlErrorString": "(15)",
}
PYNVML_NAMES = {
    "nvmlDeviceGetCount_v2": "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex_v2": "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetHandleByPciBusId_v2": "nvmlDeviceGetHandleByPciBusId",
    "nvmlDeviceGetMemoryInfo_v2": "nvmlDeviceGetMemoryInfo",
}
ERRORS_OF_AN_IDLE_CARD = {
    "nvmlEventSetWait_v2": 10,
    "nvmlDeviceGetMigDeviceHandleByIndex": 6,
    "nvmlDeviceGetProcessUtilization": 6,
    "nvmlDeviceGetSamples": 3,
    "nvmlDeviceGetGpuInstanceId": 3,
    "nvmlDeviceGetComputeInstanceId": 3,
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": 2,
}
LIFE = {"nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlShutdown"}


def exported_functions(library: Path) -> list[str]:
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    )
    names = [line.split()[-1] for line in listing.stdout.splitlines()]
    assert all(name.startswith("nvml") for name in names)
    return sorted(set(names) - LIFE)


def test_every_exported_function_answers_through_pynvml(built: Path, driver: Reader) -> None:
    driver.ask("globals().update(H=card(0))")
    names = exported_functions(built / driver_build.LIBRARY)
    assert len(names) > 60
    for name in names:
        function = PYNVML_NAMES.get(name, name)
        answer = driver.ask(f"(n.{function}{CALLS.get(name, '(H)')},)")
        if name in ERRORS_OF_AN_IDLE_CARD:
            assert answer == ERRORS_OF_AN_IDLE_CARD[name], name
        else:
            assert isinstance(answer, list), f"{name} answered error {answer}"


def test_nothing_answers_before_init_or_after_shutdown(start: Callable[..., Reader]) -> None:
    reader = start()
    reader.ask("n.nvmlInit()")
    reader.ask("globals().update(H=card(0))")
    reader.ask("n.nvmlShutdown()")
    assert reader.ask("n.nvmlDeviceGetPowerUsage(H)") == 1
    assert reader.ask("n.nvmlShutdown()") == 1


def test_a_round_of_readings_is_cheap(driver: Reader) -> None:
    """Eight calls on each of four cards: far below what a 1 Hz reader can notice."""
    assert driver.ask("globals().update(hs=[card(i) for i in range(4)])") is None
    calls = (
        "[f(h) for h in hs for f in (n.nvmlDeviceGetUtilizationRates, n.nvmlDeviceGetMemoryInfo,"
        "n.nvmlDeviceGetPowerUsage, n.nvmlDeviceGetComputeRunningProcesses)] and 1"
    )
    begin = time.monotonic()
    for _ in range(50):
        assert driver.ask(calls) == 1
    assert (time.monotonic() - begin) / 50 < 0.02
