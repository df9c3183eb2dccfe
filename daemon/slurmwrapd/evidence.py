"""What the store knows of a run, gathered as evidence for the rules."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from slurmwrap.model import Card, CardReading, ReadStatus
from slurmwrap.rules.evidence import Evidence, readings_start
from slurmwrap.rules.ladder import CancelRecord, History, WarningRecord
from slurmwrap.store.runs import StoredRun
from slurmwrapd.service import Service

# Readings are needed from a little before the window, so that its first interval is whole.
_SPARE_INTERVALS = 4


def gather_evidence(service: Service, stored: StoredRun, history: History, now: int) -> Evidence:
    """Everything the rules may know of a run at ``now``.

    Where a cancel can follow, readings reach back to the warning: only so can it be proved
    that what was warned of still goes on.
    """
    run = stored.run
    interval = service.config.agents.interval
    suspensions = service.store.runs.suspensions(stored.id)
    reach = service.rules.reach_seconds + _SPARE_INTERVALS * interval
    enforced = {item.rule.id for item in service.rules.rules if item.settings.mode == "enforce"}
    warned_at = {
        item.rule: item.recorded_at
        for item in history.warnings
        if item.rule in enforced and not item.observed
    }
    readings_from = max(
        run.key.start,
        min(
            readings_start(run, now, reach, suspensions),
            *(moment - interval for moment in warned_at.values()),
            now,
        ),
    )
    readings = service.store.readings.of_cards(
        (item.card for item in run.cards), readings_from, now
    )
    return Evidence(
        run=run,
        now=now,
        interval_seconds=interval,
        readings=_doubt_strays(service, run.key.job_id, readings),
        readings_from=readings_from,
        phases=service.store.runs.phases(stored.id),
        metrics=service.store.runs.metrics(stored.id),
        watch=service.store.runs.watched_metric(stored.id),
        suspensions=suspensions,
    )


def gather_history(service: Service, stored: StoredRun) -> History:
    """What was decided about a run before."""
    warnings: list[WarningRecord] = []
    cancels: list[CancelRecord] = []
    for entry in service.store.ledger.of_run(stored.id):
        since = entry.detail.get("episode_since")
        if not isinstance(since, int):
            continue
        observed = entry.kind.startswith("would_")
        if entry.kind in ("warning", "would_warn"):
            warnings.append(
                WarningRecord(
                    rule=entry.rule,
                    run=stored.run.key,
                    episode_since=since,
                    recorded_at=entry.at,
                    delivered_at=entry.delivered_at,
                    observed=observed,
                )
            )
        elif entry.kind in ("cancel_decision", "would_cancel"):
            cancels.append(
                CancelRecord(
                    rule=entry.rule,
                    run=stored.run.key,
                    episode_since=since,
                    recorded_at=entry.at,
                    observed=observed,
                )
            )
    return History(warnings=tuple(warnings), cancels=tuple(cancels))


def stray_processes(reading: CardReading, holders: set[int]) -> list[int]:
    """Job ids of processes on the card that belong to no run that holds it."""
    return [
        process.job_id
        for process in reading.processes or ()
        if process.job_id is not None and process.job_id not in holders
    ]


def _doubt_strays(
    service: Service, job_id: int, readings: Mapping[Card, tuple[CardReading, ...]]
) -> dict[Card, tuple[CardReading, ...]]:
    """The readings; those that show another job's process on the card are made unknown.

    Such a process means that our map of indexes is wrong, or that Slurm's devices are not
    confined: either way the numbers may be another job's.
    """
    return {
        card: tuple(_doubt_stray(service, card, job_id, item) for item in items)
        for card, items in readings.items()
    }


def _doubt_stray(service: Service, card: Card, job_id: int, reading: CardReading) -> CardReading:
    if not stray_processes(reading, {job_id}):
        return reading
    # A card may be shared (shards): only a process of a job that does not hold it is a stray.
    holders = service.store.runs.holders(card, reading.started_at, reading.ended_at)
    if not stray_processes(reading, holders | {job_id}):
        return reading
    return msgspec.structs.replace(reading, status=ReadStatus.MISATTRIBUTED)
