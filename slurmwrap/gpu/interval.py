"""From the reads of one card to what is said of it over an interval. Values only."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence

from slurmwrap.gpu.plausibility import MAX_POWER_WATTS
from slurmwrap.gpu.reader import CardIdentity, CardRead
from slurmwrap.model import (
    UTILISATION_BINS,
    UTILISATION_EDGES,
    CardProcess,
    CardReading,
    ReadStatus,
)

_ROUNDING = 1e-4
"""Ticks are multiples of a float; a thousandth of the shortest sensible step is rounding."""


def next_boundary(now: float, interval_seconds: int) -> int:
    """The end of the interval that holds ``now``: a multiple of the interval in epoch seconds.

    All cards of all nodes share these moments, and an agent that is started again names the
    same ones.
    """
    return (math.floor(now) // interval_seconds + 1) * interval_seconds


def next_tick(now: float, read_every_seconds: float) -> float:
    """The first moment of reading at or after ``now``: a multiple of ``read_every_seconds``."""
    return math.ceil(now / read_every_seconds - _ROUNDING) * read_every_seconds


def count_ticks(started_at: int, ended_at: int, read_every_seconds: float) -> int:
    """How many moments of reading lie in ``[started_at, ended_at)``."""
    first = math.ceil(started_at / read_every_seconds - _ROUNDING)
    last = math.ceil(ended_at / read_every_seconds - _ROUNDING)
    return max(0, last - first)


def summarise(
    card: CardIdentity,
    reads: Sequence[CardRead],
    *,
    node: str,
    started_at: int,
    ended_at: int,
    expected_reads: int,
    counter_before_millijoules: int | None = None,
    processes: tuple[CardProcess, ...] | None = None,
    unanswered: str = "",
) -> CardReading:
    """What a node says of a card over ``[started_at, ended_at)``.

    Args:
        reads: in the order of time.
        expected_reads: reads there should have been; those that are not good are failed,
            whether the driver refused them or never came back.
        counter_before_millijoules: the energy counter at the end of the interval before.
        unanswered: what to say when there is no read at all.
    """
    utilisations = [read.utilisation for read in reads if read.utilisation is not None]
    good = len(utilisations)
    failed = [read for read in reads if read.utilisation is None]
    status = ReadStatus.OK if good else failed[-1].status if failed else ReadStatus.NO_ANSWER
    error = failed[-1].error if failed else _last_error(reads)
    powers = [read.power_milliwatts for read in reads if read.power_milliwatts is not None]
    used = [read.memory_used_bytes for read in reads if read.memory_used_bytes is not None]
    return CardReading(
        node=node,
        index=card.index,
        uuid=card.uuid,
        gpu_name=card.name,
        started_at=started_at,
        ended_at=ended_at,
        status=status,
        reads=good,
        failed_reads=max(expected_reads, len(reads)) - good,
        utilisation_mean=round(sum(utilisations) / good, 3) if good else None,
        utilisation_max=max(utilisations, default=None),
        histogram=_histogram(utilisations) if good else None,
        memory_used_bytes=max(used, default=None),
        memory_total_bytes=_newest(reads, "memory_total_bytes"),
        power_mean_watts=round(sum(powers) / len(powers) / 1000, 3) if powers else None,
        power_max_watts=max(powers) / 1000 if powers else None,
        energy_joules=_energy(reads, counter_before_millijoules, ended_at - started_at),
        temperature_celsius=_newest(reads, "temperature_celsius"),
        sm_clock_mhz=_newest(reads, "sm_clock_mhz"),
        ecc_uncorrected=_newest(reads, "ecc_uncorrected"),
        processes=processes,
        error=(unanswered if not reads else error)[:500],
    )


def newest_counter(reads: Sequence[CardRead]) -> int | None:
    """The energy counter to give to the next interval; None: it was not read at the end."""
    return _newest(reads, "energy_millijoules")


def _histogram(utilisations: Sequence[int]) -> tuple[int, ...]:
    bins = [0] * UTILISATION_BINS
    for utilisation in utilisations:
        place = bisect.bisect_right(UTILISATION_EDGES, utilisation) - 1
        bins[min(place, UTILISATION_BINS - 1)] += 1
    return tuple(bins)


def _energy(reads: Sequence[CardRead], before: int | None, seconds: int) -> float | None:
    """Joules between the counter before and the newest one; None when that is no amount.

    Without a counter from before, as after a start, the interval's own first one serves. A
    counter that went back was reset (the driver was loaded again), and one that ran faster
    than any card can draw is no counter.
    """
    counters = [read.energy_millijoules for read in reads if read.energy_millijoules is not None]
    if before is not None:
        counters.insert(0, before)
    if len(counters) < 2 or any(later < earlier for earlier, later in itertools.pairwise(counters)):
        return None
    joules = (counters[-1] - counters[0]) / 1000
    # The two counters may lie a little further apart than the interval is long.
    return joules if joules <= MAX_POWER_WATTS * 2 * seconds else None


def _newest(reads: Sequence[CardRead], field: str) -> int | None:
    for read in reversed(reads):
        value: int | None = getattr(read, field)
        if value is not None:
            return value
    return None


def _last_error(reads: Sequence[CardRead]) -> str:
    """Words for a value other than the utilisation that could not be read, if any."""
    return next((read.error for read in reversed(reads) if read.error), "")
