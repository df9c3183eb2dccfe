"""What agents and supervisors send: lies, floods and nonsense are refused, nothing of them kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from served import AGENT, OTHER, OWNER, Served, own_address, uid_of

from slurmwrap.config.settings import AgentsSettings
from slurmwrap.errors import NotFoundError, NotPermittedError, SlurmwrapError, UsageError
from slurmwrap.model import UTILISATION_BINS, Card, CardAllocation, JobRun, RunKey
from slurmwrapd.authority import NodeAddresses


def reading(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    return {
        "node": "gpu1",
        "index": 0,
        "started_at": now - 30,
        "ended_at": now,
        "status": "ok",
        "reads": 30,
        "utilisation_mean": 5.0,
        "utilisation_max": 9,
        "histogram": [0, 0, 30] + [0] * (UTILISATION_BINS - 3),
        "memory_used_bytes": 2**33,
        **changes,
    }


def push(served: Served, *readings: dict[str, Any], node: str = "gpu1", **fields: Any) -> None:
    served.ask(AGENT, "push_readings", node=node, readings=readings, **fields)


def is_refused(send: Callable[[], object]) -> bool:
    try:
        send()
    except UsageError:
        return True
    return False


def count(served: Served, table: str) -> int:
    return served.rows(f"SELECT count(*) FROM {table}")[0][0]  # noqa: S608


def test_a_good_reading_is_kept_once(served: Served) -> None:
    """The same message twice changes nothing; a contradicting one of the same time neither."""
    good = reading()
    push(served, good)
    push(served, good)
    push(served, {**good, "utilisation_mean": 9.0})
    assert served.rows("SELECT utilisation_mean FROM reading") == [(5.0,)]


LIES = {
    "another node's": {"node": "gpu2"},
    "from the future": {"started_at": 9_999_999_970, "ended_at": 9_999_999_999},
    "backwards": {"started_at": 9_999_999_999},
    "a day long": {"started_at": 1_700_000_000},
    "no length": {"started_at": 5, "ended_at": 5},
    "before time": {"started_at": -30, "ended_at": 0},
    "beyond SQLite": {"started_at": -(2**63) - 1, "ended_at": -(2**63)},
    "index": {"index": -1},
    "index too high": {"index": 5000},
    "utilisation 250": {"utilisation_mean": 250.0},
    "maximum 250": {"utilisation_max": 250},
    "below nothing": {"utilisation_mean": -1.0},
    "mean over maximum": {"utilisation_mean": 50.0, "utilisation_max": 9},
    "histogram too short": {"histogram": [30]},
    "histogram of more reads": {"histogram": [31] + [0] * (UTILISATION_BINS - 1)},
    "histogram below nothing": {"histogram": [-1, 31] + [0] * (UTILISATION_BINS - 2)},
    "ok without a read": {"reads": 0, "histogram": [0] * UTILISATION_BINS},
    "ok without a mean": {"utilisation_mean": None},
    "reads": {"reads": -1, "histogram": None},
    "reads beyond SQLite": {"reads": 2**63, "histogram": None},
    "memory below nothing": {"memory_used_bytes": -1},
    "memory beyond SQLite": {"memory_used_bytes": 2**64},
    "temperature beyond SQLite": {"temperature_celsius": -(2**70)},
    "power below nothing": {"power_mean_watts": -5.0},
    "energy": {"energy_joules": 1e300},
    "ecc": {"ecc_uncorrected": 2**63},
    "unknown status": {"status": "splendid"},
    "no status": {"status": None},
    "a name as long as a book": {"gpu_name": "x" * 5000},
    "a name that moves the cursor": {"uuid": "GPU-\x1b[2J"},
    "a thousand processes": {"processes": [{"pid": pid} for pid in range(5000)]},
    "process beyond SQLite": {"processes": [{"pid": 2**64}]},
}


def test_a_reading_that_no_card_gives_is_refused(served: Served) -> None:
    """Refused with words, and the good readings of the same message are not kept either."""
    taken = [
        lie
        for lie, changes in LIES.items()
        if not is_refused(lambda: push(served, reading(index=1), reading(**changes)))  # noqa: B023
    ]
    assert taken == []
    assert count(served, "reading") == 0


def test_an_agent_speaks_for_its_own_node_only(served: Served) -> None:
    """The address of the credential is not that node's: refused, no row for the name."""
    names = ["gpu2", "", "GPU1", "gpu1\n", "gpu1'; DROP TABLE reading; --", "x" * 300, "測試"]
    for node in names:
        with pytest.raises((NotPermittedError, UsageError)):
            push(served, node=node)
    assert count(served, "agent") == 0


