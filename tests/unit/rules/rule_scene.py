"""Runs and readings for the tests of the rules, written as stretches of utilisation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from slurmwrap.model import (
    UTILISATION_EDGES,
    Card,
    CardAllocation,
    CardReading,
    JobRun,
    ReadStatus,
    RunKey,
)
from slurmwrap.rules import Evidence, State, Verdict
from slurmwrap.rules.idle import IdleGpu, IdleSettings

START = 1_700_000_000
INTERVAL = 30
MINUTE, HOUR = 60, 3600
CARD = Card("gpu1", 0)

Level = Callable[[int], int | None]
"""Utilisation in percent at a second since the run's start; None: the read failed."""


def make_run(cards: Iterable[Card] = (CARD,), *, start: int = START, **changes: Any) -> JobRun:
    held = tuple(CardAllocation(card=card, gpu_type="a100") for card in cards)
    run = JobRun(
        key=RunKey(cluster="c1", job_id=42, start=start),
        state="RUNNING",
        user="alice",
        uid=1001,
        account="physics",
        partition="gpu",
        qos="normal",
        name="train",
        comment="",
        reservation="",
        submit=start - 10,
        time_limit_seconds=None,
        nodes=tuple(dict.fromkeys(item.card.node for item in held)),
        cards=held,
    )
    return msgspec.structs.replace(run, **changes)


def make_reading(
    card: Card, started_at: int, utilisations: Iterable[int], ended_at: int | None = None
) -> CardReading:
    """A good reading made of single reads in percent."""
    reads = list(utilisations)
    bins = [0] * (len(UTILISATION_EDGES) - 1)
    for percent in reads:
        bins[max(i for i in range(len(bins)) if UTILISATION_EDGES[i] <= percent)] += 1
    return CardReading(
        node=card.node,
        index=card.index,
        started_at=started_at,
        ended_at=started_at + INTERVAL if ended_at is None else ended_at,
        status=ReadStatus.OK,
        reads=len(reads),
        utilisation_mean=sum(reads) / len(reads),
        utilisation_max=max(reads),
        histogram=tuple(bins),
        power_mean_watts=70.0,
        memory_used_bytes=10 * 2**30,
    )


def bad_reading(card: Card, started_at: int, status: ReadStatus) -> CardReading:
    return CardReading(
        node=card.node,
        index=card.index,
        started_at=started_at,
        ended_at=started_at + INTERVAL,
        status=status,
        reads=0,
        failed_reads=INTERVAL,
    )


def watch(
    level: Level, seconds: int, *, card: Card = CARD, start: int = START, begin: int = 0
) -> list[CardReading]:
    """One reading per interval of ``[begin, seconds)``, one read a second."""
    readings = []
    for offset in range(begin, seconds, INTERVAL):
        reads = [level(offset + second) for second in range(INTERVAL)]
        good = [percent for percent in reads if percent is not None]
        if good:
            readings.append(make_reading(card, start + offset, good))
        else:
            readings.append(bad_reading(card, start + offset, ReadStatus.NO_ANSWER))
    return readings


def without(readings: list[CardReading], begin: int, end: int) -> list[CardReading]:
    """The readings but those that touch ``[begin, end)``, seconds since START."""
    return [
        reading
        for reading in readings
        if reading.ended_at <= START + begin or reading.started_at >= START + end
    ]


def constant(percent: int) -> Level:
    return lambda second: percent


def busy_until(end: int, percent: int = 90) -> Level:
    """Working until ``end``, then nothing."""
    return lambda second: percent if second < end else 0


def evidence_at(
    seconds: int, readings: list[CardReading], run: JobRun | None = None, **more: Any
) -> Evidence:
    """What is known ``seconds`` after START."""
    per_card: dict[Card, list[CardReading]] = {}
    for reading in readings:
        per_card.setdefault(Card(reading.node, reading.index), []).append(reading)
    return Evidence(
        run=make_run() if run is None else run,
        now=START + seconds,
        interval_seconds=INTERVAL,
        readings=per_card,
        **more,
    )


def judge_idle(
    seconds: int,
    readings: list[CardReading],
    run: JobRun | None = None,
    settings: IdleSettings | None = None,
    **more: Any,
) -> Verdict:
    return IdleGpu().evaluate(
        IdleSettings() if settings is None else settings,
        evidence_at(seconds, readings, run, **more),
    )


def first_moment(
    state: State, readings: list[CardReading], until: int, step: int = INTERVAL, **more: Any
) -> int | None:
    """Seconds after START of the first tick at which the idle rule says ``state``."""
    for seconds in range(step, until + 1, step):
        if judge_idle(seconds, readings, **more).state is state:
            return seconds
    return None
