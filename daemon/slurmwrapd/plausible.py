"""What a card, a run or a person can have said: checked before anything of a message is kept."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from slurmwrap.display import one_line
from slurmwrap.errors import UsageError
from slurmwrap.model import (
    UTILISATION_BINS,
    CardReading,
    MetricPoint,
    Phase,
    ReadStatus,
    RunKey,
    WatchedMetric,
)

_FUTURE_SECONDS = 120
_LONGEST_READING_SECONDS = 3600
_HIGHEST_INDEX = 1023
_LONGEST_NAME = 128
_LONGEST_WORDS = 1000
_LONGEST_DETAIL = 1000
_MOST_PROCESSES = 1024
_MOST_PATIENCE = 1_000_000
# Numbers that the store can hold and no device exceeds.
_MOST = 2**62
_MOST_WATTS = 1e6
_MOST_JOULES = 1e12


def clean_words(words: str) -> str:
    """A program's own words, made safe to show and short enough to keep."""
    return one_line(words, width=_LONGEST_WORDS)


def clean_reading(reading: CardReading) -> CardReading:
    """The reading with the driver's words made safe."""
    if not reading.error:
        return reading
    return msgspec.structs.replace(reading, error=clean_words(reading.error))


def check_reading(reading: CardReading, node: str, now: int) -> None:
    """That a card of this node can have given the reading.

    Raises:
        UsageError: it can't, with the reason.
    """
    what = f"a reading of card {one_line(reading.node, 64)}:{reading.index}"
    if reading.node != node or not 0 <= reading.index <= _HIGHEST_INDEX:
        raise UsageError(f"{what} can't be one of node {node!r}")
    length = reading.ended_at - reading.started_at
    if not (
        reading.started_at >= 0
        and 0 < length <= _LONGEST_READING_SECONDS
        and reading.ended_at <= now + _FUTURE_SECONDS
    ):
        raise UsageError(
            f"{what} can't be over [{reading.started_at}, {reading.ended_at}): it is {now} now,"
            f" and a reading has {_LONGEST_READING_SECONDS} s at most"
        )
    _check_utilisation(reading, what)
    _check_values(reading, what)
    for name in (reading.uuid, reading.gpu_name):
        if len(name) > _LONGEST_NAME or (name and not name.isprintable()):
            raise UsageError(f"{what} names its card {one_line(name, 64)!r}: that is no name")
    processes = reading.processes or ()
    numbers = (
        number
        for item in processes
        for number in (item.pid, item.uid, item.started_at, item.job_id, item.memory_bytes)
    )
    if len(processes) > _MOST_PROCESSES or not _are_counts(numbers):
        raise UsageError(f"{what} has processes that can't be")


def _check_utilisation(reading: CardReading, what: str) -> None:
    if not _are_counts((reading.reads, reading.failed_reads)):
        raise UsageError(f"{what} can't rest on {reading.reads} reads")
    mean, highest = reading.utilisation_mean, reading.utilisation_max
    known = [value for value in (mean, highest) if value is not None]
    if not all(0 <= value <= 100 for value in known):
        raise UsageError(f"{what} has a utilisation of {mean} %, at most {highest} %")
    # A mean may be rounded.
    if mean is not None and highest is not None and mean > highest + 1:
        raise UsageError(f"{what} has a mean of {mean} % over its maximum of {highest} %")
    if reading.status is ReadStatus.OK and (reading.reads == 0 or mean is None):
        raise UsageError(f"{what} is called good without one good read")
    histogram = reading.histogram
    if histogram is not None and (
        len(histogram) != UTILISATION_BINS or min(histogram) < 0 or sum(histogram) != reading.reads
    ):
        raise UsageError(
            f"{what}: its histogram does not have {UTILISATION_BINS} bins that add up to its"
            f" {reading.reads} reads"
        )


def _check_values(reading: CardReading, what: str) -> None:
    counts = (
        reading.memory_used_bytes,
        reading.memory_total_bytes,
        reading.sm_clock_mhz,
        reading.ecc_uncorrected,
    )
    bounded = (
        (reading.power_mean_watts, _MOST_WATTS),
        (reading.power_max_watts, _MOST_WATTS),
        (reading.energy_joules, _MOST_JOULES),
    )
    temperature = reading.temperature_celsius
    if not (
        _are_counts(counts)
        and all(value is None or 0 <= value <= most for value, most in bounded)
        and (temperature is None or -300 < temperature < 10_000)
    ):
        raise UsageError(f"{what} has memory, power, energy or other values that no card has")


def check_run(run: RunKey) -> None:
    """That a run's key is made of numbers that a run can have.

    Raises:
        UsageError: it is not.
    """
    if not _are_counts((run.job_id, run.start)):
        raise UsageError(f"job {run.job_id} started at {run.start}: such a run can't be")


def check_metric(metric: MetricPoint, earliest: int, now: int) -> None:
    """That a run that began at ``earliest`` can have published the point by now.

    Raises:
        UsageError: it can't.
    """
    _check_name("metric", metric.name)
    _check_moment("metric", metric.name, metric.at, earliest, now)
    if abs(metric.step) > _MOST or not math.isfinite(metric.value):
        raise UsageError(f"metric {metric.name!r}: step {metric.step} has no value that can be")


def check_phase(phase: Phase, earliest: int, now: int) -> None:
    """That a run that began at ``earliest`` can have had the phase by now.

    Raises:
        UsageError: it can't.
    """
    _check_name("phase", phase.name)
    _check_name("node", phase.node)
    _check_moment("phase", phase.name, phase.started_at, earliest, now)
    if phase.ended_at is not None:
        _check_moment("phase", phase.name, phase.ended_at, phase.started_at, now)
    if len(phase.detail) > _LONGEST_DETAIL:
        raise UsageError(f"the detail of phase {phase.name!r} is over {_LONGEST_DETAIL} characters")


def check_watch(watch: WatchedMetric) -> None:
    """That a metric can be watched in this way.

    Raises:
        UsageError: it can't.
    """
    _check_name("metric", watch.name)
    if watch.mode not in ("max", "min"):
        raise UsageError(f"mode {watch.mode[:20]!r} of a watched metric is neither max nor min")
    if not math.isfinite(watch.min_delta) or watch.min_delta < 0:
        raise UsageError(f"min_delta {watch.min_delta} of a watched metric is no number from 0 on")
    if watch.patience is not None and not 1 <= watch.patience <= _MOST_PATIENCE:
        raise UsageError(f"patience {watch.patience} is not between 1 and {_MOST_PATIENCE}")


def check_count(what: str, count: int) -> None:
    """That a number counts something.

    Raises:
        UsageError: it does not.
    """
    if not _are_counts((count,)):
        raise UsageError(f"{what} can't be {count}")


def _are_counts(numbers: Iterable[int | None]) -> bool:
    return all(number is None or 0 <= number <= _MOST for number in numbers)


def _check_name(what: str, name: str) -> None:
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise UsageError(
            f"{name[:_LONGEST_NAME]!r} can't name a {what}: 1 to {_LONGEST_NAME} printable"
            " characters are expected"
        )


def _check_moment(what: str, name: str, at: int, earliest: int, now: int) -> None:
    if not earliest <= at <= now + _FUTURE_SECONDS:
        raise UsageError(f"{what} {name!r} is dated {at}, outside its run [{earliest}, {now}]")
