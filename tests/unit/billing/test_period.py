"""Periods begin and end at the zone's midnight; expected moments are from `date -u -d`."""

from __future__ import annotations

from datetime import date
from zoneinfo import ZoneInfo

import pytest

from slurmwrap.billing.period import day_start, parse_month, period_at
from slurmwrap.errors import UnknownNameError, UsageError


@pytest.mark.parametrize(
    ("month", "zone", "start", "end"),
    [
        ("2026-11", "UTC", 1793491200, 1796083200),
        ("2026-11", "Asia/Shanghai", 1793462400, 1796054400),
        ("2026-12", "UTC", 1796083200, 1798761600),
        # October in Berlin has an hour more, March one less.
        ("2026-10", "Europe/Berlin", 1790805600, 1793487600),
        ("2026-03", "Europe/Berlin", 1772319600, 1774994400),
    ],
)
def test_months(month: str, zone: str, start: int, end: int) -> None:
    """A month is the zone's, with the hours its clock changes give or take."""
    period = parse_month(month, ZoneInfo(zone))
    assert (period.name, period.start, period.end) == (month, start, end)
    assert period.timezone == zone


@pytest.mark.parametrize("text", ["2026-13", "2026-1", "11-2026", "2026-11-01", "", "November"])
def test_what_is_no_month(text: str) -> None:
    """A month of another form is refused with the form that is wanted."""
    with pytest.raises(UsageError, match="2026-11"):
        parse_month(text, ZoneInfo("UTC"))


@pytest.mark.parametrize(
    ("kind", "name", "start", "end"),
    [
        ("month", "2026-11", 1793462400, 1796054400),
        ("quarter", "2026-Q4", 1790784000, 1798732800),
        ("year", "2026", 1767196800, 1798732800),
    ],
)
def test_the_period_of_a_moment(kind: str, name: str, start: int, end: int) -> None:
    """Both ends of a period belong to the right one: the start to it, the end to the next."""
    zone = ZoneInfo("Asia/Shanghai")
    for moment in (start, 1793664000, end - 1):
        period = period_at(moment, kind, zone)
        assert (period.name, period.start, period.end) == (name, start, end)
    assert period_at(end, kind, zone).start == end


def test_an_unknown_kind_of_period() -> None:
    """A period that is none is refused with those there are."""
    with pytest.raises(UnknownNameError, match="quarter"):
        period_at(0, "week", ZoneInfo("UTC"))


def test_a_day_without_midnight() -> None:
    """Where clocks skip midnight, the day begins when they do: Beirut, 29 March 2026, 22:00 UTC."""
    assert day_start(date(2026, 3, 29), ZoneInfo("Asia/Beirut")) == 1774735200
