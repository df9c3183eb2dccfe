"""From reads to the reading of an interval."""

from __future__ import annotations

import pytest

from slurmwrap.gpu.interval import count_ticks, next_boundary, next_tick, summarise
from slurmwrap.gpu.reader import CardIdentity, CardRead
from slurmwrap.model import CardReading, ReadStatus

CARD = CardIdentity(index=2, minor=2, uuid="GPU-x", name="A100")


def good(utilisation: int, **more: int) -> CardRead:
    return CardRead(status=ReadStatus.OK, utilisation=utilisation, **more)


def bad(status: ReadStatus, error: str = "") -> CardRead:
    return CardRead(status=status, error=error)


def reading(
    reads: list[CardRead],
    *,
    expected: int | None = None,
    counter: int | None = None,
    unanswered: str = "",
) -> CardReading:
    return summarise(
        CARD,
        reads,
        node="gpu1",
        started_at=1200,
        ended_at=1230,
        expected_reads=len(reads) if expected is None else expected,
        counter_before_millijoules=counter,
        unanswered=unanswered,
    )


def test_mean_maximum_and_histogram() -> None:
    """Reads 0, 0, 1, 29, 30 and 100 fall into the bins [0,1), [1,5), [25,30), [30,40), [90,100]."""
    result = reading([good(value) for value in (0, 0, 1, 29, 30, 100)])
    assert result.status is ReadStatus.OK
    assert (result.reads, result.failed_reads) == (6, 0)
    assert result.utilisation_mean == pytest.approx(26.667)
    assert result.utilisation_max == 100
    # edges:           0  1  5  10 15 20 25 30 40 50 60 70 80 90..100
    assert result.histogram == (2, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1)


def test_nothing_read_is_unknown_not_zero() -> None:
    """R4: a card whose reads never came back has no utilisation, and says for how long."""
    result = reading([], expected=30, unanswered="the driver has not answered for 42 s")
    assert result.status is ReadStatus.NO_ANSWER
    assert (result.reads, result.failed_reads) == (0, 30)
    assert result.utilisation_mean is None
    assert result.utilisation_max is None
    assert result.histogram is None
    assert result.error == "the driver has not answered for 42 s"


def test_not_supported_stays_not_supported() -> None:
    """R1: a card without the counter is unknown, never 0; its memory is still told."""
    read = CardRead(
        status=ReadStatus.NOT_SUPPORTED, memory_used_bytes=7, memory_total_bytes=9, error="no"
    )
    result = reading([read, read])
    assert result.status is ReadStatus.NOT_SUPPORTED
    assert result.utilisation_mean is None
    assert (result.memory_used_bytes, result.memory_total_bytes) == (7, 9)


def test_one_good_read_makes_the_interval_good_and_the_failures_are_counted() -> None:
    """Three good reads, one refused, 26 that never came."""
    result = reading([good(5), good(7), bad(ReadStatus.LOST, "GPU is lost"), good(9)], expected=30)
    assert result.status is ReadStatus.OK
    assert (result.reads, result.failed_reads) == (3, 27)
    assert result.utilisation_mean == 7.0
    assert result.error == "GPU is lost"


def test_memory_is_the_largest_and_power_mean_and_maximum() -> None:
    """Units: milliwatts become watts."""
    result = reading(
        [
            good(1, memory_used_bytes=10, power_milliwatts=100_000),
            good(1, memory_used_bytes=30, power_milliwatts=300_500),
            good(1, memory_used_bytes=20),
        ]
    )
    assert result.memory_used_bytes == 30
    assert result.power_mean_watts == 200.25
    assert result.power_max_watts == 300.5


def test_energy_is_the_difference_to_the_interval_before() -> None:
    """9,000 J in 30 s is 300 W."""
    result = reading([good(1), good(1, energy_millijoules=19_000_000)], counter=10_000_000)
    assert result.energy_joules == 9000.0


@pytest.mark.parametrize(
    ("before", "counters"),
    [
        pytest.param(10_000_000, [500], id="the counter was reset"),
        pytest.param(10_000_000, [9_000_000, 12_000_000], id="reset and counted on"),
        pytest.param(0, [10**15], id="faster than any card"),
        pytest.param(None, [10_000_000], id="nothing to compare with"),
        pytest.param(10_000_000, [], id="not read"),
    ],
)
def test_energy_that_is_no_amount_is_unknown(before: int | None, counters: list[int]) -> None:
    """A counter that went back, ran away or stands alone says nothing."""
    reads = [good(1, energy_millijoules=counter) for counter in counters] or [good(1)]
    assert reading(reads, counter=before).energy_joules is None


def test_intervals_end_at_multiples_of_their_length() -> None:
    """Whenever an agent starts, its intervals end when everybody else's do."""
    assert next_boundary(1200.0, 30) == 1230
    assert next_boundary(1229.999, 30) == 1230
    assert next_boundary(1230.0, 30) == 1260


def test_moments_of_reading() -> None:
    """Multiples of the step, also where the step is no binary fraction."""
    assert next_tick(1200.0, 1.0) == 1200.0
    assert next_tick(1200.01, 1.0) == 1201.0
    now = 1_790_000_000.2
    assert next_tick(now, 0.2) == pytest.approx(now, abs=1e-6)
    assert count_ticks(1200, 1230, 1.0) == 30
    assert count_ticks(1_790_000_000, 1_790_000_002, 0.2) == 10
    assert count_ticks(1_790_000_001, 1_790_000_002, 0.2) == 5
    assert sum(count_ticks(second, second + 1, 0.7) for second in range(1200, 1270)) == 100
