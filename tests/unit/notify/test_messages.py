"""The words of messages."""

from __future__ import annotations

import pytest

from slurmwrap.model import Card, CardAllocation, JobRun, RunKey
from slurmwrap.notify.messages import (
    BudgetFacts,
    Message,
    write_admin_alarm,
    write_budget_alert,
    write_cancellation,
    write_warning,
)

AT = 1_796_000_000  # 2026-11-30T00:53:20Z


def make_run(name: str = "train") -> JobRun:
    return JobRun(
        key=RunKey(cluster="c1", job_id=13, start=AT - 7200),
        array_job_id=12,
        array_task_id=3,
        state="RUNNING",
        user="alice",
        uid=1001,
        account="physics",
        partition="gpu",
        qos="normal",
        name=name,
        comment="",
        reservation="",
        submit=AT - 9000,
        time_limit_seconds=86400,
        nodes=("gpu1",),
        cards=(CardAllocation(card=Card("gpu1", 0), gpu_type="a100"),),
    )


def warn(name: str = "train", language: str = "en", cancel_at: int | None = AT) -> Message:
    return write_warning(
        make_run(name),
        rule="idle-gpu",
        reason="all cards idle for 90 min",
        cancel_at=cancel_at,
        language=language,
        timezone="Asia/Shanghai",
    )


def test_a_warning_says_what_why_and_when() -> None:
    """The owner learns the job, the reason and the moment of the cancel in the site's zone."""
    message = warn()
    assert message.subject == "Job 12_3 (train) will be cancelled unless it changes"
    assert message.body == (
        "all cards idle for 90 min\n"
        "It will be cancelled at 2026-11-30 08:53:20 +0800 unless this changes.\n"
        "\n"
        "Job: 12_3 (train)\n"
        "Cluster: c1\n"
        "User: alice\n"
        "Account: physics\n"
        "Partition: gpu\n"
        "Nodes: gpu1\n"
        "Cards: 1\n"
        "Rule: idle-gpu\n"
        "\n"
        "See `slurmwrap status 12_3`. If the job is right as it is, ask your administrator for"
        " an exemption.\n"
    )


def test_a_warning_without_a_cancel_threatens_nothing() -> None:
    """A rule that only warns must not announce a cancel."""
    message = warn(cancel_at=None)
    assert "cancelled" not in message.subject + message.body


def test_a_cancellation_says_when_it_was_announced() -> None:
    """The owner can see that a warning was delivered, and when."""
    message = write_cancellation(
        make_run(),
        rule="idle-gpu",
        reason="all cards idle for 2 h",
        cancelled_at=AT,
        warned_at=AT - 1800,
        language="en",
        timezone="UTC",
    )
    assert message.subject == "Job 12_3 (train) was cancelled"
    assert "It was cancelled at 2026-11-30 00:53:20 +0000." in message.body
    assert "A warning had been delivered at 2026-11-30 00:23:20 +0000." in message.body


def test_a_budget_alert_shows_every_part_of_the_sum() -> None:
    """Settled, running and committed use are told apart, as the statement does."""
    message = write_budget_alert(
        BudgetFacts(
            account="physics",
            user="",
            period="2026-11",
            unit="card-hours",
            limit="1000",
            settled="700",
            in_flight="112.5",
            committed="40",
            left="187.5",
            used_percent=81.25,
            threshold=80,
        ),
        language="en",
    )
    assert message.subject == "80 % of the budget of physics is used (2026-11)"
    assert message.body == (
        "Limit: 1000 card-hours\n"
        "Used, settled: 700 card-hours\n"
        "Used, still running: 112.5 card-hours\n"
        "Time limits still to come: 40 card-hours\n"
        "Left: 187.5 card-hours\n"
        "Used: 81.2 %\n"
    )


def test_an_alarm_keeps_its_lines() -> None:
    """An administrator gets the detail line by line."""
    message = write_admin_alarm(
        what="gpu1 answers nothing",
        detail="line 1\nline\t2",
        at=AT,
        cluster="c1",
        language="en",
        timezone="UTC",
    )
    assert message.subject == "slurmwrapd: gpu1 answers nothing"
    assert message.body.startswith("line 1\nline\ufffd2\n\nCluster: c1\n")


def test_messages_exist_in_chinese() -> None:
    """``notify.language = "zh"`` changes every sentence of ours."""
    message = warn(language="zh")
    assert message.subject == "作业 12_3（train）如无改变将被取消"
    assert "作业将于 2026-11-30 08:53:20 +0800 被取消" in message.body


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    "name", ["a\r\nBcc: eve@x.org", "\x1b[2J", "a\u202eb", "{job}", "%s", "\udcff", "x" * 5000]
)
def test_hostile_names_stay_one_line(name: str, language: str) -> None:
    """X9: no name adds a line, a header, an escape sequence or a placeholder."""
    message = warn(name, language)
    plain = warn("train", language)
    assert len(message.body.splitlines()) == len(plain.body.splitlines())
    assert len(message.subject) < 200
    for letter in "\r\n\x1b\u202e\udcff":
        assert letter not in message.subject
    assert "\x1b" not in message.body
    message.body.encode()
