"""The real pynvml against the simulated driver: values, errors, MIG, energy, events."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed import cards, driver_build
from testbed.failures import TestbedError
from tests.unit.nvml_simulation.driver_process import MINORS, Reader, utils

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc to compile the driver with"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the driver is for Linux"),
]
pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")


def test_idle_cards_answer_what_an_idle_card_answers(driver: Reader) -> None:
    assert driver.ask("n.nvmlDeviceGetCount()") == 4
    assert utils(driver) == [0, 0, 0, 0]
    assert driver.ask("n.nvmlDeviceGetPowerUsage(card(0))") == 60_000
    assert driver.ask("n.nvmlDeviceGetMemoryInfo(card(0)).used") == 500 << 20
    assert driver.ask("n.nvmlDeviceGetComputeRunningProcesses(card(0))") == []
    assert driver.ask("n.nvmlDeviceGetName(card(0))") == "NVIDIA A100-SXM4-80GB"


def test_minor_numbers_come_in_any_order(driver: Reader) -> None:
    minors = driver.ask("[n.nvmlDeviceGetMinorNumber(card(i)) for i in range(4)]")
    assert minors == list(MINORS)
    assert driver.ask("[n.nvmlDeviceGetIndex(card(i)) for i in range(4)]") == [0, 1, 2, 3]


def test_a_card_is_found_by_uuid_bus_id_and_serial(driver: Reader, state: Path) -> None:
    uuids = driver.ask("[n.nvmlDeviceGetUUID(card(i)) for i in range(4)]")
    assert uuids == [cards.read_card(state, i)["uuid"] for i in range(4)]
    assert len(set(uuids)) == 4
    for index, key in enumerate(uuids):
        found = f"n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID({key!r}))"
        assert driver.ask(found) == index
    bus = driver.ask("n.nvmlDeviceGetPciInfo(card(2)).busId")
    assert driver.ask(f"n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId({bus!r}))") == 2
    assert driver.ask("n.nvmlDeviceGetHandleByUUID('GPU-none')") == 6
    assert driver.ask("card(4)") == 2


def test_the_two_memory_calls_agree(driver: Reader, state: Path) -> None:
    cards.set_card(state, 1, memory_used_mib=9000)
    old = driver.ask("n.nvmlDeviceGetMemoryInfo(card(1))")
    new = driver.ask("n.nvmlDeviceGetMemoryInfo(card(1), n.nvmlMemory_v2)")
    assert old["used"] == 9000 << 20 == new["used"] + new["reserved"]
    assert old["total"] == new["total"] == new["used"] + new["free"] + new["reserved"]


def test_a_setting_takes_effect_at_once_and_on_its_card_only(driver: Reader, state: Path) -> None:
    for value in (95, 7, 0, 100):
        cards.set_card(state, 2, util=value)
        assert utils(driver) == [0, 0, value, 0]
    assert driver.ask("n.nvmlDeviceGetPowerUsage(card(2))") == 350_000
    cards.set_card(state, 2, power_mw=123_456, temperature=71)
    assert driver.ask("n.nvmlDeviceGetPowerUsage(card(2))") == 123_456
    assert driver.ask("n.nvmlDeviceGetTemperature(card(2), 0)") == 71
    cards.reset_card(state, 2)
    assert utils(driver) == [0, 0, 0, 0]


def test_utilisation_follows_its_schedule(driver: Reader, state: Path) -> None:
    now = time.time()
    cards.set_card(state, 0, util="95:60,0", since=now - 10)
    cards.set_card(state, 1, util="95:60,0", since=now - 70)
    cards.set_card(state, 2, util="80:20,10:10", since=now - 30 * 7 - 25)
    cards.set_card(state, 3, util="80:20,10:10", since=now - 30 * 7 - 5)
    assert utils(driver) == [95, 0, 10, 80]


@pytest.mark.parametrize("code", [3, 4, 15, 16, 999])
def test_an_error_of_one_call_of_one_card_touches_nothing_else(
    driver: Reader, state: Path, code: int
) -> None:
    cards.set_card(state, 1, **{"error.GetUtilizationRates": code})
    assert driver.ask("n.nvmlDeviceGetUtilizationRates(card(1))") == code
    assert driver.ask("n.nvmlDeviceGetPowerUsage(card(1))") == 60_000
    for other in (0, 2, 3):
        assert driver.ask(f"n.nvmlDeviceGetUtilizationRates(card({other})).gpu") == 0
    cards.set_card(state, 1, **{"error.GetUtilizationRates": None})
    assert utils(driver) == [0, 0, 0, 0]


def test_a_lost_card_answers_so_to_everything(driver: Reader, state: Path) -> None:
    driver.ask("globals().update(kept=card(2))")
    cards.set_card(state, 2, **{"error.*": 15})
    for call in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo"):
        assert driver.ask(f"n.{call}(kept)") == 15
    assert driver.ask("card(2)") == 15
    assert driver.ask("n.nvmlDeviceGetCount()") == 4
    assert driver.ask("n.nvmlDeviceGetPowerUsage(card(3))") == 60_000


def test_full_and_versioned_names_mean_the_same_call(driver: Reader, state: Path) -> None:
    cards.set_card(state, 0, **{"error.nvmlDeviceGetComputeRunningProcesses_v3": 4})
    assert driver.ask("n.nvmlDeviceGetComputeRunningProcesses(card(0))") == 4


def test_a_delay_holds_its_call_and_no_other_thread(driver: Reader, state: Path) -> None:
    cards.set_card(state, 0, **{"delay.GetUtilizationRates": 2000})
    driver.ask(
        "globals().update(slow=threading.Thread("
        "target=n.nvmlDeviceGetUtilizationRates, args=(card(0),)))"
    )
    begin = time.monotonic()
    driver.ask("slow.start()")
    assert driver.ask("n.nvmlDeviceGetUtilizationRates(card(1)).gpu") == 0
    assert driver.ask("n.nvmlDeviceGetPowerUsage(card(0))") == 60_000
    assert time.monotonic() - begin < 1.5
    driver.ask("slow.join()")
    assert time.monotonic() - begin >= 2


def test_init_answers_what_the_driver_file_says(start: Callable[..., Reader], state: Path) -> None:
    cards.set_driver(state, **{"error.nvmlInit": 18})
    reader = start()
    assert reader.ask("n.nvmlInit()") == 18
    cards.set_driver(state, **{"error.nvmlInit": None}, driver_version="550.1")
    assert reader.ask("n.nvmlInit()") is None
    assert reader.ask("n.nvmlSystemGetDriverVersion()") == "550.1"
    cards.set_driver(state, **{"error.*": 18})
    assert reader.ask("card(0)") == 18


def test_no_state_directory_is_no_driver(start: Callable[..., Reader], tmp_path: Path) -> None:
    reader = start(SLURMWRAP_TESTBED_NVML=str(tmp_path / "nowhere"))
    assert reader.ask("n.nvmlInit()") == 9
    assert reader.ask("n.nvmlDeviceGetCount()") == 1


def test_the_library_knows_its_node_by_its_own_path_or_by_name(
    start: Callable[..., Reader], built: Path, tmp_path: Path
) -> None:
    for node, name in (("gpu1", "first"), ("gpu2", "second")):
        cards.create_cards(tmp_path / "nodes" / node / "nvml", (0,), name)
    library = tmp_path / "nodes/gpu2/lib"
    library.mkdir()
    shutil.copy(built / driver_build.LIBRARY, library)
    by_path = start(LD_LIBRARY_PATH=str(library), SLURMWRAP_TESTBED_NVML="")
    by_name = start(
        SLURMWRAP_TESTBED=str(tmp_path), SLURMWRAP_TESTBED_NODE="gpu1", SLURMWRAP_TESTBED_NVML=""
    )
    for reader, expected in ((by_path, "second"), (by_name, "first")):
        reader.ask("n.nvmlInit()")
        assert reader.ask("n.nvmlDeviceGetName(card(0))") == expected


def test_mig_has_no_utilisation_and_shares_memory(driver: Reader, state: Path) -> None:
    cards.set_card(state, 1, mig=1, mig_devices=2, util=50)
    assert driver.ask("n.nvmlDeviceGetMigMode(card(1))") == [1, 1]
    assert driver.ask("n.nvmlDeviceGetMigMode(card(0))") == [0, 0]
    assert driver.ask("n.nvmlDeviceGetUtilizationRates(card(1))") == 3
    mig = "n.nvmlDeviceGetMigDeviceHandleByIndex(card(1), {})"
    assert driver.ask(f"n.nvmlDeviceGetUtilizationRates({mig.format(0)})") == 3
    whole = driver.ask("n.nvmlDeviceGetMemoryInfo(card(1)).total")
    assert driver.ask(f"n.nvmlDeviceGetMemoryInfo({mig.format(1)}).total") == whole // 2
    uuid = driver.ask(f"n.nvmlDeviceGetUUID({mig.format(1)})")
    assert uuid.startswith("MIG-")
    assert driver.ask(f"n.nvmlDeviceIsMigDeviceHandle(n.nvmlDeviceGetHandleByUUID({uuid!r}))") == 1
    assert driver.ask(mig.format(2)) == 6
    assert utils_of(driver, 0, 2, 3) == [0, 0, 0]


def utils_of(driver: Reader, *indexes: int) -> list[int]:
    return [driver.ask(f"n.nvmlDeviceGetUtilizationRates(card({i})).gpu") for i in indexes]


@pytest.mark.parametrize(
    "text",
    ["nonsense", "util=lots", "util=101", "util=5:", "util=5,6", "what=1", "\0", "=", "minor=-1"],
)
def test_a_malformed_file_makes_its_card_unknown_and_no_other(
    driver: Reader, state: Path, text: str
) -> None:
    (state / "card3").write_text(text)
    assert driver.ask("n.nvmlDeviceGetUtilizationRates(card(3))") == 999
    assert utils_of(driver, 0, 1, 2) == [0, 0, 0]


def test_a_card_whose_file_is_gone_is_lost(driver: Reader, state: Path) -> None:
    driver.ask("globals().update(kept=card(3))")
    (state / "card3").unlink()
    assert driver.ask("n.nvmlDeviceGetPowerUsage(kept)") == 15
    assert driver.ask("n.nvmlDeviceGetCount()") == 3


def test_energy_is_power_over_time_and_shared_by_readers(
    driver: Reader, start: Callable[..., Reader], state: Path
) -> None:
    cards.set_card(state, 0, power_mw=200_000)
    second = start()
    second.ask("n.nvmlInit()")
    energy = "n.nvmlDeviceGetTotalEnergyConsumption(card(0))"
    before, readings = time.monotonic(), [driver.ask(energy)]
    after = time.monotonic()
    for reader in (driver, second) * 3:
        time.sleep(0.05)
        last_before = time.monotonic()
        readings.append(reader.ask(energy))
    last_after = time.monotonic()
    assert readings == sorted(readings)
    used = (readings[-1] - readings[0]) / 200_000
    assert last_before - after - 0.01 <= used <= last_after - before + 0.01


def test_a_new_xid_is_an_event(driver: Reader, state: Path) -> None:
    driver.ask("globals().update(events=n.nvmlEventSetCreate())")
    for index in range(4):
        driver.ask(
            f"n.nvmlDeviceRegisterEvents(card({index}), n.nvmlEventTypeXidCriticalError, events)"
        )
    assert driver.ask("n.nvmlEventSetWait_v2(events, 50)") == 10
    cards.set_card(state, 1, xid="79")
    event = driver.ask("n.nvmlEventSetWait_v2(events, 1000)")
    assert (event["eventType"], event["eventData"]) == (8, 79)
    assert driver.ask("n.nvmlEventSetWait_v2(events, 50)") == 10
    cards.set_card(state, 1, xid="79#again")
    assert driver.ask("n.nvmlEventSetWait_v2(events, 1000).eventData") == 79
    assert driver.ask("n.nvmlEventSetFree(events)") is None


def test_set_card_refuses_keys_and_values_it_does_not_know(state: Path) -> None:
    with pytest.raises(TestbedError, match="utilisation"):
        cards.set_card(state, 0, utilisation=5)
    with pytest.raises(TestbedError, match="no card 9"):
        cards.set_card(state, 9, util=5)
    with pytest.raises(TestbedError, match="one line"):
        cards.set_card(state, 0, name="a\nutil=5")
    with pytest.raises(TestbedError, match="no key"):
        cards.set_driver(state, util=5)
    assert cards.find_index(state, 3) == 0
