"""The simulated cards' state files: how tests and jobs say what a card is and does.

A state directory (`nodes/NODE/nvml`) holds one file of key=value lines per card, `card0`,
`card1`, … in NVML's order, one `driver` file for what the node's cards share, and the
directory `use` in which running programs say which card they use.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.failures import TestbedError

if TYPE_CHECKING:
    from collections.abc import Sequence

Value = str | int | float | None

TEXTS = ("uuid", "name", "serial", "xid", "processes")
NUMBERS = (
    "minor",
    "mig",
    "mig_devices",
    "memory_used_mib",
    "memory_total_mib",
    "power_mw",
    "power_limit_mw",
    "temperature",
    "sm_clock_mhz",
    "clocks_event_reasons",
    "ecc_corrected",
    "ecc_uncorrected",
    "energy_mj",
    "since",
)
CARD_KEYS = ("util", *NUMBERS, *TEXTS)
DRIVER_KEYS = ("driver_version", "nvml_version", "cuda_version")
FAULT_KEY = re.compile(r"(error|delay)\.(\*|[A-Za-z][A-Za-z0-9_]*)")


def create_cards(
    state_dir: Path,
    minors: Sequence[int],
    name: str = "NVIDIA A100-SXM4-80GB",
    memory_total_mib: int = 81920,
) -> None:
    """Write the state directory of a node with one idle card per minor number."""
    state_dir.mkdir(parents=True, exist_ok=True)
    use = state_dir / "use"
    use.mkdir(exist_ok=True)
    use.chmod(0o1777)
    _write(state_dir / "driver", {})
    for index, minor in enumerate(minors):
        values = {
            "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_URL, f'{state_dir}/card{index}')}",
            "name": name,
            "minor": str(minor),
            "memory_total_mib": str(memory_total_mib),
        }
        _write(state_dir / f"card{index}", values)
        energy = state_dir / f"energy{index}"
        energy.touch()
        energy.chmod(0o666)  # whoever reads the card keeps its counter


def read_card(state_dir: Path, index: int) -> dict[str, str]:
    """The keys that are set for the card with this NVML index."""
    path = state_dir / f"card{index}"
    if not path.exists():
        known = ", ".join(sorted(found.name for found in state_dir.glob("card*")))
        raise TestbedError(f"no card {index} in {state_dir}; there are: {known or 'none'}")
    return _read(path)


def set_card(state_dir: Path, index: int, **keys: Value) -> None:
    """Set keys of the card with this NVML index; None removes a key. Takes effect at once.

    Keys with a dot are passed as `**{"error.GetUtilizationRates": 15}`. A new `util` starts
    now, unless `since` says when it started.
    """
    values = read_card(state_dir, index)
    for key in keys:
        if key not in CARD_KEYS and not FAULT_KEY.fullmatch(key):
            known = ", ".join(CARD_KEYS)
            raise TestbedError(f"no key {key!r} of a card; there are: {known}, error.*, delay.*")
    if keys.get("util") is not None and "since" not in keys:
        keys["since"] = f"{time.time():.3f}"
    _write(state_dir / f"card{index}", _merge(values, keys))


def set_driver(state_dir: Path, **keys: Value) -> None:
    """Set keys of the node's driver; `**{"error.Init": 18}` makes nvmlInit answer 18."""
    for key in keys:
        if key not in DRIVER_KEYS and not FAULT_KEY.fullmatch(key):
            known = ", ".join(DRIVER_KEYS)
            raise TestbedError(f"no key {key!r} of a driver; there are: {known}, error.*, delay.*")
    _write(state_dir / "driver", _merge(_read(state_dir / "driver"), keys))


def reset_card(state_dir: Path, index: int) -> None:
    """Back to what the card is by nature: its identity stays, everything set is dropped."""
    kept = ("uuid", "name", "minor", "memory_total_mib")
    values = read_card(state_dir, index)
    _write(state_dir / f"card{index}", {key: values[key] for key in kept if key in values})


def find_index(state_dir: Path, minor: int) -> int:
    """The NVML index of the card that Slurm knows by this index (the minor number)."""
    for path in sorted(state_dir.glob("card*")):
        if _read(path).get("minor") == str(minor):
            return int(path.name.removeprefix("card"))
    raise TestbedError(f"no card with minor number {minor} in {state_dir}")


def _merge(values: dict[str, str], keys: dict[str, Value]) -> dict[str, str]:
    merged = values | {key: str(value) for key, value in keys.items() if value is not None}
    for key, value in merged.items():
        if "\n" in key + value:
            raise TestbedError(f"{key}: a value is one line, not {value!r}")
    return {key: value for key, value in merged.items() if keys.get(key, "") is not None}


def _read(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key: value for key, _, value in pairs}


def _write(path: Path, values: dict[str, str]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    temporary.chmod(0o644)
    temporary.replace(path)