def test_an_address_is_no_nodes_name(served: Served) -> None:
    """An agent does not make up nodes out of spellings of its own address."""
    parts = [int(part) for part in own_address().split(".")]
    number = int.from_bytes(bytes(parts), "big")
    for name in (own_address(), str(number), hex(number), ".".join(f"0{part:o}" for part in parts)):
        with pytest.raises((NotPermittedError, UsageError)):
            push(served, node=name)
    assert count(served, "agent") == 0


def test_a_name_that_did_not_resolve_is_asked_again() -> None:
    """DNS away when an agent first speaks does not shut it out until the next restart."""
    answers: list[tuple[str, ...]] = [(), ("10.0.0.1",), ("10.0.0.2",)]
    clock = [0.0]
    addresses = NodeAddresses(resolve=lambda node: answers.pop(0), timer=lambda: clock[0])
    assert addresses.of("gpu9") == ()
    clock[0] += 11
    assert addresses.of("gpu9") == ("10.0.0.1",)
    assert addresses.of("gpu9") == ("10.0.0.1",)
    clock[0] += 601
    assert addresses.of("gpu9") == ("10.0.0.2",)


def test_words_of_an_agent_are_made_safe(served: Served) -> None:
    """Its error is shown to administrators: cleaned and cut, not refused."""
    push(served, error="\x1b[31mdriver\nlost" + "x" * 100_000, dropped_messages=3)
    ((error, dropped),) = served.rows("SELECT error, dropped_messages FROM agent")
    assert (len(error) < 1100, "\x1b" in error, "\n" in error, dropped) == (True, False, False, 3)
    push(served, reading(error="NVML\x07 " + "x" * 50_000))
    ((error,),) = served.rows("SELECT error FROM reading")
    assert (len(error) < 1100, "\x07" in error) == (True, False)
    for wrong in (-1, 2**63):
        with pytest.raises(UsageError):
            push(served, dropped_messages=wrong)


def test_overlapping_readings_do_not_measure_twice(served: Served) -> None:
    """An agent that lies about its intervals does not make a card used for longer than it was."""
    now = int(time.time())
    push(served, *(reading(started_at=now - 60, ended_at=now - late) for late in range(20)))
    store = served.service.store.readings
    assert store.measured_seconds([Card("gpu1", 0)], now - 100, now) == 60
    push(served, reading(started_at=now - 200, ended_at=now - 90))
    assert store.measured_seconds([Card("gpu1", 0)], now - 100, now) == 70


# --- events --------------------------------------------------------------------------------


@pytest.fixture
def running(served: Served) -> Served:
    """A service that sees a run of OWNER: job 7, begun ten minutes ago."""
    now = int(time.time())
    run = JobRun(
        key=RunKey(cluster="c", job_id=7, start=now - 600),
        state="RUNNING",
        user=OWNER,
        uid=uid_of(OWNER),
        account="vision",
        partition="gpu",
        qos="normal",
        name="train",
        comment="",
        reservation="",
        submit=now - 700,
        time_limit_seconds=3600,
        nodes=("gpu1",),
        cards=(CardAllocation(card=Card("gpu1", 0), gpu_type="a100"),),
    )
    served.service.store.runs.record_seen([run], now)
    return served


def publish(served: Served, user: str = OWNER, start: int = 0, **events: Any) -> Any:
    run = {"cluster": "c", "job_id": 7, "start": start}
    return served.ask(user, "push_run_events", run=run, **events)


def metric(step: int = 1, **changes: Any) -> dict[str, Any]:
    return {"name": "loss", "step": step, "value": 0.5, "at": int(time.time()), **changes}


def phase(**changes: Any) -> dict[str, Any]:
    return {"name": "staging", "node": "gpu1", "started_at": int(time.time()) - 60, **changes}


def test_only_the_owner_speaks_for_a_run(running: Served) -> None:
    """Another user, or a made-up start, cluster or job, reaches nothing."""
    with pytest.raises(NotFoundError):
        publish(running, OTHER, metrics=[metric()])
    with pytest.raises(NotFoundError):
        publish(running, start=int(time.time()) - 599, metrics=[metric()])
    elsewhere = {"cluster": "d", "job_id": 7, "start": 0}
    with pytest.raises(NotFoundError):
        running.ask(OWNER, "push_run_events", run=elsewhere, metrics=[metric()])
    for number in (2**63, -(2**63), 2**64):
        for run in ({"job_id": number, "start": 0}, {"job_id": 7, "start": number}):
            with pytest.raises((NotFoundError, UsageError)):
                running.ask(OWNER, "push_run_events", run={"cluster": "c", **run})
    assert count(running, "metric") == 0


