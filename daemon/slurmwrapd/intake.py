"""Taking in what agents and supervisors send: checked first, then kept once."""

from __future__ import annotations

import logging

from slurmwrap.api import Nothing, Readings, RunEvents, RunWarnings
from slurmwrap.errors import NotFoundError, UsageError
from slurmwrap.model import UTILISATION_BINS, CardReading, MetricPoint, Phase
from slurmwrap.munge import Credential
from slurmwrapd.authority import Asker, check_agent
from slurmwrapd.service import Service

log = logging.getLogger("slurmwrapd")

_FUTURE_SECONDS = 120
_LONGEST_READING_SECONDS = 3600
_HIGHEST_INDEX = 1023
_LONGEST_NAME = 128
_LONGEST_DETAIL = 1000
_MOST_METRIC_NAMES = 200
_MOST_PHASES = 500


def take_readings(service: Service, credential: Credential, message: Readings) -> Nothing:
    """Keep an agent's readings.

    Raises:
        NotPermittedError: the sender is not this node's agent.
        UsageError: a reading that no card can give; nothing of the message is kept.
    """
    check_agent(service.config, credential, message.node)
    now = service.clock.now()
    for reading in message.readings:
        _check_reading(reading, message.node, now)
    service.store.readings.add(message.readings, now)
    service.store.readings.note_agent(
        message.node,
        now=now,
        newest_reading_at=max((item.ended_at for item in message.readings), default=None),
        clock_skew_seconds=credential.decoded_at - credential.encoded_at,
        dropped_messages=message.dropped_messages,
        address=credential.address,
        error=message.error,
    )
    return Nothing()


def take_events(service: Service, asker: Asker, message: RunEvents) -> RunWarnings:
    """Keep what a supervisor publishes of its own run; answers with the run's warnings.

    Raises:
        NotFoundError: no such run is known (yet), or it is somebody else's.
        UsageError: names or times that can't be.
    """
    stored = service.store.runs.find(message.run)
    if stored is None or stored.run.uid != asker.uid:
        raise NotFoundError(
            f"no run of job {message.run.job_id} is known to be yours on the nodes",
            hint="a run that has just started is known after the next listing; send again",
        )
    now = service.clock.now()
    earliest = stored.run.key.start - _FUTURE_SECONDS
    for metric in message.metrics:
        _check_metric(metric, earliest, now)
    for phase in message.phases:
        _check_phase(phase, earliest, now)
    names = {item.name for item in service.store.runs.metrics(stored.id, newest=1)}
    if len(names | {item.name for item in message.metrics}) > _MOST_METRIC_NAMES:
        raise UsageError(f"a run may have {_MOST_METRIC_NAMES} metrics; this would be more")
    if len(service.store.runs.phases(stored.id)) + len(message.phases) > _MOST_PHASES:
        raise UsageError(f"a run may have {_MOST_PHASES} phases; this would be more")
    service.store.runs.add_events(
        stored.id, phases=message.phases, metrics=message.metrics, watch=message.watch
    )
    warnings = [
        entry.reason
        for entry in service.store.ledger.of_run(stored.id)
        if entry.kind in ("warning", "cancellation")
    ]
    return RunWarnings(warnings=tuple(warnings))


def _check_reading(reading: CardReading, node: str, now: int) -> None:
    length = reading.ended_at - reading.started_at
    fits = (
        reading.node == node
        and 0 <= reading.index <= _HIGHEST_INDEX
        and 0 < length <= _LONGEST_READING_SECONDS
        and reading.ended_at <= now + _FUTURE_SECONDS
        and reading.reads >= 0
        and reading.failed_reads >= 0
    )
    if not fits:
        raise UsageError(
            f"a reading of card {reading.node}:{reading.index} over"
            f" [{reading.started_at}, {reading.ended_at}) can't be one of node {node!r}"
        )
    histogram = reading.histogram
    if histogram is not None and (
        len(histogram) != UTILISATION_BINS or min(histogram) < 0 or sum(histogram) != reading.reads
    ):
        raise UsageError(
            f"the histogram of card {node}:{reading.index} does not have {UTILISATION_BINS}"
            f" bins that add up to its {reading.reads} reads"
        )


def _check_metric(metric: MetricPoint, earliest: int, now: int) -> None:
    _check_name("metric", metric.name)
    _check_moment("metric", metric.name, metric.at, earliest, now)
    if not -(2**63) <= metric.step < 2**63:
        raise UsageError(f"step {metric.step} of metric {metric.name!r} is out of range")


def _check_phase(phase: Phase, earliest: int, now: int) -> None:
    _check_name("phase", phase.name)
    _check_name("node", phase.node)
    _check_moment("phase", phase.name, phase.started_at, earliest, now)
    if phase.ended_at is not None:
        _check_moment("phase", phase.name, phase.ended_at, phase.started_at, now)
    if len(phase.detail) > _LONGEST_DETAIL:
        raise UsageError(f"the detail of phase {phase.name!r} is over {_LONGEST_DETAIL} characters")


def _check_name(what: str, name: str) -> None:
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise UsageError(
            f"{name[:_LONGEST_NAME]!r} can't name a {what}: 1 to {_LONGEST_NAME} printable"
            " characters are expected"
        )


def _check_moment(what: str, name: str, at: int, earliest: int, now: int) -> None:
    if not earliest <= at <= now + _FUTURE_SECONDS:
        raise UsageError(f"{what} {name!r} is dated {at}, outside its run [{earliest}, {now}]")
