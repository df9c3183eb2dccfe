"""NvmlReader through the real pynvml against the simulated driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurmwrap.errors import ReaderError
from slurmwrap.gpu.nvml import NvmlReader
from slurmwrap.gpu.reader import CardRead
from slurmwrap.model import ReadStatus
from testbed.cards import create_cards, set_card, set_driver

MEASURED = (
    "utilisation",
    "memory_used_bytes",
    "memory_total_bytes",
    "power_milliwatts",
    "energy_millijoules",
    "temperature_celsius",
    "sm_clock_mhz",
    "ecc_uncorrected",
    "processes",
)

NewReader = Callable[..., NvmlReader]


@pytest.fixture
def state(tmp_path: Path, driver_library: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State directory of a node with minors 3,2,1,0 in the driver's order."""
    # Loaded once under its name, it is what the dynamic linker gives to pynvml.
    ctypes.CDLL(str(driver_library))
    folder = tmp_path / "nvml"
    create_cards(folder, [3, 2, 1, 0])
    monkeypatch.setenv("SLURMWRAP_TESTBED_NVML", str(folder))
    return folder


@pytest.fixture
def new_reader(state: Path) -> Iterator[NewReader]:
    readers: list[NvmlReader] = []

    def make(**options: object) -> NvmlReader:
        readers.append(NvmlReader(**options))  # type: ignore[arg-type]
        return readers[-1]

    yield make
    for reader in readers:
        reader.close()


def read_all(reader: NvmlReader, *, fully: bool = True) -> list[CardRead]:
    return [reader.read(card, fully=fully) for card in reader.list_cards()]


def utilisations(reads: list[CardRead]) -> list[int | None]:
    return [read.utilisation for read in reads]


def test_every_value_of_a_healthy_card(state: Path, new_reader: NewReader) -> None:
    """Units: bytes, milliwatts, millijoules, degrees, MHz; counts of errors and processes."""
    set_card(
        state,
        3,
        util=87,
        memory_used_mib=40_000,
        memory_total_mib=81_920,
        power_mw=312_000,
        temperature=61,
        sm_clock_mhz=1_305,
        ecc_uncorrected=2,
        energy_mj=5_000_000,
        processes="4242:39000",
    )
    read = read_all(new_reader())[0]
    assert read.status is ReadStatus.OK
    assert read.utilisation == 87
    assert read.memory_used_bytes == 40_000 * 1024**2
    assert read.memory_total_bytes == 81_920 * 1024**2
    assert read.power_milliwatts == 312_000
    assert read.energy_millijoules is not None
    assert read.energy_millijoules >= 0
    assert read.temperature_celsius == 61
    assert read.sm_clock_mhz == 1_305
    assert read.ecc_uncorrected == 2
    assert read.processes is not None
    assert [(one.pid, one.memory_bytes) for one in read.processes] == [(4242, 39_000 * 1024**2)]
    assert (read.missing, read.error) == ({}, "")


def test_a_quick_read_asks_for_less(state: Path, new_reader: NewReader) -> None:
    """Once a second only utilisation, memory and power are asked for."""
    read = read_all(new_reader(), fully=False)[0]
    assert read.power_milliwatts is not None
    assert (read.temperature_celsius, read.processes) == (None, None)
    assert read.missing == {}


def test_slurms_index_follows_the_minor_number(state: Path, new_reader: NewReader) -> None:
    """A1, A2: minors 3,2,1,0; work on the driver's device 3 is work on Slurm's card 0."""
    for position, utilisation in enumerate((13, 12, 11, 10)):
        set_card(state, position, util=utilisation)
    reader = new_reader()
    assert utilisations(read_all(reader)) == [10, 11, 12, 13]
    assert [card.minor for card in reader.list_cards()] == [0, 1, 2, 3]


def test_an_explicit_map_wins(state: Path, new_reader: NewReader) -> None:
    """A2: agents.cards names the minor number of each Slurm index."""
    for position, utilisation in enumerate((13, 12, 11, 10)):
        set_card(state, position, util=utilisation)
    assert utilisations(read_all(new_reader(explicit_minors=[2, 3, 0, 1]))) == [12, 13, 10, 11]


