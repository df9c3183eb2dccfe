"""Months, quarters and years of a time zone, as moments."""

from __future__ import annotations

import re
from datetime import date, datetime
from zoneinfo import ZoneInfo

from msgspec import Struct

from slurmwrap.errors import UnknownNameError, UsageError

PERIOD_KINDS = ("month", "quarter", "year")
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")


class Period(Struct, frozen=True, kw_only=True):
    """The stretch ``[start, end)`` that a statement or a budget is about."""

    name: str
    """``2026-11``, ``2026-Q4`` or ``2026``."""
    start: int
    """UTC epoch seconds, as ``end``."""
    end: int
    timezone: str
    """Name of the zone whose midnight begins and ends the period."""


def day_start(day: date, zone: ZoneInfo) -> int:
    """The moment at which a day begins in the zone; its first one where a clock change
    repeats or leaves out midnight."""
    return int(datetime(day.year, day.month, day.day, tzinfo=zone, fold=0).timestamp())


def parse_month(text: str, zone: ZoneInfo) -> Period:
    """The month written ``2026-11``.

    Raises:
        UsageError: any other form, or a year that the calendar of time zones does not know.
    """
    match = _MONTH.fullmatch(text)
    if match is None or not 1970 <= int(match[1]) <= 9998:
        raise UsageError(f"{text[:40]!r} is no month; write year and month, for example 2026-11")
    return _make_period("month", int(match[1]), int(match[2]), zone)


def period_at(moment: int, kind: str, zone: ZoneInfo) -> Period:
    """The month, quarter or year of the zone that holds a moment.

    Raises:
        UnknownNameError: another kind of period.
    """
    if kind not in _MONTHS:
        raise UnknownNameError("period", kind, PERIOD_KINDS)
    local = datetime.fromtimestamp(moment, tz=zone)
    months = _MONTHS[kind]
    first = (local.month - 1) // months * months + 1
    return _make_period(kind, local.year, first, zone)


def _make_period(kind: str, year: int, month: int, zone: ZoneInfo) -> Period:
    names = {"month": f"{year:04}-{month:02}", "quarter": f"{year:04}-Q{(month + 2) // 3}"}
    after = year * 12 + month - 1 + _MONTHS[kind]
    return Period(
        name=names.get(kind, f"{year:04}"),
        start=day_start(date(year, month, 1), zone),
        end=day_start(date(after // 12, after % 12 + 1, 1), zone),
        timezone=zone.key,
    )
