"""The task that reads slurmdbd's records, and what the service knows of use in a period."""

from __future__ import annotations

import logging

from slurmwrap.model import AccountingRecord, JobRun, RunKey
from slurmwrap.store.runs import StoredRun
from slurmwrapd.service import Service

log = logging.getLogger("slurmwrapd")

_WATERMARK = "slurmdbd"


def read_accounting(service: Service) -> str:
    """Take in slurmdbd's records since the last read, with an overlap; says what was new.

    The overlap takes in records that arrive late; they are merged by run, so that reading
    one twice changes nothing. The watermark moves only after the records are kept.
    """
    settings = service.config.accounting
    now = service.clock.now()
    watermark = service.store.records.watermark(_WATERMARK)
    since = now - settings.backfill if watermark is None else watermark - settings.overlap
    batch = service.records.read_records(since, now)
    for reason in batch.rejected:
        log.warning("a record of slurmdbd can't be used: %s", reason)
    changed = service.store.records.merge(batch.records, now)
    service.store.runs.set_ends(
        (RunKey(cluster=record.cluster, job_id=record.job_id, start=record.start), record.end)
        for record in batch.records
        if record.start is not None and record.end is not None
    )
    service.store.records.set_watermark(_WATERMARK, now)
    rejected = f", {len(batch.rejected)} rejected" if batch.rejected else ""
    return f"{len(batch.records)} records, {changed} new or changed{rejected}"


def records_of_period(service: Service, start: int, end: int) -> list[AccountingRecord]:
    """Every run that was on nodes in ``[start, end)``, each once: slurmdbd's record where it
    was read, else what slurmctld showed of a run that slurmdbd has not been asked about yet.
    """
    records = service.store.records.overlapping(start, end)
    known = {(record.cluster, record.job_id, record.start) for record in records}
    for stored in service.store.runs.on_nodes():
        key = stored.run.key
        if key.start < end and (key.cluster, key.job_id, key.start) not in known:
            records.append(live_record(stored))
    return records


def live_record(stored: StoredRun) -> AccountingRecord:
    """A run without a record, as far as slurmctld has shown it: its start and the time since."""
    run = stored.run
    until = stored.last_seen_at if stored.ended_at is None else stored.ended_at
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
        elapsed_seconds=max(0, until - run.key.start - run.suspended_seconds),
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
