"""The circuit breaker: when too many would be cancelled, none is."""

from __future__ import annotations

import pytest
from rule_scene import HOUR, START

from slurmwrap.model import RunKey
from slurmwrap.rules import BreakerSettings, check_breaker

RUNS = [RunKey(cluster="c1", job_id=number, start=START) for number in range(100)]
NOW = START + 5 * HOUR


def trips(running: int, wanted: int, recent: int = 0, age: int = 0) -> bool:
    reason = check_breaker(
        BreakerSettings(),
        running=RUNS[:running],
        wanted=RUNS[:wanted],
        recent=[(run, NOW - age) for run in RUNS[running : running + recent]],
        now=NOW,
    )
    return reason is not None


@pytest.mark.parametrize(
    ("running", "wanted", "expected"),
    [
        (40, 20, True),  # X8: half the cluster
        (40, 9, True),  # 22.5 %
        (40, 8, False),  # exactly 20 %
        (4, 4, False),  # all of few: below the minimum count
        (5, 5, True),
        (40, 0, False),
    ],
)
def test_x8_share_and_minimum(running: int, wanted: int, expected: bool) -> None:
    """X8: more than 20 % of the running jobs, and at least 5."""
    assert trips(running, wanted) is expected


def test_x8_cancels_of_the_last_hour_count() -> None:
    """X8: a few in each tick add up: 6 done and 4 wanted of 40 + 6 are 21.7 %."""
    assert trips(40, 4, recent=6, age=59 * 60)
    assert not trips(40, 4, recent=6, age=60 * 60)


def test_same_run_is_counted_once() -> None:
    """A cancel that is repeated, or wanted by two rules, is one job."""
    reason = check_breaker(
        BreakerSettings(),
        running=RUNS[:40],
        wanted=RUNS[:8] + RUNS[:8],
        recent=[(run, NOW - 60) for run in RUNS[:8]],
        now=NOW,
    )
    assert reason is None


def test_reason_counts() -> None:
    """The administrator reads how many, of how many, and over what limit."""
    reason = check_breaker(
        BreakerSettings(), running=RUNS[:40], wanted=RUNS[:20], recent=[], now=NOW
    )
    assert reason is not None
    assert reason.text() == (
        "20 cancels wanted and 0 done within 1 h, of 40 jobs: more than 20 %,"
        " so nothing is cancelled"
    )


@pytest.mark.parametrize("values", [{"max_share": 0.0}, {"max_share": 1.5}, {"min_jobs": 0}])
def test_settings_that_make_no_sense_are_refused(values: dict[str, float]) -> None:
    """A breaker that never or always trips is a mistake."""
    with pytest.raises(ValueError, match=r"max_share|min_jobs"):
        BreakerSettings(**values)  # type: ignore[arg-type]