@pytest.mark.parametrize("code", [15, 16, 999])
def test_a_lost_card_does_not_hide_the_others(
    state: Path, new_reader: NewReader, code: int
) -> None:
    """R2: lost, reset required, unknown error: one is a fault, three go on."""
    set_card(state, 1, **{"error.*": code})
    for position in (0, 2, 3):
        set_card(state, position, util=50)
    reads = read_all(new_reader())
    assert [read.status for read in reads] == [
        ReadStatus.OK,
        ReadStatus.OK,
        ReadStatus.LOST,
        ReadStatus.OK,
    ]
    assert utilisations(reads) == [50, 50, None, 50]
    assert f"NVML error {code}" in reads[2].error


def test_a_card_lost_while_it_was_watched(state: Path, new_reader: NewReader) -> None:
    """R2: it is lost at the next read, listed as lost with its name, and back when it is back."""
    reader = new_reader()
    cards = reader.list_cards()
    set_card(state, 3, **{"error.*": 15})
    assert reader.read(cards[0], fully=True).status is ReadStatus.LOST
    listed = reader.list_cards()
    assert listed[0].status is ReadStatus.LOST
    assert listed[0].uuid == cards[0].uuid
    assert listed[1:] == cards[1:]
    set_card(state, 3, **{"error.*": None})
    assert reader.list_cards() == cards
    assert reader.read(cards[0], fully=True).status is ReadStatus.OK


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (3, ReadStatus.NOT_SUPPORTED),
        (4, ReadStatus.NO_PERMISSION),
        (10, ReadStatus.NO_ANSWER),
        (12, ReadStatus.NOT_SUPPORTED),
        (15, ReadStatus.LOST),
    ],
)
def test_utilisation_that_is_refused_is_unknown(
    state: Path, new_reader: NewReader, code: int, status: ReadStatus
) -> None:
    """A refusal is a status with the driver's words, never a number."""
    set_card(state, 3, util=90, **{"error.GetUtilizationRates": code})
    read = read_all(new_reader())[0]
    assert (read.utilisation, read.status) == (None, status)
    assert read.missing["utilisation"] is status
    assert read.error


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("GetMemoryInfo", {"memory_used_bytes", "memory_total_bytes"}),
        ("GetPowerUsage", {"power_milliwatts"}),
        ("GetTotalEnergyConsumption", {"energy_millijoules"}),
        ("GetTemperature", {"temperature_celsius"}),
        ("GetClockInfo", {"sm_clock_mhz"}),
        ("GetTotalEccErrors", {"ecc_uncorrected"}),
        ("GetComputeRunningProcesses", {"processes"}),
    ],
)
def test_one_refused_value_leaves_the_others(
    state: Path, new_reader: NewReader, function: str, fields: set[str]
) -> None:
    """A card without ECC, or an agent that may not see processes, still has a utilisation."""
    set_card(state, 3, util=90, **{f"error.{function}": 4})
    read = read_all(new_reader())[0]
    assert (read.utilisation, read.status) == (90, ReadStatus.OK)
    assert read.missing == dict.fromkeys(fields, ReadStatus.NO_PERMISSION)
    for field in MEASURED:
        assert (getattr(read, field) is None) == (field in fields)


def test_mig_slices_are_cards_without_utilisation(state: Path, new_reader: NewReader) -> None:
    """R1: two slices of minor 0, then minors 1 to 3; a slice is not supported, never 0."""
    set_card(state, 3, mig=1, mig_devices=2, util=0)
    for position in (0, 1, 2):
        set_card(state, position, util=40)
    reader = new_reader()
    reads = read_all(reader)
    assert [(card.minor, card.slice_number) for card in reader.list_cards()] == [
        (0, 0),
        (0, 1),
        (1, None),
        (2, None),
        (3, None),
    ]
    assert utilisations(reads) == [None, None, 40, 40, 40]
    assert [read.status for read in reads[:2]] == [ReadStatus.NOT_SUPPORTED] * 2
    assert reads[0].memory_total_bytes is not None


