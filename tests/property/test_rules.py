"""Whatever the readings: their order does not matter, and what was not seen cancels nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmwrap.model import (
    UTILISATION_BINS,
    UTILISATION_EDGES,
    Card,
    CardAllocation,
    CardReading,
    JobRun,
    MetricPoint,
    ReadStatus,
    RunKey,
    WatchedMetric,
)
from slurmwrap.rules import (
    ActionKind,
    Evidence,
    History,
    State,
    Verdict,
    WarningRecord,
    decide,
)
from slurmwrap.rules.idle import IdleGpu, IdleSettings
from slurmwrap.rules.plateau import Plateau, PlateauSettings

INTERVAL = 30
START = 1_700_000_000
SHORT = IdleSettings(window=1200, warn_after=900, grace=300)  # type: ignore[arg-type]
SLOTS = 50
"""Readings per card: 25 minutes, a little more than the window of 20."""

FEW = settings(max_examples=60, deadline=None)


def make_run(cards: int) -> JobRun:
    held = tuple(CardAllocation(card=Card("n", index), gpu_type="") for index in range(cards))
    return JobRun(
        key=RunKey(cluster="c", job_id=1, start=START),
        state="RUNNING",
        user="u",
        uid=1,
        account="a",
        partition="p",
        qos="q",
        name="x",
        comment="",
        reservation="",
        submit=START,
        time_limit_seconds=None,
        nodes=("n",),
        cards=held,
    )


def make_reading(index: int, slot: int, busy_reads: int, status: ReadStatus) -> CardReading:
    """Of 30 reads ``busy_reads`` at 95 %, the others at 0."""
    bins = [0] * UTILISATION_BINS
    bins[0] = INTERVAL - busy_reads
    bins[max(i for i in range(UTILISATION_BINS) if UTILISATION_EDGES[i] <= 95)] = busy_reads
    good = status is ReadStatus.OK
    return CardReading(
        node="n",
        index=index,
        started_at=START + slot * INTERVAL,
        ended_at=START + (slot + 1) * INTERVAL,
        status=status,
        reads=INTERVAL if good else 0,
        utilisation_mean=95 * busy_reads / INTERVAL if good else None,
        utilisation_max=(95 if busy_reads else 0) if good else None,
        histogram=tuple(bins) if good else None,
    )


# Mostly idle, so that verdicts differ: a busy or failed reading is the exception.
SLOT = st.one_of(
    st.just((0, ReadStatus.OK)),
    st.just((0, ReadStatus.OK)),
    st.just((0, ReadStatus.OK)),
    st.just((0, ReadStatus.OK)),
    st.just((0, ReadStatus.OK)),
    st.just((0, ReadStatus.OK)),
    st.tuples(st.integers(0, 30), st.sampled_from([*[ReadStatus.OK] * 5, *ReadStatus])),
)
HISTORY = st.lists(st.lists(SLOT, min_size=SLOTS, max_size=SLOTS), min_size=1, max_size=3)


def build(history: Sequence[Sequence[tuple[int, ReadStatus]]]) -> list[CardReading]:
    return [
        make_reading(index, slot, busy, status)
        for index, card in enumerate(history)
        for slot, (busy, status) in enumerate(card)
    ]


def judge(readings: Sequence[CardReading], cards: int, slots: int = SLOTS) -> Verdict:
    per_card: dict[Card, list[CardReading]] = {}
    for reading in readings:
        per_card.setdefault(Card(reading.node, reading.index), []).append(reading)
    evidence = Evidence(
        run=make_run(cards),
        now=START + slots * INTERVAL,
        interval_seconds=INTERVAL,
        readings=per_card,
    )
    return IdleGpu().evaluate(SHORT, evidence)


@given(HISTORY, st.randoms(use_true_random=False))
@FEW
def test_order_and_repetition_do_not_matter(
    history: list[list[tuple[int, ReadStatus]]], chance: random.Random
) -> None:
    """Shuffled, and with some readings sent again, the verdict is the same to the letter."""
    readings = build(history)
    shuffled = readings + chance.choices(readings, k=20)
    chance.shuffle(shuffled)
    assert judge(shuffled, len(history)) == judge(readings, len(history))


@given(HISTORY, st.data())
@FEW
def test_losing_idle_readings_never_leads_to_a_cancel(
    history: list[list[tuple[int, ReadStatus]]], data: st.DataObject
) -> None:
    """A reading without work that gets lost only makes a cancel less likely."""
    readings = build(history)
    if judge(readings, len(history)).state is State.CANCEL:
        return
    quiet = [number for number, item in enumerate(readings) if not item.utilisation_max]
    lost = data.draw(st.sets(st.sampled_from(quiet), max_size=30)) if quiet else set()
    left = [item for number, item in enumerate(readings) if number not in lost]
    assert judge(left, len(history)).state is not State.CANCEL


@given(st.lists(st.integers(0, 30), min_size=SLOTS, max_size=SLOTS), st.data())
@FEW
def test_no_loss_makes_a_working_run_idle(busy: list[int], data: st.DataObject) -> None:
    """Whatever is lost of a run that was busy for over 15 % of the window: no cancel.

    10 % of a window may be missing, and 5 % of the rest may be busy.
    """
    window = busy[-40:]
    if sum(window) <= 0.15 * 40 * INTERVAL:
        return
    readings = build([[(reads, ReadStatus.OK) for reads in busy]])
    lost = data.draw(st.sets(st.integers(0, SLOTS - 1), max_size=SLOTS))
    left = [item for number, item in enumerate(readings) if number not in lost]
    assert judge(left, 1).state is not State.CANCEL


@given(HISTORY, st.integers(0, 2), st.sampled_from([*ReadStatus]))
@FEW
def test_unseen_card_makes_the_run_unknown(
    history: list[list[tuple[int, ReadStatus]]], index: int, status: ReadStatus
) -> None:
    """A card without a good reading for more than 3 intervals: unknown, whatever the others."""
    silent = index % len(history)
    if status is ReadStatus.OK:
        history[silent] = history[silent][:-4]
    else:
        history[silent][-4:] = [(0, status)] * 4
    verdict = judge(build(history), len(history))
    assert verdict.state is State.UNKNOWN
    assert Card("n", silent) in verdict.cards
    assert verdict.since is None


@given(HISTORY)
@FEW
def test_verdict_keeps_its_word(history: list[list[tuple[int, ReadStatus]]]) -> None:
    """A cancel has held for the window, and its reason can be told and stored."""
    verdict = judge(build(history), len(history))
    if verdict.state is State.CANCEL:
        assert verdict.held_seconds >= SHORT.window
        assert verdict.since is not None
        assert verdict.since + SHORT.window <= verdict.at
    if verdict.state is State.WARN:
        assert verdict.held_seconds >= SHORT.warn_after
    assert 0 <= verdict.unknown_seconds <= SLOTS * INTERVAL
    assert verdict.reason.text("en")
    assert verdict.reason.text("zh")
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict


@given(HISTORY)
@FEW
def test_no_run_is_cancelled_without_a_delivered_warning(
    history: list[list[tuple[int, ReadStatus]]],
) -> None:
    """A whole life of ticks: each cancel has a warning of its episode, a grace old."""
    readings = build(history)
    records: list[WarningRecord] = []
    for slot in range(1, SLOTS + 1):
        verdict = judge(readings, len(history), slot)
        action = decide(
            verdict,
            mode="enforce",
            grace_seconds=SHORT.grace,
            history=History(warnings=tuple(records)),
            now=verdict.at,
        )
        if action.kind is ActionKind.CANCEL:
            assert verdict.since is not None
            assert any(
                record.recorded_at >= verdict.since
                and record.delivered_at is not None
                and record.delivered_at + SHORT.grace <= verdict.at
                for record in records
            )
        if action.kind is ActionKind.WARN:
            records.append(
                WarningRecord(
                    rule=action.rule,
                    run=action.run,
                    episode_since=action.episode_since or 0,
                    recorded_at=action.at,
                    # Every other warning is delivered, a minute late.
                    delivered_at=action.at + 60 if len(records) % 2 else None,
                )
            )


VALUES = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(st.integers(1, 12), VALUES), max_size=20), st.randoms())
@FEW
def test_plateau_does_not_depend_on_the_order_of_points(
    pairs: list[tuple[int, float]], chance: random.Random
) -> None:
    """Points in any order, with blanks and repetitions: the same verdict."""
    metrics = [
        MetricPoint(name="m", step=step, value=value, at=START + at)
        for at, (step, value) in enumerate(pairs)
    ]
    shuffled = [*metrics, *metrics[::2]]
    chance.shuffle(shuffled)

    def verdict(points: list[MetricPoint]) -> Verdict:
        evidence = Evidence(
            run=make_run(0),
            now=START + 100,
            interval_seconds=INTERVAL,
            metrics=tuple(points),
            watch=WatchedMetric(name="m"),
        )
        return Plateau().evaluate(PlateauSettings(), evidence)

    assert verdict(shuffled) == verdict(metrics)