NONSENSE: dict[str, dict[str, Any]] = {
    "step": {"metrics": [metric(2**64)]},
    "no name": {"metrics": [metric(name="")]},
    "control": {"metrics": [metric(name="a\x1b[2J")]},
    "long": {"metrics": [metric(name="x" * 500)]},
    "before": {"metrics": [metric(at=5)]},
    "after": {"metrics": [metric(at=int(time.time()) + 9999)]},
    "at": {"metrics": [metric(at=2**64)]},
    "phase": {"phases": [phase(name="a\nb")]},
    "node": {"phases": [phase(node="")]},
    "phase before": {"phases": [phase(started_at=-(2**65))]},
    "backwards": {"phases": [phase(ended_at=int(time.time()) - 90)]},
    "detail": {"phases": [phase(detail="x" * 5000)]},
    "watch": {"watch": {"name": "a\nb"}},
    "watch mode": {"watch": {"name": "loss", "mode": "x" * 1000}},
    "watch delta": {"watch": {"name": "loss", "min_delta": -1.0}},
    "watch patience": {"watch": {"name": "loss", "patience": 0}},
    "watch patience beyond SQLite": {"watch": {"name": "loss", "patience": 2**64}},
    "names": {"metrics": [metric(name=f"m{n}") for n in range(201)]},
    "phases": {"phases": [phase(name=f"p{n}") for n in range(501)]},
}


def test_events_that_can_not_be_are_refused(running: Served) -> None:
    """Refused with words, nothing of the message kept, and no internal error."""
    taken = [
        nonsense
        for nonsense, events in NONSENSE.items()
        if not is_refused(lambda: publish(running, **events))  # noqa: B023
    ]
    assert taken == []
    assert [count(running, table) for table in ("metric", "phase", "watched_metric")] == [0, 0, 0]


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"1e999", b'"1"'])
def test_a_value_is_a_finite_number(running: Served, value: bytes) -> None:
    """NaN and infinities have no place in JSON, nor in the store."""
    now = str(int(time.time())).encode()
    arguments = (
        b'{"run": {"cluster": "c", "job_id": 7, "start": 0}, "metrics": [{"name": "loss",'
        b'"step": 1, "at": ' + now + b', "value": ' + value + b"}]}"
    )
    with pytest.raises(UsageError):
        running.ask_raw(OWNER, "push_run_events", arguments)
    assert count(running, "metric") == 0


def test_events_sent_again_are_never_too_many(running: Served) -> None:
    """A run with many phases may send them all again after a doubtful answer."""
    phases = [phase(name=f"p{number}") for number in range(300)]
    publish(running, phases=phases)
    publish(running, phases=phases)
    assert count(running, "phase") == 300


def test_a_flood_of_metrics_does_not_grow_without_end(running: Served) -> None:
    """Of each metric the newest points are kept: a job can't fill the disk, or slow the watch."""
    for first in range(0, 9000, 3000):
        publish(running, metrics=[metric(step) for step in range(first, first + 3000)])
    rows = running.rows("SELECT min(step), max(step), count(*) FROM metric")
    assert rows == [(7000, 8999, 2000)]
    publish(running, metrics=[metric(9000, name="accuracy")])
    assert count(running, "metric") == 2001


def test_a_run_that_ended_long_ago_is_closed(running: Served) -> None:
    """Last words arrive shortly after the end; nobody rewrites the past of an old run."""
    start = running.rows("SELECT start FROM run")[0][0]
    publish(running, start=start, metrics=[metric()])
    now = int(time.time())
    with running.service.store.database.writing() as connection:
        connection.execute("UPDATE run SET ended_at = ?", (now - 60,))
    publish(running, start=start, metrics=[metric(2)])
    with running.service.store.database.writing() as connection:
        connection.execute("UPDATE run SET ended_at = ?", (now - 90_000,))
    with pytest.raises(UsageError, match="ended"):
        publish(running, start=start, metrics=[metric(3)])
    assert count(running, "metric") == 2


def test_details_are_made_safe(running: Served) -> None:
    """What a supervisor says of a phase is shown to others: cleaned."""
    publish(running, phases=[phase(detail="copied\x1b[2J 5\n")])
    ((detail,),) = running.rows("SELECT detail FROM phase")
    assert detail.isprintable()


def test_a_message_of_the_longest_size_is_answered(running: Served) -> None:
    """Half a megabyte of small lies is refused by its first, quickly."""
    many = [metric(step, name="x" * 100) for step in range(2500)]
    assert len(msgspec.json.encode(many)) > 300_000
    publish(running, metrics=many)
    with pytest.raises(SlurmwrapError):
        publish(running, metrics=[*many, metric(at=1)])


def test_agents_users_come_from_the_settings(make_served: Any) -> None:
    """Without users in agents.users nobody pushes readings."""
    served = make_served(sections={"agents": AgentsSettings(users=())})
    with pytest.raises(NotPermittedError):
        push(served)
