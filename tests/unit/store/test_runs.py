"""Runs: seen, ended, requeued, suspended; what jobs publish of them is kept once."""

from __future__ import annotations

from typing import Any

from slurmwrap.model import (
    AccountingRecord,
    Card,
    CardAllocation,
    JobRun,
    MetricPoint,
    Phase,
    RunKey,
    WatchedMetric,
)
from slurmwrap.store import Store


def make_run(job_id: int = 7, start: int = 1000, **changes: Any) -> JobRun:
    values: dict[str, Any] = {
        "key": RunKey(cluster="c", job_id=job_id, start=start),
        "state": "RUNNING",
        "user": "alice",
        "uid": 1001,
        "account": "vision",
        "partition": "gpu",
        "qos": "normal",
        "name": "测试'; DROP TABLE run; --",
        "comment": "",
        "reservation": "",
        "submit": 990,
        "time_limit_seconds": 3600,
        "nodes": ("gpu1",),
        "cards": (CardAllocation(card=Card("gpu1", 2), gpu_type="a100"),),
        **changes,
    }
    return JobRun(**values)


def make_record(job_id: int, *, end: int | None) -> AccountingRecord:
    return AccountingRecord(
        cluster="c",
        job_id=job_id,
        user="alice",
        account="vision",
        partition="gpu",
        qos="normal",
        state="RUNNING" if end is None else "COMPLETED",
        submit=990,
        start=1000,
        end=end,
        elapsed_seconds=30,
        cards={"a100": 1},
    )


def test_a_run_is_read_back_as_it_was_seen(store: Store) -> None:
    """Every field of slurmctld's listing comes back equal, hostile names included."""
    run = make_run(array_job_id=5, array_task_id=2, comment="a\nb", suspended_seconds=3)
    store.runs.record_seen([run], 1010)
    (stored,) = store.runs.on_nodes()
    assert stored.run == run
    assert (stored.first_seen_at, stored.last_seen_at, stored.ended_at) == (1010, 1010, None)


def test_a_run_missing_from_a_listing_has_ended(store: Store) -> None:
    """What slurmctld no longer shows is no longer on nodes."""
    store.runs.record_seen([make_run(7), make_run(8)], 1010)
    store.runs.record_seen([make_run(8)], 1040)
    assert [stored.run.key.job_id for stored in store.runs.on_nodes()] == [8]
    ended = store.runs.find(RunKey(cluster="c", job_id=7, start=1000))
    assert ended is not None
    assert ended.ended_at == 1040


def test_a_requeued_job_is_two_runs(store: Store) -> None:
    """V5: the same id with a new start is another run; the first has ended."""
    store.runs.record_seen([make_run(start=1000)], 1010)
    store.runs.record_seen([make_run(start=1200)], 1210)
    runs = store.runs.of_job(7)
    assert [(item.run.key.start, item.ended_at) for item in runs] == [(1200, None), (1000, 1210)]


def test_a_resized_run_has_the_cards_it_kept(store: Store) -> None:
    """B7: cards given back are no longer the run's; when slurmctld does not say, they stay."""
    kept = CardAllocation(card=Card("gpu1", 2), gpu_type="a100")
    given_back = CardAllocation(card=Card("gpu2", 0), gpu_type="h800")
    store.runs.record_seen([make_run(cards=(kept, given_back), nodes=("gpu1", "gpu2"))], 1010)
    store.runs.record_seen([make_run(cards=(kept,))], 1040)
    assert store.runs.on_nodes()[0].run.cards == (kept,)
    store.runs.record_seen([make_run(cards=(), cards_known=False)], 1070)
    assert store.runs.on_nodes()[0].run.cards == (kept,)


def test_an_ended_run_waits_for_its_record(store: Store) -> None:
    """B29: what ended lately and has no ended record is still given; a record without an end
    changes nothing, one with an end settles it."""
    store.runs.record_seen([make_run(7), make_run(8), make_run(9)], 1010)
    store.runs.record_seen([make_run(9)], 1040)
    store.records.merge([make_record(7, end=None), make_record(8, end=1030)], 1050)
    waiting = store.runs.without_record(ended_since=1000)
    assert [(item.run.key.job_id, item.ended_at) for item in waiting] == [(7, 1040), (9, None)]
    assert [item.run.key.job_id for item in store.runs.without_record(ended_since=1041)] == [9]


