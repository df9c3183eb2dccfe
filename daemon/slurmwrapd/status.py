"""Answers job_status: what is known of a user's runs, each card, and what the rules say."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from slurmwrap.api import (
    MAX_MESSAGE_BYTES,
    CardStatus,
    JobStatus,
    RuleView,
    StatusAnswer,
    StatusQuestion,
)
from slurmwrap.billing.rating import cost_of
from slurmwrap.errors import NotFoundError, NotPermittedError, UsageError
from slurmwrap.model import AccountingRecord, Card, CardReading, MetricPoint, ReadStatus
from slurmwrap.store.runs import StoredRun
from slurmwrap.units import round_money
from slurmwrapd.accounting import live_record
from slurmwrapd.authority import Asker
from slurmwrapd.service import Service
from slurmwrapd.watch import judge_run

log = logging.getLogger("slurmwrapd")

_MOST_JOBS = 100
_MOST_BYTES = MAX_MESSAGE_BYTES - 16 * 1024
# Askers wait 10 s (daemon.request_timeout), with the way here and back.
_LONGEST_ANSWER_SECONDS = 4
_SLOTS = 40
_PLOT_SECONDS = 2 * 3600
_LONGEST_LOOK_SECONDS = 86400
_NEWEST_METRICS = 20
_LONGEST_MEMORY_SECONDS = 10 * 366 * 86400
_JOB = re.compile(r"(\d{1,10})(?:_(\d{1,10}))?")


def answer_status(service: Service, asker: Asker, question: StatusQuestion) -> StatusAnswer:
    """The asker's jobs, or one job that they may see.

    Raises:
        NotFoundError: no such job is known, or it is somebody else's: both look alike.
        NotPermittedError: another user's jobs were asked for.
        UsageError: no job's number, or a time that can't be.
    """
    now = service.clock.now()
    if question.job:
        return _answer(service, _runs_of_job(service, asker, question.job), now)
    if question.user and question.user != asker.user and not asker.is_administrator:
        raise NotPermittedError(
            f"the jobs of {question.user!r} are not yours to list",
            hint="administrators may list them; coordinators may ask for single jobs",
        )
    if not 0 <= question.ended_within_seconds <= _LONGEST_MEMORY_SECONDS:
        raise UsageError(
            f"jobs that ended within {question.ended_within_seconds} s can't be listed:"
            f" 0 to {_LONGEST_MEMORY_SECONDS} are expected"
        )
    runs = service.store.runs.recent(
        user=question.user or asker.user,
        ended_since=now - question.ended_within_seconds,
        limit=_MOST_JOBS + 1,
    )
    return _answer(service, runs, now)


def _answer(service: Service, runs: Sequence[StoredRun], now: int) -> StatusAnswer:
    """As many of the runs as fit into one message and are described before the asker gives up."""
    started = time.monotonic()
    jobs: list[JobStatus] = []
    size = 0
    for stored in runs[:_MOST_JOBS]:
        if jobs and time.monotonic() - started > _LONGEST_ANSWER_SECONDS:
            break
        job = describe_run(service, stored, now)
        size += len(msgspec.json.encode(job))
        if jobs and size > _MOST_BYTES:
            break
        jobs.append(job)
    return StatusAnswer(now=now, jobs=tuple(jobs), truncated=len(jobs) < len(runs))


def describe_run(service: Service, stored: StoredRun, now: int) -> JobStatus:
    """Everything `slurmwrap status` shows of one run."""
    run = stored.run
    end = stored.ended_at if stored.ended_at is not None else now
    look_from = max(run.key.start, end - _LONGEST_LOOK_SECONDS)
    cards = [item.card for item in run.cards]
    readings = service.store.readings.of_cards(cards, look_from, end)
    slot_seconds = max(
        service.config.agents.interval,
        -(-min(_PLOT_SECONDS, max(1, end - run.key.start)) // _SLOTS),
    )
    types = {item.card: item.gpu_type for item in run.cards}
    record = service.store.records.find(run.key.cluster, run.key.job_id, run.key.start)
    facts = record if record is not None and record.end is not None else live_record(stored)
    card_seconds = facts.elapsed_seconds * sum(facts.cards.values())
    return JobStatus(
        run=run.key,
        action_id=run.action_id,
        name=run.name,
        user=run.user,
        account=run.account,
        partition=run.partition,
        state=record.state if record is not None and record.end is not None else _state(stored),
        nodes=run.nodes,
        ended_at=stored.ended_at,
        time_limit_seconds=run.time_limit_seconds,
        cards=tuple(
            _card_status(card, types[card], readings[card], end, slot_seconds) for card in cards
        ),
        recent_slot_seconds=slot_seconds,
        card_seconds=card_seconds,
        measured_card_seconds=service.store.readings.measured_seconds(cards, run.key.start, end),
        gaps=_find_gaps(readings, look_from, end, service.config.agents.interval),
        cost=_cost(service, facts),
        currency=service.config.billing.currency,
        phases=service.store.runs.phases(stored.id),
        metrics=_by_name(service.store.runs.metrics(stored.id, newest=_NEWEST_METRICS)),
        rules=_rule_views(service, stored, now),
        end_reason=_end_reason(service, stored),
    )


def _runs_of_job(service: Service, asker: Asker, job: str) -> list[StoredRun]:
    match = _JOB.fullmatch(job)
    if match is None:
        raise UsageError(f"{job!r} is not a job: write 12 for a job, 12_3 for a task of an array")
    task = match.group(2)
    runs = service.store.runs.of_job(int(match.group(1)), int(task) if task is not None else None)
    seen = [
        stored for stored in runs if asker.may_see(user=stored.run.user, account=stored.run.account)
    ]
    if not seen:
        raise NotFoundError(
            f"no job {job} of yours is known",
            hint="a job is known once it has been on nodes; `squeue --me` shows waiting ones",
        )
    # Ids are recycled: only runs of the newest submission of that id.
    newest = max(stored.run.key.start for stored in seen)
    return [stored for stored in seen if stored.run.key.start > newest - 90 * 86400]


def _state(stored: StoredRun) -> str:
    """What slurmctld said last; a run that has left and is not in slurmdbd yet has ended."""
    return stored.run.state if stored.ended_at is None else "ENDED"


def _card_status(
    card: Card, gpu_type: str, readings: Sequence[CardReading], end: int, slot_seconds: int
) -> CardStatus:
    good = [item for item in readings if item.status is ReadStatus.OK]
    measured = [(item.utilisation_mean, item.reads) for item in good]
    reads = sum(count for mean, count in measured if mean is not None)
    newest = readings[-1] if readings else None
    return CardStatus(
        node=card.node,
        index=card.index,
        gpu_type=gpu_type,
        recent=_slots(good, end, slot_seconds),
        mean=sum(mean * count for mean, count in measured if mean is not None) / reads
        if reads
        else None,
        memory_used_bytes=newest.memory_used_bytes if newest else None,
        memory_total_bytes=newest.memory_total_bytes if newest else None,
        power_watts=newest.power_mean_watts if newest else None,
        status=newest.status.value if newest else "",
        last_reading_at=newest.ended_at if newest else None,
    )


def _slots(
    readings: Sequence[CardReading], end: int, slot_seconds: int
) -> tuple[float | None, ...]:
    """Mean utilisation per slot, oldest first, the last slot ending now; None: not seen."""
    sums = [0.0] * _SLOTS
    counts = [0] * _SLOTS
    for item in readings:
        slot = _SLOTS - 1 - (end - item.ended_at) // slot_seconds
        if 0 <= slot < _SLOTS and item.utilisation_mean is not None:
            sums[slot] += item.utilisation_mean * item.reads
            counts[slot] += item.reads
    return tuple(
        round(total / count, 1) if count else None
        for total, count in zip(sums, counts, strict=True)
    )


def _find_gaps(
    readings: Mapping[Card, Sequence[CardReading]], start: int, end: int, interval_seconds: int
) -> tuple[tuple[int, int], ...]:
    """Stretches longer than two intervals in which at least one card has no good reading."""
    gaps: list[tuple[int, int]] = []
    for items in readings.values():
        seen_until = start
        for item in items:
            if item.status is not ReadStatus.OK:
                continue
            if item.started_at - seen_until > 2 * interval_seconds:
                gaps.append((seen_until, item.started_at))
            seen_until = max(seen_until, item.ended_at)
        if end - seen_until > 3 * interval_seconds:
            gaps.append((seen_until, end))
    return tuple(_merge(gaps))


def _merge(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _by_name(metrics: Iterable[MetricPoint]) -> dict[str, tuple[tuple[int, float], ...]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for item in metrics:
        found.setdefault(item.name, []).append((item.step, item.value))
    return {name: tuple(points) for name, points in found.items()}


def _rule_views(service: Service, stored: StoredRun, now: int) -> tuple[RuleView, ...]:
    if stored.ended_at is not None or not stored.run.cards:
        return ()
    try:
        judgements = judge_run(service, stored, now)
    except Exception:
        # A site's own rule that stumbles over the run must not hide the rest of its page.
        log.exception("job %s could not be judged", stored.run.action_id)
        return (RuleView(rule="rules", mode="-", text="nothing can be said: a rule failed"),)
    return tuple(
        RuleView(
            rule=item.view.rule,
            mode=item.view.mode,
            text=item.view.text,
            warned_at=item.view.warned_at,
            cancel_at=item.view.cancel_at,
        )
        for item in judgements
    )


def _end_reason(service: Service, stored: StoredRun) -> str:
    for entry in reversed(service.store.ledger.of_run(stored.id)):
        if entry.kind == "cancel":
            return f"cancelled by rule {entry.rule}: {entry.reason}"
    return ""


def _cost(service: Service, facts: AccountingRecord) -> str | None:
    """What the run has cost so far; None where a part of it has no price."""
    if service.prices is None or facts.start is None:
        return None
    cost = cost_of(facts, service.prices, facts.start, facts.start + facts.elapsed_seconds)
    return None if cost.unpriced_card_seconds else str(round_money(cost.amount))
