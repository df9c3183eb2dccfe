"""`slurmwrap status`: what people read about their jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from slurmwrap.api import CardStatus, JobStatus, RuleView, StatusAnswer, StatusQuestion
from slurmwrap.cli.job_page import plot, render_list, render_page
from slurmwrap.cli.terminal import Terminal
from slurmwrap.errors import NotFoundError
from slurmwrap.model import Phase, RunKey

NOW = 1_796_000_000  # 2026-11-30T00:53:20Z, 08:53:20 in Shanghai
GIB = 1024**3
WIDE = Terminal(columns=0, has_blocks=True)


@pytest.fixture(autouse=True)
def shanghai(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The reader sits in Shanghai."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Shanghai")
        time.tzset()
        yield
    time.tzset()


def make_card(**changes: Any) -> CardStatus:
    card = CardStatus(
        node="gpu1",
        index=2,
        gpu_type="a100",
        recent=(None, 90.0, 95.0, 100.0),
        mean=95.0,
        memory_used_bytes=40 * GIB,
        memory_total_bytes=80 * GIB,
        power_watts=310.4,
        status="ok",
        last_reading_at=NOW - 5,
    )
    return msgspec.structs.replace(card, **changes)


def make_job(**changes: Any) -> JobStatus:
    job = JobStatus(
        run=RunKey(cluster="c1", job_id=15, start=NOW - 7200),
        action_id="12_3",
        name="train",
        user="alice",
        account="physics",
        partition="gpu",
        state="RUNNING",
        nodes=("gpu1",),
        ended_at=None,
        time_limit_seconds=86400,
        cards=(make_card(),),
        recent_slot_seconds=1800,
        card_seconds=7200,
        measured_card_seconds=5400,
        gaps=((NOW - 7200, NOW - 5400),),
        cost="70.00",
        currency="CNY",
        phases=(
            Phase(name="stage in", node="gpu1", started_at=NOW - 7200, ended_at=NOW - 7077),
            Phase(name="running", node="", started_at=NOW - 7077),
        ),
        metrics={"val_acc": ((1, 0.5), (2, 0.75))},
        rules=(
            RuleView(
                rule="idle-gpu",
                mode="enforce",
                text="idle for 40 min",
                warned_at=NOW - 600,
                cancel_at=NOW + 1200,
            ),
        ),
    )
    return msgspec.structs.replace(job, **changes)


def test_a_page_tells_the_whole_job() -> None:
    """Owner, time, cards, use, cost, gaps, phases, metrics and rules, in the reader's zone."""
    assert render_page(make_job(), NOW, WIDE) == [
        "Job 12_3 (train) is RUNNING on gpu1",
        "  owner       alice, account physics, partition gpu",
        "  started     2026-11-30 06:53:20 +0800",
        "  time        2 h of 1 d",
        "",
        "  CARD    TYPE  MEAN    NOW  LAST 2 H                MEMORY  POWER",
        "  gpu1:2  a100  95 %  100 %  ·███      40.0 GiB of 80.0 GiB  310 W",
        "",
        "  used        2.00 card-hours, 1.50 of them measured",
        "  cost        70.00 CNY so far",
        "  gaps        06:53:20 to 07:23:20 (30 min): not every card was seen",
        "  phases      stage in on gpu1 for 2 min 3 s",
        "              running since 06:55:23",
        "  metrics     val_acc 0.5, 0.75 (step 2)",
        "  rules       idle-gpu (enforce): idle for 40 min",
        "                warned at 08:43:20; will be cancelled at 09:13:20",
    ]


def test_what_was_not_measured_is_no_zero() -> None:
    """A card without readings shows question marks and dots, and no 0 anywhere."""
    unread = make_card(
        recent=(None,) * 4,
        mean=None,
        memory_used_bytes=None,
        memory_total_bytes=None,
        power_watts=None,
        status="",
        last_reading_at=None,
    )
    page = render_page(make_job(cards=(unread,)), NOW, WIDE)
    row = next(line for line in page if line.startswith("  gpu1:2"))
    assert row.split() == ["gpu1:2", "a100", "?", "?", "····", "?", "?"]


def test_a_card_that_is_lost_says_so() -> None:
    """R2: the state of a broken card stands where its use would."""
    page = render_page(make_job(cards=(make_card(), make_card(index=3, status="lost"))), NOW, WIDE)
    assert next(line for line in page if "gpu1:3" in line).split()[4] == "lost"


def test_plot_marks_are_eighths() -> None:
    """Each mark stands for an eighth of the scale; 100 % is the full block."""
    assert plot([0, 12.4, 12.5, 50, 99.9, 100, None]) == "▁▁▂▅██·"
    assert plot([0, 100, None], has_blocks=False) == "_#?"


def test_time_before_the_run_is_not_shown_as_unknown() -> None:
    """A job of one minute has no two hours of gaps."""
    job = make_job(
        run=RunKey(cluster="c1", job_id=15, start=NOW - 60),
        cards=(make_card(recent=(None,) * 38 + (50.0, 50.0)),),
        recent_slot_seconds=30,
        gaps=(),
    )
    page = "\n".join(render_page(job, NOW, WIDE))
    assert "▅▅" in page
    assert "·" not in page


def test_the_newest_slot_may_still_be_on_its_way() -> None:
    """A reading that has not arrived yet is no gap and no unknown use."""
    job = make_job(cards=(make_card(recent=(90.0, 90.0, 50.0, None)),), gaps=())
    row = next(line for line in render_page(job, NOW, WIDE) if "gpu1:2" in line)
    assert row.split()[4:7] == ["50", "%", "██▅"]


