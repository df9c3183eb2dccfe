"""Trackable resources (TRES) as Slurm writes them, and how many cards they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

UNTYPED = ""
"""The GPU type of cards that the record does not name a type for."""


def parse_tres(text: str) -> dict[str, str]:
    """The entries of a TRES string: ``cpu=4,mem=8G,gres/gpu:a100=2`` by name, values as text.

    Order is not fixed and an entry without ``=`` is ignored: sacct prints truncated strings
    when a format width is given, and a missing entry must not become a wrong number.
    """
    entries: dict[str, str] = {}
    for entry in text.split(","):
        name, separator, value = entry.strip().partition("=")
        if separator and name:
            entries[name] = value
    return entries


def count_cards(
    tres: str | Mapping[str, str], card_gres: Iterable[str] = ("gpu",)
) -> dict[str, int]:
    """Cards by GPU type in an AllocTRES string; untyped cards under ``""``.

    The number of cards is ``gres/gpu`` when present, else the sum of ``gres/gpu:TYPE``: both
    forms count the same cards. Only exact names count, since ``gres/gpumem`` and
    ``gres/gpuutil`` are no cards. Types come from the typed entries; what ``gres/gpu`` has
    more than they add up to is untyped. MIG slices are types like any other
    (``gres/gpu:a100_3g.20gb``).

    Types with zero cards are left out.

    Raises:
        ValueError: a count that is not a number, or typed entries that add up to more cards
            than ``gres/gpu`` says there are: such a record must be looked at, not guessed.
    """
    entries = parse_tres(tres) if isinstance(tres, str) else tres
    cards: dict[str, int] = {}
    for gres in card_gres:
        total_name = f"gres/{gres}"
        typed_prefix = f"{total_name}:"
        typed = {
            name.removeprefix(typed_prefix): _count(value)
            for name, value in entries.items()
            if name.startswith(typed_prefix)
        }
        named = sum(typed.values())
        total = _count(entries[total_name]) if total_name in entries else named
        if named > total:
            raise ValueError(f"{total_name}={total} but its types add up to {named}")
        for gpu_type, count in typed.items():
            cards[gpu_type] = cards.get(gpu_type, 0) + count
        if total > named:
            cards[UNTYPED] = cards.get(UNTYPED, 0) + total - named
    return {gpu_type: count for gpu_type, count in cards.items() if count > 0}


def _count(value: str) -> int:
    """A gres count. Slurm may append a multiplier to large numbers (``1K``), never a fraction."""
    multipliers = {"K": 1024, "M": 1024**2}
    word = value.strip()
    factor = multipliers.get(word[-1:].upper(), 1)
    digits = word[:-1] if factor != 1 else word
    if not digits.isdecimal():
        raise ValueError(f"{value!r} is not a count of generic resources")
    return int(digits) * factor