def test_a_run_whose_start_was_set_anew_waits_once(store: Store) -> None:
    """slurmctld dates a run from when its nodes are ready: the same submission under a new
    start, in the next listing, is the same run. A requeued one was submitted anew, or came
    later."""
    store.runs.record_seen([make_run(7, start=1000), make_run(8, start=1000)], 1010)
    store.runs.record_seen([make_run(7, start=1030), make_run(8, start=1035, submit=1020)], 1040)
    starts = [(item.run.key.job_id, item.run.key.start) for item in store.runs.without_record(1000)]
    assert starts == [(8, 1000), (7, 1030), (8, 1035)]


def test_start_zero_finds_the_run_on_nodes(store: Store) -> None:
    """A supervisor that does not know its start reaches the run that is there now."""
    store.runs.record_seen([make_run(start=1000)], 1010)
    store.runs.record_seen([make_run(start=1200)], 1210)
    found = store.runs.find(RunKey(cluster="c", job_id=7, start=0))
    assert found is not None
    assert found.run.key.start == 1200


def test_the_recorded_end_replaces_the_guess(store: Store) -> None:
    """slurmdbd's end is exact; the moment a listing missed the run is not."""
    store.runs.record_seen([make_run()], 1010)
    store.runs.record_seen([], 1040)
    key = RunKey(cluster="c", job_id=7, start=1000)
    store.runs.set_ends([(key, 1033)])
    found = store.runs.find(key)
    assert found is not None
    assert found.ended_at == 1033


def test_suspension_is_noted_from_the_last_listing_that_saw_it_running(store: Store) -> None:
    """V6: what was suspended at an unseen moment counts as suspended since the last listing."""
    store.runs.record_seen([make_run()], 1010)
    store.runs.record_seen([make_run(state="SUSPENDED")], 1040)
    store.runs.record_seen([make_run(state="RUNNING", suspended_seconds=50)], 1100)
    (stored,) = store.runs.on_nodes()
    assert store.runs.suspensions(stored.id) == ((1010, 1100),)


def test_a_suspension_between_listings_is_noted_too(store: Store) -> None:
    """Suspended and resumed while nobody looked: the counter of slurmctld tells."""
    store.runs.record_seen([make_run()], 1010)
    store.runs.record_seen([make_run(suspended_seconds=20)], 1100)
    (stored,) = store.runs.on_nodes()
    assert store.runs.suspensions(stored.id) == ((1010, 1100),)


def test_events_sent_twice_are_kept_once(store: Store) -> None:
    """A supervisor may send again what it is not sure of."""
    store.runs.record_seen([make_run()], 1010)
    (stored,) = store.runs.on_nodes()
    phase = Phase(name="staging", node="gpu1", started_at=1001)
    metric = MetricPoint(name="val_acc", step=3, value=0.5, at=1200)
    watch = WatchedMetric(name="val_acc")
    for _ in range(2):
        store.runs.add_events(stored.id, phases=[phase], metrics=[metric], watch=watch)
    assert store.runs.phases(stored.id) == (phase,)
    assert store.runs.metrics(stored.id) == (metric,)
    assert store.runs.watched_metric(stored.id) == watch


def test_a_phase_that_ended_stays_ended(store: Store) -> None:
    """An open phase that arrives late does not reopen one that has ended."""
    store.runs.record_seen([make_run()], 1010)
    (stored,) = store.runs.on_nodes()
    ended = Phase(name="staging", node="gpu1", started_at=1001, ended_at=1020)
    begun = Phase(name="staging", node="gpu1", started_at=1001)
    store.runs.add_events(stored.id, phases=[ended], metrics=[], watch=None)
    store.runs.add_events(stored.id, phases=[begun], metrics=[], watch=None)
    assert store.runs.phases(stored.id) == (ended,)


def test_only_the_newest_metrics_can_be_asked_for(store: Store) -> None:
    """The newest N of each metric, in order of step."""
    store.runs.record_seen([make_run()], 1010)
    (stored,) = store.runs.on_nodes()
    points = [MetricPoint(name="loss", step=step, value=1.0 / step, at=1100) for step in (1, 2, 3)]
    store.runs.add_events(stored.id, phases=[], metrics=points, watch=None)
    assert [item.step for item in store.runs.metrics(stored.id, newest=2)] == [2, 3]


def test_holders_of_a_card_at_a_time(store: Store) -> None:
    """Who held a card is told by the runs that overlap the time asked for."""
    store.runs.record_seen([make_run(7, 1000)], 1010)
    store.runs.record_seen([make_run(8, 1100)], 1110)
    assert store.runs.holders(Card("gpu1", 2), 1020, 1050) == {7}
    assert store.runs.holders(Card("gpu1", 2), 1120, 1150) == {8}
    assert store.runs.holders(Card("gpu1", 3), 1020, 1150) == set()
