"""The price book: what a card-hour costs, for whom, where and when."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct

from slurmwrap.billing.period import day_start
from slurmwrap.display import clean_text
from slurmwrap.errors import PriceError, PriceTieError, UnknownNameError

SELECTORS = ("cluster", "partition", "qos", "account", "gpu_type")
"""What an entry can be limited to."""

_FILE_KEYS = ("currency", "price")
_ENTRY_KEYS = (*SELECTORS, "per_card_hour", "valid_from", "valid_until", "name", "note")
_AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")
_CURRENCY = re.compile(r"[A-Z]{3}")


class Usage(Struct, frozen=True, kw_only=True):
    """What prices can depend on, apart from the moment."""

    cluster: str
    partition: str
    qos: str
    account: str
    gpu_type: str


class PriceEntry(Struct, frozen=True, kw_only=True):
    """One [[price]] block."""

    number: int
    """Its place in the file, from 1."""
    per_card_hour: Decimal
    cluster: tuple[str, ...] = ()
    """Any of these; empty: every cluster. So it is with all selectors."""
    partition: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    account: tuple[str, ...] = ()
    gpu_type: tuple[str, ...] = ()
    valid_from: int | None = None
    """UTC epoch seconds; None: always was."""
    valid_until: int | None = None
    """The first second at which the entry is no longer valid; None: open."""
    name: str = ""
    note: str = ""

    @property
    def rank(self) -> int:
        """How specific the entry is: the number of its selectors."""
        return sum(1 for selector in SELECTORS if getattr(self, selector))

    def matches(self, usage: Usage) -> bool:
        """Whether every selector names what was used."""
        return all(
            not getattr(self, selector) or getattr(usage, selector) in getattr(self, selector)
            for selector in SELECTORS
        )

    def is_valid_at(self, moment: int) -> bool:
        """Whether the entry's dates cover a moment."""
        return (self.valid_from is None or self.valid_from <= moment) and (
            self.valid_until is None or moment < self.valid_until
        )

    def describe(self) -> str:
        """The entry as an administrator finds it: its number, name and selectors."""
        parts = [
            f"{selector}={'/'.join(getattr(self, selector))}"
            for selector in SELECTORS
            if getattr(self, selector)
        ]
        name = f" {self.name!r}" if self.name else ""
        return f"[[price]] {self.number}{name} ({', '.join(parts) or 'no selectors'})"


class PriceSpan(Struct, frozen=True):
    """A stretch ``[start, end)`` over which one thing holds of a price."""

    start: int
    end: int
    entry: PriceEntry | None
    """None: nothing is priced then."""
    tied: PriceEntry | None = None
    """Another entry of the same rank that matches too: use within this span has no price
    that could be told."""

    def price(self) -> Decimal | None:
        """The price of a card-hour in the span; None: there is none.

        Raises:
            PriceTieError: two entries say different things with the same right.
        """
        if self.entry is not None and self.tied is not None:
            raise PriceTieError(
                f"{self.entry.describe()} and {self.tied.describe()} match the same use"
                f" with equally many selectors",
                hint="add a selector or dates to one of them, or remove one",
            )
        return None if self.entry is None else self.entry.per_card_hour


class PriceBook(Struct, frozen=True, kw_only=True):
    """All entries of a price file."""

    currency: str
    """ISO 4217 code of every price."""
    entries: tuple[PriceEntry, ...]

    def spans(self, usage: Usage, start: int, end: int) -> tuple[PriceSpan, ...]:
        """``[start, end)`` cut wherever the price of this use may change, in order.

        Of the entries that match, the one with the most selectors holds; two of the same rank
        are a tie, which is an error only if something was used while it lasts.
        """
        matching = [entry for entry in self.entries if entry.matches(usage)]
        cuts = {start, end}
        for entry in matching:
            for moment in (entry.valid_from, entry.valid_until):
                if moment is not None and start < moment < end:
                    cuts.add(moment)
        moments = sorted(cuts)
        return tuple(_span(matching, begin, finish) for begin, finish in pairwise(moments))


