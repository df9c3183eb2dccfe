"""Who may ask what: every call by owner, stranger, coordinators, operators, and nobody."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from served import (
    ADMINISTRATOR,
    AGENT,
    CHIEF,
    COORDINATOR,
    OPERATOR,
    OTHER,
    OWNER,
    PATIENCE,
    Served,
    uid_of,
)

from slurmwrap.api import CALLS
from slurmwrap.errors import (
    NotFoundError,
    NotPermittedError,
    SlurmUnavailableError,
    SlurmwrapError,
    UnknownNameError,
    UsageError,
)
from slurmwrap.model import (
    AccountingRecord,
    Card,
    CardAllocation,
    CardReading,
    JobRun,
    MetricPoint,
    ReadStatus,
    RunKey,
)

ACCOUNTS = "root|\nlab|proxy\nvision|news\nnlp|\n"
ASSOCIATIONS = (
    "root||\nlab|root|\nvision|lab|\nnlp|lab|\nvision||games\nnlp||mail\nlab||proxy\nvision||news\n"
)
USERS = "games|None\nmail|None\nnews|None\nproxy|None\nbackup|Operator\nlist|Administrator\n"
NOBODY_UID = 54321


def make_run(job_id: int = 7, user: str = OWNER, **changes: Any) -> JobRun:
    now = int(time.time())
    values: dict[str, Any] = {
        "key": RunKey(cluster="c", job_id=job_id, start=now - 600),
        "state": "RUNNING",
        "user": user,
        "uid": uid_of(user),
        "account": "vision",
        "partition": "gpu",
        "qos": "normal",
        "name": "train",
        "comment": "",
        "reservation": "",
        "submit": now - 700,
        "time_limit_seconds": 3600,
        "nodes": ("gpu1",),
        "cards": (CardAllocation(card=Card("gpu1", 0), gpu_type="a100"),),
        **changes,
    }
    return JobRun(**values)


def make_record(job_id: int, user: str, account: str) -> AccountingRecord:
    now = int(time.time())
    return AccountingRecord(
        cluster="c",
        job_id=job_id,
        user=user,
        account=account,
        partition="gpu",
        qos="normal",
        state="COMPLETED",
        submit=now - 100,
        start=now - 90,
        end=now - 10,
        elapsed_seconds=80,
        cards={"a100": 1},
    )


@pytest.fixture
def peopled(served: Served) -> Served:
    """A service with a tree of accounts, a running job of OWNER and some records."""
    served.slurm.answer("users", USERS)
    served.slurm.answer("accounts", ACCOUNTS)
    served.slurm.answer("associations", ASSOCIATIONS)
    served.service.store.runs.record_seen([make_run()], int(time.time()))
    served.service.store.records.merge(
        [make_record(21, OWNER, "vision"), make_record(22, OTHER, "nlp")], int(time.time())
    )
    return served


@pytest.mark.parametrize("user", [OWNER, COORDINATOR, CHIEF, OPERATOR, ADMINISTRATOR])
def test_a_job_is_seen_by_those_whose_it_is(peopled: Served, user: str) -> None:
    """Owner, coordinator of the account, of the account above, operator, administrator."""
    answer = peopled.ask(user, "job_status", job="7")
    assert [job["user"] for job in answer["jobs"]] == [OWNER]


@pytest.mark.parametrize("job", ["7", "8", "4294967295"])
def test_a_strangers_job_is_as_unknown_as_none(peopled: Served, job: str) -> None:
    """A job that is somebody else's and one that does not exist get the same words."""
    with pytest.raises(NotFoundError) as caught:
        peopled.ask(OTHER, "job_status", job=job)
    assert caught.value.message == f"no job {job} of yours is known"