def test_a_rule_that_only_observes_threatens_in_the_subjunctive() -> None:
    """In observe nothing is cancelled, and the page does not say that it will."""
    view = RuleView(rule="idle-gpu", mode="observe", text="idle for 2 h", cancel_at=NOW + 60)
    page = "\n".join(render_page(make_job(rules=(view,)), NOW, WIDE))
    assert "would be cancelled at 08:54:20" in page


def test_an_ended_job_says_why() -> None:
    """The reason of a cancel is on the page of its victim."""
    job = make_job(
        ended_at=NOW - 60, state="CANCELLED", end_reason="cancelled by rule idle-gpu: idle for 2 h"
    )
    page = render_page(job, NOW, WIDE)
    assert page[0] == "Job 12_3 (train) is CANCELLED on gpu1"
    assert page[-1] == "  ended       cancelled by rule idle-gpu: idle for 2 h"
    assert "  cost        70.00 CNY" in page


def test_a_list_is_one_line_per_job() -> None:
    """Without JOB each job is a line; a rule that has warned is on it."""
    jobs = [make_job(), make_job(action_id="13", name="x", rules=(), cost=None, cards=())]
    assert render_list(jobs, NOW, WIDE) == [
        "JOB   NAME   PARTITION  STATE    TIME        CARDS   USE  CARD-H       COST  RULES",
        "12_3  train  gpu        RUNNING  2 h of 1 d      1  95 %    2.00  70.00 CNY  idle-gpu:"
        " warned at 08:43:20; will be cancelled at 09:13:20",
        "13    x      gpu        RUNNING  2 h of 1 d      0     ?    2.00   no price",
    ]


def test_a_list_fits_the_terminal() -> None:
    """On a terminal no line wraps."""
    lines = render_list([make_job()], NOW, Terminal(columns=60, has_blocks=True))
    assert [len(line) <= 60 for line in lines] == [True, True]


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "a\nJob 13 is fine", "a\rb", "\udcff", "a\u202eb"])
def test_hostile_names_can_not_move_the_cursor(name: str) -> None:
    """X9: escape sequences, newlines and bytes that are no text are replaced."""
    job = make_job(name=name, user=name, account=name, end_reason=name)
    for lines in (render_page(job, NOW, WIDE), render_list([job], NOW, WIDE)):
        for line in lines:
            assert line.isprintable()


def test_the_command_asks_and_prints(stand_in: Any) -> None:
    """One job by its id: the daemon is asked for it, the page goes to stdout."""
    stand_in.answers["job_status"] = StatusAnswer(now=NOW, jobs=(make_job(),))
    done = stand_in.run("slurmwrap", "status", "12_3")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "Job 12_3 (train) is RUNNING on gpu1"
    assert stand_in.questions == [("job_status", StatusQuestion(job="12_3"))]


def test_json_is_the_whole_answer(stand_in: Any) -> None:
    """--json gives programs everything, unknown values as null."""
    job = make_job(cost=None)
    stand_in.answers["job_status"] = StatusAnswer(now=NOW, jobs=(job,))
    done = stand_in.run("slurmwrap", "status", "--json")
    document = json.loads(done.stdout)
    assert document["jobs"][0]["cost"] is None
    assert document["jobs"][0]["cards"][0]["recent"] == [None, 90.0, 95.0, 100.0]


def test_a_terminal_without_block_letters_gets_plain_ones(stand_in: Any) -> None:
    """A Latin-1 or ASCII terminal shows a plot and names as well as it can."""
    stand_in.answers["job_status"] = StatusAnswer(now=NOW, jobs=(make_job(name="测试"),))
    done = stand_in.run("slurmwrap", "status", "12_3", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "?###" in done.stdout
    assert "Job 12_3 (??)" in done.stdout


def test_an_unknown_job_has_its_own_exit_code(stand_in: Any) -> None:
    """The daemon's own words and code 12 reach the user."""
    stand_in.answers["job_status"] = NotFoundError("no job 99 of yours is known", hint="look")
    done = stand_in.run("slurmwrap", "status", "99")
    assert done.returncode == 12
    assert done.stdout == ""
    assert done.stderr == "slurmwrap: error: no job 99 of yours is known\n  hint: look\n"


def test_no_jobs_is_no_error(stand_in: Any) -> None:
    """Nothing to show goes to stderr, so that a pipe stays empty."""
    stand_in.answers["job_status"] = StatusAnswer(now=NOW, jobs=())
    done = stand_in.run("slurmwrap", "status")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "no jobs within the last day\n"


@pytest.mark.parametrize("words", [["x"], ["12;rm"], ["12", "--user", "bob"]])
def test_what_is_no_job_id_is_refused_before_anybody_is_asked(
    stand_in: Any, words: list[str]
) -> None:
    """A typing error is told at once."""
    done = stand_in.run("slurmwrap", "status", *words)
    assert done.returncode == 2
    assert stand_in.questions == []


def test_a_daemon_that_is_away_is_named(stand_in: Any) -> None:
    """Nobody listens: the address, and what to do, in two lines."""
    done = stand_in.run("slurmwrap", "status", SLURMWRAP_DAEMON_URL="http://127.0.0.1:1")
    assert done.returncode == 20
    assert "slurmwrapd does not answer at http://127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
