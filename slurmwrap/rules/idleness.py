"""Since when a card has been idle: one walk over its samples, by the evidence contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurmwrap.model import UTILISATION_EDGES, Card, CardReading
from slurmwrap.rules.evidence import (
    MAX_HOLE_INTERVALS,
    MIN_COVERAGE,
    CardObservation,
    Evidence,
    Sample,
)

# No stretch from the moment at which idleness began may hold more than this many times the
# tolerated share of busy reads. At 1 a few stray reads would move that moment; without a bound
# a run that worked now and then would be caught soon after it stopped, not a window later.
_ONSET_TOLERANCE = 1.5

# A counter is called broken when it says (almost) nothing at high power.
_BROKEN_COUNTER_PERCENT = 1.0

_EPSILON = 1e-6


@dataclass(frozen=True)
class IdleCondition:
    """What makes a card idle."""

    threshold_percent: int
    """An edge of UTILISATION_EDGES."""
    share_below: float
    window_seconds: int


@dataclass(frozen=True)
class Tally:
    """What the reads of one card say over a stretch of the run's clock."""

    span_seconds: int
    below_share: float
    mean_percent: float
    coverage: float
    memory_bytes: int | None
    """The most that was held."""

    def is_idle(self, condition: IdleCondition) -> bool:
        """As far as was seen."""
        return (
            self.below_share >= condition.share_below - _EPSILON
            and self.mean_percent < condition.threshold_percent
        )

    def proves_idle(self, condition: IdleCondition) -> bool:
        """Idle, and enough was seen to act on it."""
        return self.is_idle(condition) and self.coverage >= MIN_COVERAGE - _EPSILON


@dataclass(frozen=True)
class Track:
    """One card: since when it has been idle, if it is."""

    observation: CardObservation
    first: int
    """Index of the sample with which its idleness began; the number of samples: not idle."""
    shares: Sequence[float]
    """Share of busy reads per sample."""

    @property
    def card(self) -> Card:
        return self.observation.card

    @property
    def samples(self) -> tuple[Sample, ...]:
        return self.observation.samples

    @property
    def end(self) -> int:
        return self.samples[-1].end if self.samples else 0

    @property
    def begin(self) -> int:
        """On the run's clock."""
        return self.samples[self.first].start if self.first < len(self.samples) else self.end

    @property
    def held(self) -> int:
        """Seconds on the run's clock for which it has been idle."""
        return self.end - self.begin

    @property
    def since(self) -> int:
        """UTC epoch seconds."""
        chosen = self.samples[min(self.first, len(self.samples) - 1)].reading
        return chosen.started_at if self.first < len(self.samples) else chosen.ended_at


def find_counter_fault(reading: CardReading, broken_counter_watts: int) -> str | None:
    """0 % at high power is a broken counter, not idleness; without a power it can't be told."""
    mean, power = reading.utilisation_mean, reading.power_mean_watts
    if mean is None or power is None:
        return None
    broken = mean <= _BROKEN_COUNTER_PERCENT and power >= broken_counter_watts
    return "broken_counter" if broken else None


def _busy_share(reading: CardReading, threshold_percent: int, bins_below: int) -> float:
    """Share of a reading's reads at or above the threshold; all of them where none can say."""
    if reading.histogram is not None:
        below = sum(reading.histogram[:bins_below])
        return 1 - below / reading.reads if below < reading.reads else 0.0
    highest = reading.utilisation_max
    if highest is None and reading.reads == 1:
        return float((reading.utilisation_mean or 0.0) >= threshold_percent)
    return float(highest is None or highest >= threshold_percent)


def track_idleness(
    observation: CardObservation, condition: IdleCondition, interval_seconds: int
) -> Track:
    """Walk a card's samples once, and keep the begin of the idleness that lasts to the end.

    The clock restarts after a hole of more than 3 intervals, when more of a window is missing
    than the contract allows, and when a window holds more busy time than the rule allows.
    """
    samples = observation.samples
    threshold = condition.threshold_percent
    bins_below = UTILISATION_EDGES.index(threshold)
    shares = [_busy_share(sample.reading, threshold, bins_below) for sample in samples]
    tolerated = 1 - condition.share_below
    busy_budget = tolerated * condition.window_seconds + _EPSILON
    missing_budget = (1 - MIN_COVERAGE) * condition.window_seconds + _EPSILON
    longest_hole = MAX_HOLE_INTERVALS * interval_seconds
    first = 0
    oldest = 0  # first sample of the episode that reaches into the window
    busy = missing = credit = 0.0
    for index, sample in enumerate(samples):
        gap = sample.start - samples[index - 1].end if index > first else 0
        if gap > longest_hole:
            first = oldest = index
            busy = missing = credit = 0.0
            gap = 0
        busy_seconds = (sample.end - sample.start) * shares[index]
        busy += busy_seconds
        missing += gap
        while samples[oldest].end <= sample.end - condition.window_seconds:
            busy -= (samples[oldest].end - samples[oldest].start) * shares[oldest]
            missing -= samples[oldest + 1].start - samples[oldest].end
            oldest += 1
        credit += (sample.end - sample.start) * tolerated * _ONSET_TOLERANCE - busy_seconds
        if missing > missing_budget:
            first = oldest = index
            busy, missing = busy_seconds, 0.0
            credit = (sample.end - sample.start) * tolerated * _ONSET_TOLERANCE - busy_seconds
        if credit < -_EPSILON or busy > busy_budget:
            first = oldest = index + 1
            busy = missing = credit = 0.0
    return Track(observation=observation, first=first, shares=shares)


def tally_newest(track: Track, seconds: int) -> Tally:
    """What the reads of a card say over the newest ``seconds`` (at least 1) in its sight."""
    samples, shares = track.samples, track.shares
    begin = track.end - seconds
    reads = busy = utilisation = 0.0
    seen = 0
    memory: int | None = None
    for index in range(len(samples) - 1, -1, -1):
        start, end, reading = samples[index]
        if end <= begin:
            break
        # A reading that overlaps the one before it counts for its new part only.
        weight = reading.reads * (end - start) / (reading.ended_at - reading.started_at)
        reads += weight
        busy += weight * shares[index]
        utilisation += weight * (reading.utilisation_mean or 0.0)
        seen += end - (start if start > begin else begin)
        held = reading.memory_used_bytes
        if held is not None and (memory is None or held > memory):
            memory = held
    return Tally(
        span_seconds=seconds,
        below_share=1 - busy / reads if reads else 0.0,
        mean_percent=utilisation / reads if reads else 0.0,
        # What is overdue is missing like any other hole, or losing a reading could help a cancel.
        coverage=max(0, seen - track.observation.overdue_seconds) / seconds,
        memory_bytes=memory,
    )


def is_open(track: Track, evidence: Evidence) -> bool:
    """Whether the idleness reaches back to where the handed-in readings begin."""
    begin = evidence.readings_from
    if begin is None or begin <= evidence.run.key.start or track.first != 0:
        return False
    return track.since - begin <= MAX_HOLE_INTERVALS * evidence.interval_seconds
