"""Taking in what agents and supervisors send: checked first, then kept once."""

from __future__ import annotations

import logging

import msgspec

from slurmwrap.api import Nothing, Readings, RunEvents, RunWarnings
from slurmwrap.display import clean_text
from slurmwrap.errors import NotFoundError, UsageError
from slurmwrap.munge import Credential
from slurmwrapd.authority import Asker, check_agent
from slurmwrapd.plausible import (
    check_count,
    check_metric,
    check_phase,
    check_reading,
    check_run,
    check_watch,
    clean_reading,
    clean_words,
)
from slurmwrapd.service import Service

log = logging.getLogger("slurmwrapd")

_CLOCKS_APART_SECONDS = 120
_LAST_WORDS_SECONDS = 3600
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
        check_reading(reading, message.node, now)
    check_count("dropped_messages", message.dropped_messages)
    service.store.readings.add([clean_reading(item) for item in message.readings], now)
    service.store.readings.note_agent(
        message.node,
        now=now,
        newest_reading_at=max((item.ended_at for item in message.readings), default=None),
        clock_skew_seconds=credential.decoded_at - credential.encoded_at,
        dropped_messages=message.dropped_messages,
        address=credential.address,
        error=clean_words(message.error),
    )
    return Nothing()


def take_events(service: Service, asker: Asker, message: RunEvents) -> RunWarnings:
    """Keep what a supervisor publishes of its own run; answers with the run's warnings.

    Raises:
        NotFoundError: no such run is known (yet), or it is somebody else's.
        UsageError: names or times that can't be.
    """
    check_run(message.run)
    stored = service.store.runs.find(message.run)
    if stored is None or stored.run.uid != asker.uid:
        raise NotFoundError(
            f"no run of job {message.run.job_id} is known to be yours on the nodes",
            hint="a run that has just started is known after the next listing; send again",
        )
    now = service.clock.now()
    if stored.ended_at is not None and now - stored.ended_at > _LAST_WORDS_SECONDS:
        raise UsageError(
            f"the run of job {message.run.job_id} ended at {stored.ended_at}:"
            f" nothing is added to it {_LAST_WORDS_SECONDS} s later"
        )
    earliest = stored.run.key.start - _CLOCKS_APART_SECONDS
    for metric in message.metrics:
        check_metric(metric, earliest, now)
    for phase in message.phases:
        check_phase(phase, earliest, now)
    if message.watch is not None:
        check_watch(message.watch)
    _check_room(service, stored.id, message)
    service.store.runs.add_events(
        stored.id,
        phases=[
            msgspec.structs.replace(item, detail=clean_text(item.detail)) for item in message.phases
        ],
        metrics=message.metrics,
        watch=message.watch,
    )
    warnings = [
        entry.reason
        for entry in service.store.ledger.of_run(stored.id)
        if entry.kind in ("warning", "cancellation")
    ]
    return RunWarnings(warnings=tuple(warnings))


def _check_room(service: Service, run_id: int, message: RunEvents) -> None:
    """That the run has not published too much, by names: of points the newest are kept."""
    runs = service.store.runs
    names = runs.metric_names(run_id) | {item.name for item in message.metrics}
    if len(names) > _MOST_METRIC_NAMES:
        raise UsageError(f"a run may have {_MOST_METRIC_NAMES} metrics; this would be {len(names)}")
    phases = {
        (item.node, item.name, item.started_at) for item in (*runs.phases(run_id), *message.phases)
    }
    if len(phases) > _MOST_PHASES:
        raise UsageError(f"a run may have {_MOST_PHASES} phases; this would be {len(phases)}")
