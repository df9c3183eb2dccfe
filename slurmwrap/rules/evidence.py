"""What a rule may know of a run, and the contract that says which of it counts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from slurmwrap.model import (
    Card,
    CardReading,
    JobRun,
    MetricPoint,
    Phase,
    ReadStatus,
    WatchedMetric,
)

MAX_HOLE_INTERVALS = 3
"""A longer hole restarts the clock; a newest reading older than this is no longer fresh."""

MIN_COVERAGE = 0.9
"""Share of a window that must have been seen."""

STAGING_PHASE = "staging"
"""The name under which a supervisor publishes that data is being brought in."""

Stretch = tuple[int, int]
"""``[from, to)`` in seconds."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that is known of one run when it is judged. Times are UTC epoch seconds."""

    run: JobRun
    now: int
    interval_seconds: int
    """Nominal length of one reading."""
    readings: Mapping[Card, Sequence[CardReading]] = field(default_factory=dict)
    """Per card, in any order; duplicates and readings of earlier runs do no harm."""
    readings_from: int | None = None
    """The moment from which readings were fetched; None: since the run's start."""
    phases: tuple[Phase, ...] = ()
    metrics: tuple[MetricPoint, ...] = ()
    watch: WatchedMetric | None = None
    suspensions: tuple[tuple[int, int | None], ...] = ()
    """``[from, to)``; None: still suspended."""


def readings_start(
    run: JobRun,
    now: int,
    reach_seconds: int,
    suspensions: Sequence[tuple[int, int | None]] = (),
) -> int:
    """The moment from which readings are needed so that ``reach_seconds`` of the run's clock
    can be looked at: suspended time is stepped over."""
    rest = reach_seconds
    at = now
    for start, end in reversed(merge_stretches(suspensions, run.key.start, now)):
        if at - end >= rest:
            break
        rest -= at - end
        at = start
    return max(run.key.start, at - rest)


def merge_stretches(
    stretches: Iterable[tuple[int, int | None]], start: int, end: int
) -> list[Stretch]:
    """Stretches clipped to ``[start, end)``, overlapping ones joined, in order of time."""
    clipped = sorted(
        (max(low, start), end if high is None else min(high, end)) for low, high in stretches
    )
    merged: list[Stretch] = []
    for low, high in clipped:
        if high <= low:
            continue
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged


class RunClock:
    """Seconds since the run's start, standing still while it stages data or is suspended.

    Staging counts at most ``staging_cap_seconds`` from the run's start: a job that says it
    stages for ever does not escape the rules.
    """

    def __init__(self, evidence: Evidence, staging_cap_seconds: int) -> None:
        self._start = evidence.run.key.start
        self._end = max(self._start, evidence.now)
        staged = merge_stretches(
            (
                (phase.started_at, phase.ended_at)
                for phase in evidence.phases
                if phase.name == STAGING_PHASE
            ),
            self._start,
            min(self._end, self._start + staging_cap_seconds),
        )
        suspended = merge_stretches(evidence.suspensions, self._start, self._end)
        self._stops = merge_stretches([*staged, *suspended], self._start, self._end)
        self.is_suspended = evidence.run.state == "SUSPENDED" or any(
            end is None for _, end in evidence.suspensions
        )
        self.is_staging = bool(staged) and staged[-1][1] == evidence.now
        self._stop_starts = [start for start, _ in self._stops]
        self._stopped_before: list[int] = []
        total = 0
        for low, high in self._stops:
            self._stopped_before.append(total)
            total += high - low
        self.now = self.at(evidence.now)

    def at(self, moment: int) -> int:
        """The clock's reading at a moment (UTC epoch seconds)."""
        elapsed = min(max(moment, self._start), self._end) - self._start
        if not self._stops:
            return elapsed
        index = bisect_right(self._stop_starts, moment) - 1
        if index < 0:
            return elapsed
        low, high = self._stops[index]
        return elapsed - self._stopped_before[index] - (min(moment, high) - low)

    def place(self, start: int, end: int) -> Stretch | None:
        """``[start, end)`` of this run on its clock; None: the clock stood still in it."""
        if not self._stops:
            return start - self._start, end - self._start
        low, high = self.at(start), self.at(end)
        return (low, high) if high - low == end - start else None


class Sample(NamedTuple):
    """A reading that counts, placed on the run's clock."""

    start: int
    end: int
    reading: CardReading


