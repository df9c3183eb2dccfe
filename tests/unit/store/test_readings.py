"""Readings: one per node, card and time, however often they arrive."""

from __future__ import annotations

from typing import Any

import pytest

from slurmwrap.model import UTILISATION_BINS, Card, CardProcess, CardReading, ReadStatus
from slurmwrap.store import Store


def make_reading(ended_at: int, index: int = 0, **changes: Any) -> CardReading:
    values: dict[str, Any] = {
        "node": "gpu1",
        "index": index,
        "started_at": ended_at - 30,
        "ended_at": ended_at,
        "status": ReadStatus.OK,
        "reads": 30,
        "utilisation_mean": 12.5,
        "utilisation_max": 40,
        "histogram": (30, *[0] * (UTILISATION_BINS - 1)),
        "processes": (CardProcess(pid=1, uid=1001, started_at=5, job_id=7),),
        **changes,
    }
    return CardReading(**values)


def test_a_reading_is_read_back_as_it_was_sent(store: Store) -> None:
    """Every value comes back equal, and what was None stays None."""
    whole = make_reading(60, memory_used_bytes=2**40, power_mean_watts=61.5, error="x")
    bare = make_reading(
        60, index=1, status=ReadStatus.LOST, reads=0, utilisation_mean=None,
        utilisation_max=None, histogram=None, processes=None,
    )  # fmt: skip
    store.readings.add([whole, bare], 61)
    found = store.readings.of_cards([Card("gpu1", 0), Card("gpu1", 1)], 0, 100)
    assert found == {Card("gpu1", 0): (whole,), Card("gpu1", 1): (bare,)}


def test_a_reading_sent_again_changes_nothing(store: Store) -> None:
    """B30's kind: the same message twice, or replayed with other numbers, counts once."""
    assert store.readings.add([make_reading(60)], 61) == 1
    assert store.readings.add([make_reading(60, utilisation_mean=99.0)], 99) == 0
    (kept,) = store.readings.of_cards([Card("gpu1", 0)], 0, 100)[Card("gpu1", 0)]
    assert kept.utilisation_mean == 12.5


def test_only_readings_that_touch_the_time_are_given(store: Store) -> None:
    """[start, end) takes in what overlaps it, in order of time."""
    store.readings.add([make_reading(at) for at in (120, 30, 60, 90)], 121)
    found = store.readings.of_cards([Card("gpu1", 0)], 60, 90)[Card("gpu1", 0)]
    assert [item.ended_at for item in found] == [90]


def test_measured_time_is_that_of_good_readings_within_the_run(store: Store) -> None:
    """Unknown readings measure nothing; readings across the run's ends count with their part."""
    store.readings.add(
        [make_reading(60), make_reading(90, status=ReadStatus.NO_ANSWER), make_reading(120)], 121
    )
    # [40, 60) + [90, 110): 20 + 20 seconds of one card.
    assert store.readings.measured_seconds([Card("gpu1", 0)], 40, 110) == 40


def test_the_newest_reading_of_each_card(store: Store) -> None:
    """Cards that have been silent since the moment asked for are not there."""
    store.readings.add([make_reading(60), make_reading(90), make_reading(60, index=1)], 91)
    newest = store.readings.newest_since(60)
    assert {card: item.ended_at for card, item in newest.items()} == {Card("gpu1", 0): 90}


@pytest.mark.parametrize("older", [30, None])
def test_an_agents_newest_reading_never_goes_back(store: Store, older: int | None) -> None:
    """A spooled message of an hour ago does not make a node look silent."""
    for newest in (60, older):
        store.readings.note_agent(
            "gpu1",
            now=61,
            newest_reading_at=newest,
            clock_skew_seconds=0,
            dropped_messages=0,
            address="127.0.0.1",
            error="",
        )
    assert store.readings.agents()[0]["newest_reading_at"] == 60
