"""Durations, sizes, card-hours and money."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmwrap.units import (
    card_hours,
    format_duration,
    format_size,
    from_micro_units,
    parse_duration,
    parse_size,
    parse_slurm_time,
    round_money,
    to_micro_units,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("40s", 40),
        ("90min", 5400),
        ("2h", 7200),
        ("1d12h", 129600),
        (" 1 h 5 min ", 3900),
        ("0s", 0),
    ],
)
def test_durations_are_read_with_their_unit(text: str, seconds: int) -> None:
    """What the documentation shows is what is understood."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "90", "h", "1.5h", "-1h", "1w", "1h and a bit", "1hour", "２h!"]
)
def test_other_durations_are_refused(text: str) -> None:
    """A bare number's unit would be a guess, and a wrong guess cancels jobs."""
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3661, "1 h 1 min"),
        (7200, "2 h"),
        (86400 * 3 + 3600 * 4 + 59, "3 d 4 h"),
        (86399, "23 h 59 min"),
        (-90, "-1 min 30 s"),
    ],
)
def test_durations_are_shown_in_two_units(seconds: int, text: str) -> None:
    """People read the two largest units."""
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60", 3600),
        ("1:30", 90),
        ("01:00:00", 3600),
        ("2-00", 172800),
        ("1-12:30", 131400),
        ("1-00:00:10", 86410),
        ("UNLIMITED", None),
        ("infinite", None),
    ],
)
def test_slurm_times_are_read_as_sbatch_reads_them(text: str, seconds: int | None) -> None:
    """A bare number is minutes, D-HH is days and hours: sbatch(1)."""
    assert parse_slurm_time(text) == seconds


@pytest.mark.parametrize("text", ["", "1h", "1-", "-1", "1:2:3:4", "1:2:3:4:5", "x", "1-2-3"])
def test_other_slurm_times_are_refused(text: str) -> None:
    """Neither a shorter nor a longer limit is invented."""
    with pytest.raises(ValueError, match="Slurm time"):
        parse_slurm_time(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1024", 1024),
        ("500M", 500 * 1024**2),
        ("20GiB", 20 * 1024**3),
        ("1.5K", 1536),
        ("1tb", 1024**4),
        ("12 B", 12),
    ],
)
def test_sizes_are_powers_of_1024(text: str, size: int) -> None:
    """K, M, G, T and P are binary, however they are written."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1", "1X", "1.G", "1 GG"])
def test_other_sizes_are_refused(text: str) -> None:
    """A size that can't be read is no size of zero."""
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (80 * 1024**3, "80.0 GiB"),
        (2048 * 1024**4, "2048.0 TiB"),
    ],
)
def test_sizes_are_shown_short(size: int, text: str) -> None:
    """One decimal from KiB on; TiB is the largest unit."""
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "hours"),
    [(0, "0.0000"), (1, "0.0003"), (18, "0.0050"), (3600, "1.0000"), (450, "0.1250")],
)
def test_card_hours_have_four_decimals(seconds: int, hours: str) -> None:
    """Half up: one second is 0.00027777… card-hours, shown as 0.0003."""
    assert str(card_hours(seconds)) == hours


@pytest.mark.parametrize(
    ("amount", "rounded"),
    [("0.005", "0.01"), ("0.0049999", "0.00"), ("2.675", "2.68"), ("-0.005", "-0.01")],
)
def test_money_is_rounded_half_up(amount: str, rounded: str) -> None:
    """2.675 becomes 2.68, which binary floats can't promise."""
    assert str(round_money(Decimal(amount))) == rounded


def test_money_with_too_many_decimals_is_not_rounded_silently() -> None:
    """The store keeps millionths, and nothing finer disappears unnoticed."""
    with pytest.raises(ValueError, match="more than 6 decimals"):
        to_micro_units(Decimal("0.0000001"))


@given(st.decimals(min_value=-(10**9), max_value=10**9, places=6))
def test_money_survives_the_store(amount: Decimal) -> None:
    """What is written is read back equal."""
    assert from_micro_units(to_micro_units(amount)) == amount


@given(st.integers(min_value=1, max_value=10**8))
def test_durations_read_back_what_two_units_can_hold(seconds: int) -> None:
    """What people are shown is never more than what was, and reads as a duration."""
    shown = parse_duration(format_duration(seconds))
    assert shown <= seconds
    assert seconds - shown < (86400 if seconds >= 86400 else 3600)


@given(st.text(max_size=20))
def test_parsers_fail_only_with_their_own_error(text: str) -> None:
    """No text makes a parser crash."""
    for parser in (parse_duration, parse_slurm_time, parse_size):
        try:
            parser(text)
        except ValueError:
            continue