@pytest.mark.parametrize("whose", [OWNER, "no-such-user"])
def test_listing_others_is_for_administrators(peopled: Served, whose: str) -> None:
    """Whether the user exists or not: only administrators may list another's jobs."""
    for user in (OTHER, COORDINATOR, CHIEF):
        with pytest.raises(NotPermittedError):
            peopled.ask(user, "job_status", user=whose)
    for user in (OPERATOR, ADMINISTRATOR):
        expected = ["7"] if whose == OWNER else []
        answer = peopled.ask(user, "job_status", user=whose)
        assert [job["action_id"] for job in answer["jobs"]] == expected


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (OWNER, {OWNER}),
        (OTHER, {OTHER}),
        (COORDINATOR, {OWNER}),
        (CHIEF, {OWNER, OTHER}),
        (OPERATOR, {OWNER, OTHER}),
        (ADMINISTRATOR, {OWNER, OTHER}),
        (AGENT, set()),
    ],
)
def test_a_bill_holds_only_what_the_asker_may_see(
    peopled: Served, user: str, expected: set[str]
) -> None:
    """Lines and totals are those of the asker's reach, whatever filters are asked for."""
    month = time.strftime("%Y-%m", time.gmtime(time.time() + 8 * 3600 - 90))
    filters: list[dict[str, str]] = [{}, {"account": "lab"}, {"user": OWNER}, {"user": OTHER}]
    for chosen in filters:
        statement = peopled.ask(user, "bill", month=month, **chosen)["statement"]
        lines = statement["lines"] + statement["unpriced"]
        seen = {line["user"] for line in lines}
        wanted = expected & {chosen["user"]} if "user" in chosen else expected
        assert seen == wanted, chosen
        assert statement["totals"]["card_seconds"] == sum(line["card_seconds"] for line in lines)


def test_health_details_are_for_administrators(peopled: Served) -> None:
    """Errors can name users and targets: everybody else sees what is well and what is not."""
    assert any(check["detail"] for check in peopled.ask(OPERATOR, "health")["checks"])
    assert not any(check["detail"] for check in peopled.ask(OWNER, "health")["checks"])


def test_a_uid_without_a_name_is_nobody(peopled: Served) -> None:
    """Every call of a uid that this host does not know is refused."""
    for call in CALLS:
        arguments: dict[str, Any] = {"month": "2026-11"} if call == "bill" else {}
        if call == "push_readings":
            arguments = {"node": "gpu1", "readings": []}
        if call == "push_run_events":
            arguments = {"run": {"cluster": "c", "job_id": 7, "start": 0}}
        with pytest.raises(NotPermittedError, match=f"uid {NOBODY_UID}"):
            peopled.ask(NOBODY_UID, call, **arguments)


def test_readings_are_for_agents_and_events_for_owners(peopled: Served) -> None:
    """Not even administrators push readings or speak for somebody's job."""
    for user in (OWNER, COORDINATOR, ADMINISTRATOR, "root"):
        with pytest.raises(NotPermittedError):
            peopled.ask(user, "push_readings", node="gpu1", readings=[])
    run = {"cluster": "c", "job_id": 7, "start": 0}
    for user in (OTHER, COORDINATOR, ADMINISTRATOR, "root"):
        with pytest.raises(NotFoundError):
            peopled.ask(user, "push_run_events", run=run)
    peopled.ask(OWNER, "push_run_events", run=run)


def test_without_slurmdbd_nobody_is_privileged(peopled: Served) -> None:
    """slurmdbd has never answered: owners are served, nobody is an administrator."""
    peopled.slurm.fail("sacctmgr")
    assert peopled.ask(OWNER, "job_status", job="7")["jobs"]
    for user in (COORDINATOR, CHIEF, OPERATOR, ADMINISTRATOR):
        with pytest.raises(NotFoundError):
            peopled.ask(user, "job_status", job="7")
    with pytest.raises(SlurmUnavailableError):
        peopled.ask(OWNER, "budgets")
    assert peopled.slurm.asked("sacctmgr") == 1, "asked once, not at every request"


def test_without_slurmdbd_no_bill_passes_for_a_whole_one(peopled: Served) -> None:
    """An administrator is not told an empty month; one's own use, asked for as such, is told."""
    peopled.slurm.fail("sacctmgr")
    month = time.strftime("%Y-%m", time.gmtime(time.time() + 8 * 3600 - 90))
    for user in (OWNER, ADMINISTRATOR):
        with pytest.raises(SlurmUnavailableError, match="which accounts are yours"):
            peopled.ask(user, "bill", month=month)
    statement = peopled.ask(OWNER, "bill", month=month, user=OWNER)["statement"]
    assert {line["user"] for line in statement["lines"] + statement["unpriced"]} == {OWNER}


