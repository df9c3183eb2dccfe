"""Durations, sizes, card-hours and money: how they are read from text and shown to people.

Inside the program time is whole seconds, size is whole bytes, use is whole card-seconds and
money is ``Decimal``. Only this module turns them into text and back.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal

SECONDS_PER_HOUR = 3600
MICRO = Decimal(1_000_000)

_DURATION_UNITS = {
    "s": 1,
    "sec": 1,
    "min": 60,
    "m": 60,
    "h": 3600,
    "d": 86400,
}
_DURATION_PART = re.compile(r"(\d+)\s*(sec|min|s|m|h|d)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(iB|B)?", re.IGNORECASE)
_SIZE_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def parse_duration(text: str) -> int:
    """Seconds in a duration such as ``40s``, ``90min``, ``2h`` or ``1d12h``.

    Raises:
        ValueError: a bare number (its unit would be a guess) or any other form.
    """
    stripped = text.strip()
    parts = _DURATION_PART.findall(stripped)
    if not parts or _DURATION_PART.sub("", stripped).strip():
        raise ValueError(f"{text!r} is not a duration; write for example 40s, 90min, 2h or 1d12h")
    return sum(int(number) * _DURATION_UNITS[unit] for number, unit in parts)


def format_duration(seconds: int) -> str:
    """A duration for people, two largest units: ``2 h 5 min``, ``40 s``, ``3 d 4 h``."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    words: list[str] = []
    rest = seconds
    for name, size in units:
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count} {name}")
    return " ".join(words[:2]) or "0 s"


def parse_slurm_time(text: str) -> int | None:
    """Seconds in a Slurm time limit; ``None`` for ``UNLIMITED``.

    The forms are those of ``sbatch --time``: ``minutes``, ``minutes:seconds``,
    ``hours:minutes:seconds``, ``days-hours``, ``days-hours:minutes`` and
    ``days-hours:minutes:seconds`` (source: sbatch(1)).

    Raises:
        ValueError: any other form.
    """
    word = text.strip()
    if word.upper() in {"UNLIMITED", "INFINITE"}:
        return None
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", word)
    if match is None:
        raise ValueError(
            f"{text!r} is not a Slurm time; write minutes, H:MM:SS, D-HH or D-HH:MM:SS"
        )
    days, first, second, third = match.groups()
    numbers = [int(number) for number in (first, second, third) if number is not None]
    if days is not None:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
        return int(days) * 86400 + hours * 3600 + minutes * 60 + seconds
    if len(numbers) == 3:
        return numbers[0] * 3600 + numbers[1] * 60 + numbers[2]
    if len(numbers) == 2:
        return numbers[0] * 60 + numbers[1]
    return numbers[0] * 60


def parse_size(text: str) -> int:
    """Bytes in a size such as ``20GiB``, ``500M`` or ``1024``; K, M, G, T, P are powers of 1024.

    Raises:
        ValueError: any other form.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write for example 500M, 20GiB or 1T")
    number, power, _ = match.groups()
    return int(Decimal(number) * 1024 ** _SIZE_POWERS[power.upper()])


def format_size(size_bytes: int) -> str:
    """A size for people in powers of 1024: ``1.5 GiB``, ``12 B``."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable: the loop returns at TiB")


def card_hours(card_seconds: int) -> Decimal:
    """Card-hours of whole card-seconds, rounded half up to 4 decimals, as bills show them."""
    return (Decimal(card_seconds) / SECONDS_PER_HOUR).quantize(
        Decimal("0.0001"), rounding=ROUND_HALF_UP
    )


def round_money(amount: Decimal) -> Decimal:
    """An amount rounded half up to 0.01, as one statement line is rounded once."""
    return amount.quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)


def to_micro_units(amount: Decimal) -> int:
    """Money as the store keeps it: millionths of the currency unit.

    Raises:
        ValueError: an amount with more than 6 decimals, which would be rounded silently.
    """
    micro = amount * MICRO
    if micro != micro.to_integral_value():
        raise ValueError(f"{amount} has more than 6 decimals")
    return int(micro)


def from_micro_units(micro_units: int) -> Decimal:
    """Money from the store's millionths."""
    return Decimal(micro_units) / MICRO