def _span(matching: Sequence[PriceEntry], start: int, end: int) -> PriceSpan:
    valid = sorted(
        (entry for entry in matching if entry.is_valid_at(start)),
        key=lambda entry: (-entry.rank, entry.number),
    )
    if not valid:
        return PriceSpan(start, end, None)
    tied = valid[1] if len(valid) > 1 and valid[1].rank == valid[0].rank else None
    return PriceSpan(start, end, valid[0], tied)


def make_price_book(
    document: Mapping[str, Any], *, zone: ZoneInfo, currency: str, where: str = "the price file"
) -> PriceBook:
    """The price book in a parsed TOML document.

    Args:
        document: ``currency`` (optional) and a list ``price`` of entries.
        zone: whose midnight begins a date.
        currency: of prices where the document names none.
        where: what errors call the document.

    Raises:
        PriceError: an entry of the wrong form; the message names it.
        UnknownNameError: a key that is none.
    """
    for key in document:
        if key not in _FILE_KEYS:
            raise UnknownNameError("key of a price file", key, _FILE_KEYS, hint=f"in {where}")
    code = document.get("currency", currency)
    if not isinstance(code, str) or not _CURRENCY.fullmatch(code):
        raise PriceError(
            f"{where}: currency {code!r} is not a code of three capital letters such as CNY"
        )
    blocks = document.get("price", [])
    if not isinstance(blocks, list):
        raise PriceError(f"{where}: prices are written as [[price]] blocks")
    return PriceBook(
        currency=code,
        entries=tuple(
            _make_entry(block, number, zone, f"{where}, [[price]] {number}")
            for number, block in enumerate(blocks, 1)
        ),
    )


def _make_entry(block: Any, number: int, zone: ZoneInfo, where: str) -> PriceEntry:
    if not isinstance(block, dict):
        raise PriceError(f"{where}: must be a table")
    for key in block:
        if key not in _ENTRY_KEYS:
            raise UnknownNameError("key of a price", str(key), _ENTRY_KEYS, hint=f"in {where}")
    if "per_card_hour" not in block:
        raise PriceError(f"{where} lacks per_card_hour", hint='write per_card_hour = "35.00"')
    valid_from = _day(block, "valid_from", zone, where)
    valid_until = _day(block, "valid_until", zone, where)
    if valid_from is not None and valid_until is not None and valid_from >= valid_until:
        raise PriceError(
            f"{where}: valid_from {block['valid_from']} is not before"
            f" valid_until {block['valid_until']}, which is exclusive"
        )
    selectors = {name: _names(block[name], name, where) for name in SELECTORS if name in block}
    return PriceEntry(
        number=number,
        per_card_hour=_amount(block["per_card_hour"], where),
        valid_from=valid_from,
        valid_until=valid_until,
        name=_words(block, "name", where),
        note=_words(block, "note", where),
        **selectors,
    )


def _amount(value: Any, where: str) -> Decimal:
    if isinstance(value, str) and _AMOUNT.fullmatch(value):
        return Decimal(value)
    if isinstance(value, float):
        raise PriceError(
            f"{where}: per_card_hour = {value!r} is a binary fraction, which loses digits",
            hint=f'put it in quotes: per_card_hour = "{value!r}"',
        )
    raise PriceError(
        f"{where}: per_card_hour = {value!r} is no price",
        hint='write digits in quotes, at most 6 after the point: per_card_hour = "35.00"',
    )


def _names(value: Any, key: str, where: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if (
        not isinstance(names, list)
        or not names
        or not all(isinstance(name, str) and name for name in names)
    ):
        raise PriceError(
            f"{where}: {key} = {value!r} must be a name or a list of names",
            hint="leave the selector out to match everything",
        )
    return tuple(dict.fromkeys(names))


def _day(block: Mapping[str, Any], key: str, zone: ZoneInfo, where: str) -> int | None:
    if key not in block:
        return None
    value = block[key]
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value)
        except ValueError:
            value = block[key]
    if not isinstance(value, date) or isinstance(value, datetime) or value.year < 1970:
        raise PriceError(
            f"{where}: {key} = {value!r} must be a date such as 2026-11-15 (its midnight"
            f" in {zone.key})"
        )
    return day_start(value, zone)


def _words(block: Mapping[str, Any], key: str, where: str) -> str:
    value = block.get(key, "")
    if not isinstance(value, str):
        raise PriceError(f"{where}: {key} must be text in quotes")
    return clean_text(value)
