"""Which numbers a driver's answer can be: what lies outside is a sentinel, not a measurement."""

from __future__ import annotations

PLAUSIBLE: dict[str, tuple[int, int]] = {
    "utilisation": (0, 100),
    "memory_used_bytes": (0, 2**50),
    "memory_total_bytes": (1, 2**50),
    "power_milliwatts": (0, 10_000_000),
    # NVML's "not available" is 2^64 - 1, dcgm's blanks lie just under 2^63.
    "energy_millijoules": (0, 2**60),
    "temperature_celsius": (-40, 150),
    "sm_clock_mhz": (0, 10_000),
    "ecc_uncorrected": (0, 2**40),
}
"""Per field of CardRead the smallest and largest value that is taken for a measurement."""

MAX_POWER_WATTS = PLAUSIBLE["power_milliwatts"][1] / 1000


def doubt(field: str, value: int) -> str:
    """Why a value can't be a measurement; empty when it can."""
    low, high = PLAUSIBLE[field]
    if low <= value <= high:
        return ""
    return f"{field} {value} is outside {low} to {high}"