def test_mig_mode_without_slices(state: Path, new_reader: NewReader) -> None:
    """R1: the whole card in MIG mode has no utilisation either, whatever the driver answers."""
    set_card(state, 3, mig=1, mig_devices=0, util=0)
    reads = read_all(new_reader())
    assert len(reads) == 4
    assert (reads[0].status, reads[0].utilisation) == (ReadStatus.NOT_SUPPORTED, None)


def test_driver_and_library_do_not_match(state: Path, new_reader: NewReader) -> None:
    """R3: nothing can be listed, every known card is unknown, and later all is well again."""
    reader = new_reader()
    cards = reader.list_cards()
    reader.close()
    set_driver(state, **{"error.Init": 18})
    with pytest.raises(ReaderError) as caught:
        reader.list_cards()
    assert "mismatch" in caught.value.message
    reads = [reader.read(card, fully=True) for card in cards]
    assert [read.status for read in reads] == [ReadStatus.NO_ANSWER] * 4
    assert utilisations(reads) == [None] * 4
    assert "mismatch" in reads[0].error
    set_driver(state, **{"error.Init": None})
    assert reader.list_cards() == cards
    assert reader.read(cards[0], fully=True).status is ReadStatus.OK


@pytest.mark.parametrize(
    ("keys", "fields"),
    [
        ({"power_mw": 4_294_967_295}, {"power_milliwatts"}),
        ({"power_mw": 10_000_001}, {"power_milliwatts"}),
        ({"temperature": 4_000}, {"temperature_celsius"}),
        ({"sm_clock_mhz": 4_000_000_000}, {"sm_clock_mhz"}),
    ],
)
def test_a_sentinel_is_unknown_and_the_rest_goes_on(
    state: Path, new_reader: NewReader, keys: dict[str, int], fields: set[str]
) -> None:
    """R6: a value that can't be one is None with a status, and nothing else is lost."""
    set_card(state, 3, **({"util": 55} | keys))
    read = read_all(new_reader())[0]
    assert set(read.missing) == fields
    assert read.error
    for field in MEASURED:
        assert (getattr(read, field) is None) == (field in fields), field


@pytest.mark.parametrize(
    ("function", "answer", "fields"),
    [
        ("UtilizationRates", SimpleNamespace(gpu=101, memory=0), {"utilisation"}),
        ("UtilizationRates", SimpleNamespace(gpu=2**32 - 1, memory=0), {"utilisation"}),
        (
            "MemoryInfo",
            SimpleNamespace(total=80 * 1024**3, used=81 * 1024**3),
            {"memory_used_bytes", "memory_total_bytes"},
        ),
        ("TotalEnergyConsumption", 2**64 - 1, {"energy_millijoules"}),
        ("TotalEccErrors", 9_223_372_036_854_775_794, {"ecc_uncorrected"}),
    ],
)
def test_a_sentinel_that_the_simulation_will_not_say(
    state: Path,
    new_reader: NewReader,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    answer: object,
    fields: set[str],
) -> None:
    """R6: put into the binding itself, since the simulated cards keep to what a card can be."""
    import pynvml

    monkeypatch.setattr(pynvml, f"nvmlDeviceGet{function}", lambda *_: answer)
    read = read_all(new_reader())[0]
    assert set(read.missing) == fields
    assert read.status is (ReadStatus.NO_ANSWER if fields == {"utilisation"} else ReadStatus.OK)


def test_a_binding_without_a_function(
    state: Path, new_reader: NewReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names come and go between versions of pynvml: what is not there is not supported."""
    import pynvml

    monkeypatch.delattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption")
    monkeypatch.delattr(pynvml, "nvmlDeviceGetMigMode")
    monkeypatch.delattr(pynvml, "nvmlDeviceGetComputeRunningProcesses_v3")
    read = read_all(new_reader())[0]
    assert read.missing == {"energy_millijoules": ReadStatus.NOT_SUPPORTED}
    assert read.processes == ()
