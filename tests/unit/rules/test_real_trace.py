"""The idle rule over a recorded job: bursts, a 20-minute pause, then a held allocation."""

from __future__ import annotations

import csv
import os
from itertools import pairwise
from pathlib import Path

import pytest
from rule_scene import START, make_reading, make_run

from slurmwrap.model import Card, CardReading
from slurmwrap.rules import Evidence, State
from slurmwrap.rules.idle import IdleGpu, IdleSettings

SECONDS_PER_READ = 15


@pytest.fixture(scope="module")
def readings() -> list[CardReading]:
    """Each row is one read; it stands for the time until the next row."""
    folder = os.environ.get("SLURMWRAP_REAL_DATA")
    path = Path(folder or "") / "traces/h100-pause-then-idle.csv"
    if not folder or not path.is_file():
        pytest.skip("SLURMWRAP_REAL_DATA does not name a folder with traces/")
    with path.open(encoding="utf-8", newline="") as file:
        rows = [
            (int(row["t_seconds"]), int(row["util_percent"]), Card(row["node"], int(row["gpu"])))
            for row in csv.DictReader(file)
        ]
    ends = [later[0] for _, later in pairwise(rows)] + [rows[-1][0] + SECONDS_PER_READ]
    return [
        make_reading(card, START + moment, [percent], START + end)
        for (moment, percent, card), end in zip(rows, ends, strict=True)
    ]


def state_at(readings: list[CardReading], seconds: int) -> State:
    card = Card("n1", 0)
    evidence = Evidence(
        run=make_run([card]),
        now=START + seconds,
        interval_seconds=SECONDS_PER_READ,
        readings={card: readings},
    )
    return IdleGpu().evaluate(IdleSettings(), evidence).state


def test_pause_is_left_alone_and_idleness_is_caught_to_the_second(
    readings: list[CardReading],
) -> None:
    """V1: nothing in the pause; the last read of 30 % or more is the row at 5,145 s.

    By hand: it stands for 5,145 to 5,160 s, so idleness begins at 5,160 s. 90 min later is
    10,560 s, two hours later 12,360 s. Rows come every 15 s, with one step of 16 s at 7,576 s:
    from there on reads end at 7,576 + 15 n, that is at 10,546, 10,561 and 12,346, 12,361.
    """
    for seconds in range(600, 10_500, 300):
        assert state_at(readings, seconds) in (State.FINE, State.SUSPECT), seconds
    assert [state_at(readings, seconds) for seconds in (10_560, 10_561)] == [
        State.SUSPECT,
        State.WARN,
    ]
    assert [state_at(readings, seconds) for seconds in (12_360, 12_361)] == [
        State.WARN,
        State.CANCEL,
    ]
    assert state_at(readings, 24_572) is State.CANCEL
