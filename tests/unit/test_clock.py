"""Clocks that are handed in."""

from __future__ import annotations

import time

import pytest

from slurmwrap.clock import SteppedClock, SystemClock


def test_the_system_clock_tells_whole_epoch_seconds() -> None:
    """UTC epoch seconds, whole."""
    before = int(time.time())
    now = SystemClock().now()
    assert isinstance(now, int)
    assert before <= now <= int(time.time())


def test_a_stepped_clock_moves_only_when_told() -> None:
    """A test decides what time it is."""
    clock = SteppedClock(100)
    assert (clock.now(), clock.now()) == (100, 100)
    clock.advance(5)
    assert clock.now() == 105
    clock.set(7)
    assert clock.now() == 7


def test_a_stepped_clock_does_not_run_backwards_by_accident() -> None:
    """Stepping back is said by set(), so that a wrong sign is found."""
    with pytest.raises(ValueError, match="backwards"):
        SteppedClock(0).advance(-1)