@dataclass(frozen=True)
class CardObservation:
    """What was seen of one card of a run."""

    card: Card
    samples: tuple[Sample, ...]
    """In order of time, without overlaps."""
    problem: str | None
    """Why nothing can be said of the card now (a key of the reasons' problems); None: its
    newest good reading is fresh."""
    holes: tuple[Stretch, ...]
    """Stretches of the run's clock in which it was not seen."""
    overdue_seconds: int
    """How much longer than one interval ago, which is usual, its newest good reading ended."""


Fault = Callable[[CardReading], str | None]
"""What is wrong with a reading; None: it counts."""


def find_read_fault(reading: CardReading) -> str | None:
    """A reading counts when its utilisation was read at least once: unknown is never zero."""
    if reading.status is not ReadStatus.OK:
        return reading.status.value
    if reading.reads <= 0 or reading.utilisation_mean is None:
        return ReadStatus.NO_ANSWER.value
    return None


def observe_card(
    evidence: Evidence, clock: RunClock, card: Card, find_fault: Fault = find_read_fault
) -> CardObservation:
    """The readings of a card that count by the evidence contract."""
    counted = _order(evidence, evidence.readings.get(card, ()))
    samples: list[Sample] = []
    seen_to = 0
    newest_fault: str | None = None
    for reading in counted:
        newest_fault = find_fault(reading)
        if newest_fault is not None:
            continue
        placed = clock.place(reading.started_at, reading.ended_at)
        if placed is None or placed[1] <= seen_to:
            continue
        start, end = placed
        samples.append(Sample(start if start > seen_to else seen_to, end, reading))
        seen_to = end
    patience = MAX_HOLE_INTERVALS * evidence.interval_seconds
    problem = None
    if not samples or clock.now - seen_to > patience:
        spoke = bool(counted) and evidence.now - counted[-1].ended_at <= patience
        problem = newest_fault if spoke and newest_fault is not None else "silent"
    return CardObservation(
        card=card,
        samples=tuple(samples),
        problem=problem,
        holes=tuple(_find_holes(evidence, clock, samples)),
        overdue_seconds=max(0, clock.now - seen_to - evidence.interval_seconds),
    )


def count_unknown_seconds(observations: Iterable[CardObservation]) -> int:
    """Time in which at least one card was not seen: distinct times, not cards times time."""
    holes = [hole for observation in observations for hole in observation.holes]
    if not holes:
        return 0
    end = max(high for _, high in holes)
    return sum(high - low for low, high in merge_stretches(holes, 0, end))


def silent_seconds(evidence: Evidence) -> int:
    """Time since any card of the run was last heard of, whatever was said of it."""
    newest = max(
        (
            reading.ended_at
            for allocation in evidence.run.cards
            for reading in evidence.readings.get(allocation.card, ())
            if evidence.run.key.start < reading.ended_at <= evidence.now
        ),
        default=evidence.run.key.start,
    )
    return max(0, evidence.now - newest)


def _order(evidence: Evidence, readings: Sequence[CardReading]) -> list[CardReading]:
    """Readings of this run up to now, each time once, in order of time."""
    start, now = evidence.run.key.start, evidence.now
    by_end: dict[int, CardReading] = {}
    for reading in readings:
        end = reading.ended_at
        # One that began earlier belongs, at least in part, to the card's former owner.
        if reading.started_at < start or end > now or end <= reading.started_at:
            continue
        known = by_end.get(end)
        if known is None or (known != reading and _rank(reading) > _rank(known)):
            by_end[end] = reading
    return [by_end[end] for end in sorted(by_end)]


def _rank(reading: CardReading) -> tuple[object, ...]:
    """Which of two different readings of one time is believed: the one that was busier."""
    return (
        reading.status is ReadStatus.OK,
        reading.utilisation_max or 0,
        reading.utilisation_mean or 0.0,
        reading.reads,
        reading.status.value,
        repr(reading),
    )


def _find_holes(evidence: Evidence, clock: RunClock, samples: list[Sample]) -> Iterable[Stretch]:
    begin = 0 if evidence.readings_from is None else clock.at(evidence.readings_from)
    if not samples:
        if begin < clock.now:
            yield begin, clock.now
        return
    # The first whole reading of a run begins up to one interval after it, the newest one is
    # still on its way: both are no holes.
    if samples[0].start - begin > evidence.interval_seconds:
        yield begin, samples[0].start
    for before, after in pairwise(samples):
        if after.start > before.end:
            yield before.end, after.start
    if clock.now - samples[-1].end > MAX_HOLE_INTERVALS * evidence.interval_seconds:
        yield samples[-1].end, clock.now
