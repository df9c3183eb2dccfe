"""The task that reads slurmdbd's records, and what the service knows of use in a period."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from slurmwrap.model import AccountingRecord, JobRun, RunKey
from slurmwrap.slurm.accounting import RecordBatch
from slurmwrap.store.runs import StoredRun
from slurmwrapd.service import Service

log = logging.getLogger("slurmwrapd")

_WATERMARK = "slurmdbd"
_RESIZED = "RESIZING"
"""State of a record that ended because its job got other nodes; the run goes on."""
_MOST_SEARCHES = 50
"""How many records that are no longer listed are looked for in one read: a sacct each."""


def read_accounting(service: Service) -> str:
    """Take in slurmdbd's records since the last read, with an overlap; says what was new.

    The overlap takes in records that arrive late; they are merged by run, so that reading
    one twice changes nothing. The watermark moves only after the records are kept.
    """
    settings = service.config.accounting
    now = service.clock.now()
    watermark = service.store.records.watermark(_WATERMARK)
    if watermark is None or watermark > now + settings.overlap:
        # Never read; or by a clock that was so far ahead that what ended since was not looked for.
        since = now - settings.backfill
    else:
        since = min(watermark, now) - settings.overlap
    batch = service.records.read_records(since, now)
    changed = _keep(service, batch, now)
    changed += _settle_unlisted(service, batch, now)
    service.store.records.set_watermark(_WATERMARK, now)
    rejected = f", {len(batch.rejected)} rejected" if batch.rejected else ""
    return f"{len(batch.records)} records, {changed} new or changed{rejected}"


def _keep(service: Service, batch: RecordBatch, now: int) -> int:
    for reason in batch.rejected:
        log.warning("a record of slurmdbd can't be used: %s", reason)
    changed = service.store.records.merge(batch.records, now)
    service.store.runs.set_ends(
        (RunKey(cluster=record.cluster, job_id=record.job_id, start=record.start), record.end)
        for record in batch.records
        if record.start is not None and record.end is not None and record.state != _RESIZED
    )
    return changed


def _settle_unlisted(service: Service, batch: RecordBatch, now: int) -> int:
    """What became of runs that had not ended and that slurmdbd no longer lists.

    Whatever has not ended is listed, wherever the window begins. So such a run ended before
    the window: a job cancelled after days of suspension ends when it was suspended, a runaway
    job that an administrator fixed ends when it began (both seen on 22.05). Or slurmdbd has
    dated its start anew, and the record with the old start is nobody's.
    """
    listed = {_identity(record) for record in batch.records}
    unlisted = [
        record for record in service.store.records.without_end() if _identity(record) not in listed
    ]
    changed = 0
    for record in unlisted[:_MOST_SEARCHES]:
        if _find_submission(record, batch.records) is None:
            start = record.start or 0
            around = service.records.read_records(start, start + 1)
            own = [item for item in around.records if item.job_id == record.job_id]
            changed += _keep(service, replace(around, records=tuple(own)), now)
            if _identity(record) in map(_identity, own) or around.rejected:
                continue
            if _find_submission(record, own) is None:
                log.warning(
                    "slurmdbd no longer has job %d, which ran from %d on: it is on no bill",
                    record.job_id,
                    start,
                )
        service.store.records.withdraw([record])
        changed += 1
    return changed


def _identity(record: AccountingRecord) -> tuple[str, int, int | None]:
    return record.cluster, record.job_id, record.start


def _find_submission(
    record: AccountingRecord, others: Iterable[AccountingRecord]
) -> AccountingRecord | None:
    """The record of the same submission: slurmdbd keeps one per job id and submit time."""
    for other in others:
        if (other.cluster, other.job_id) == (record.cluster, record.job_id) and (
            other.submit is not None and other.submit == record.submit
        ):
            return other
    return None


def records_of_period(
    service: Service, start: int, end: int, user: str | None = None
) -> list[AccountingRecord]:
    """Every run that was on nodes in ``[start, end)``, each once; of one user, or of all.

    slurmdbd's record where the run has ended. Until that was read, the run counts without an
    end for what slurmctld has shown of it: its record may be older than the newest listing, and
    names no cards in its first seconds. A run that left its nodes waits for its record as long
    as late records are looked for.
    """
    read_until = service.store.records.watermark(_WATERMARK) or 0
    # Runs first: one that ends meanwhile has its record by then. The other way round it would
    # be in neither.
    unsettled = [
        stored
        for stored in service.store.runs.without_record(
            read_until - service.config.accounting.overlap
        )
        if stored.run.key.start < end and user in (None, stored.run.user)
    ]
    jobs = {(stored.run.key.cluster, stored.run.key.job_id) for stored in unsettled}
    records: list[AccountingRecord] = []
    of_jobs: dict[tuple[str, int], list[AccountingRecord]] = {job: [] for job in jobs}
    for record in service.store.records.overlapping(start, end, user=user):
        of_jobs.get((record.cluster, record.job_id), records).append(record)
    for stored in unsettled:
        job = of_jobs[stored.run.key.cluster, stored.run.key.job_id]
        job[:] = _with_live_part(stored, job)
    for job in of_jobs.values():
        records.extend(job)
    return records


def _with_live_part(
    stored: StoredRun, records: Sequence[AccountingRecord]
) -> list[AccountingRecord]:
    """A job's records with what slurmctld shows of its run in place of the one without end."""
    key = stored.run.key
    own = [
        record
        for record in records
        if key.start <= (record.start or 0) <= max(key.start, stored.last_seen_at)
        or (record.end is None and record.submit == stored.run.submit)
    ]
    if any(record.end is not None and record.state != _RESIZED for record in own):
        return list(records)
    # The part before a resize is settled; what runs begins there.
    begin = max((record.end or 0 for record in own if record.state == _RESIZED), default=0)
    part = replace(
        live_record(stored), start=max(key.start, begin), end=None, state=stored.run.state
    )
    elapsed = part.elapsed_seconds - max(0, begin - key.start)
    newest = next((record for record in own if record.end is None), None)
    if newest is not None and newest.start == part.start:
        elapsed = max(elapsed, newest.elapsed_seconds)
    cards = part.cards if stored.run.cards_known or newest is None else newest.cards
    limit = part.time_limit_seconds
    if limit is not None:
        limit -= max(0, begin - key.start)
    if stored.ended_at is not None:
        limit = elapsed  # nothing is still to come
    part = replace(part, elapsed_seconds=max(0, elapsed), cards=cards, time_limit_seconds=limit)
    return [part, *(record for record in records if record not in own or record.end is not None)]


def live_record(stored: StoredRun) -> AccountingRecord:
    """A run without a record, as far as slurmctld has shown it: its start and the time since."""
    run = stored.run
    return AccountingRecord(
        cluster=run.key.cluster,
        job_id=run.key.job_id,
        array_job_id=run.array_job_id,
        array_task_id=run.array_task_id,
        user=run.user,
        account=run.account,
        partition=run.partition,
        qos=run.qos,
        reservation=run.reservation,
        name=run.name,
        state=run.state,
        submit=run.submit,
        start=run.key.start,
        end=stored.ended_at,
        elapsed_seconds=max(0, stored.last_seen_at - run.key.start - run.suspended_seconds),
        suspended_seconds=run.suspended_seconds,
        time_limit_seconds=run.time_limit_seconds,
        nodes=",".join(run.nodes),
        cards=cards_by_type(run),
    )


def cards_by_type(run: JobRun) -> dict[str, int]:
    """How many cards of each type the run holds."""
    counts: dict[str, int] = {}
    for item in run.cards:
        counts[item.gpu_type] = counts.get(item.gpu_type, 0) + 1
    return counts