def test_a_rule_that_stumbles_hides_no_page(
    peopled: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site's own rule that raises on a run: the rest of its status is shown."""

    def stumble(*arguments: object) -> None:
        raise ZeroDivisionError("a site's rule")

    monkeypatch.setattr("slurmwrapd.status.judge_run", stumble)
    (job,) = peopled.ask(OWNER, "job_status", job="7")["jobs"]
    assert [view["text"] for view in job["rules"]] == ["nothing can be said: a rule failed"]


def test_a_slurmdbd_that_hangs_holds_up_one_request_at_most(peopled: Served) -> None:
    """While one thread waits for sacctmgr the others are answered at once."""
    peopled.slurm.hang("sacctmgr")

    first = threading.Thread(target=peopled.ask, args=(OTHER, "job_status"))
    first.start()
    deadline = time.monotonic() + PATIENCE
    while not peopled.slurm.asked("sacctmgr"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    started = time.monotonic()
    for _ in range(5):
        assert peopled.ask(OWNER, "job_status", job="7")["jobs"]
    assert time.monotonic() - started < 2.0
    first.join(PATIENCE)


def test_unknown_calls_and_shapes_are_refused(peopled: Served) -> None:
    """No such call; fields of another type; a job that is none: our errors, no traceback."""
    with pytest.raises(UnknownNameError, match=r"unknown call .bil. .did you mean .bill."):
        peopled.ask(OWNER, "bil")
    for call, arguments in [
        ("bill", b"{}"),
        ("bill", b'{"month": 3}'),
        ("bill", b'{"month": "2026-13"}'),
        ("bill", b'{"month": "0000-01"}'),
        ("bill", b'{"month": "2026-11", "offset": -1}'),
        ("bill", b'{"month": "2026-11", "offset": "1"}'),
        ("job_status", b"[]"),
        ("job_status", b"null"),
        ("job_status", b'{"job": "7;8"}'),
        ("job_status", b'{"job": "99999999999999999999"}'),
        ("job_status", b'{"ended_within_seconds": -5}'),
        ("job_status", b'{"ended_within_seconds": 18446744073709551615}'),
        ("job_status", b'{"ended_within_seconds": 1e400}'),
        ("budgets", b"[" * 100_000 + b"]" * 100_000),
        ("health", b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    ]:
        with pytest.raises(UsageError):
            peopled.ask_raw(OWNER, call, arguments)
    assert peopled.ask_raw(OWNER, "job_status", b'{"job": "7", "new_field": 1}')["jobs"]


def test_an_account_that_nobody_knows_is_named(peopled: Served) -> None:
    """A mistyped account is no empty bill."""
    with pytest.raises(SlurmwrapError, match="no account 'visoin'"):
        peopled.ask(OWNER, "bill", month="2026-11", account="visoin")


def test_a_list_of_many_jobs_fits_and_comes_in_time(peopled: Served) -> None:
    """A user with more jobs than a message holds gets the newest, and is told of the rest."""
    now = int(time.time())
    cards = [
        tuple(CardAllocation(card=Card(f"n{job}", index), gpu_type="a100") for index in range(8))
        for job in range(120)
    ]
    runs = [make_run(1000 + job, OTHER, cards=cards[job]) for job in range(120)]
    peopled.service.store.runs.record_seen(runs, now)
    for stored in peopled.service.store.runs.on_nodes():
        peopled.service.store.runs.add_events(
            stored.id,
            phases=[],
            metrics=[
                MetricPoint(name=f"{'m' * 100}{name}", step=step, value=0.1, at=now)
                for name in range(20)
                for step in range(20)
            ],
            watch=None,
        )
    readings = [
        CardReading(
            node=f"n{job}",
            index=index,
            started_at=now - 30,
            ended_at=now,
            status=ReadStatus.OK,
            reads=3,
            utilisation_mean=100 / 3,
        )
        for job in range(120)
        for index in range(8)
    ]
    peopled.service.store.readings.add(readings, now)
    started = time.monotonic()
    answer = peopled.ask(OTHER, "job_status")
    assert time.monotonic() - started < 8
    assert answer["truncated"]
    assert len(answer["jobs"]) >= 10
    ids = [job["run"]["job_id"] for job in answer["jobs"]]
    assert ids == sorted(ids, reverse=True)


def test_one_job_with_hundreds_of_tasks_fits_too(peopled: Served) -> None:
    """Asking for an array gives the newest tasks that fit."""
    now = int(time.time())
    runs = [
        make_run(2000 + task, OTHER, array_job_id=2000, array_task_id=task) for task in range(150)
    ]
    peopled.service.store.runs.record_seen(runs, now)
    answer = peopled.ask(OTHER, "job_status", job="2000")
    assert (len(answer["jobs"]), answer["truncated"]) == (100, True)
