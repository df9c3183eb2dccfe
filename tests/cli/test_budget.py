"""`slurmwrap budget`: what is left."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from slurmwrap.api import BudgetAnswer, BudgetQuestion, BudgetStatus
from slurmwrap.cli.budget import draw_bar, render_budgets
from slurmwrap.cli.terminal import Terminal

NOW = 1_796_000_000  # 2026-11-30T00:53:20Z


@pytest.fixture(autouse=True)
def shanghai(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The reader sits in Shanghai."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Shanghai")
        time.tzset()
        yield
    time.tzset()


def make_budget(**changes: Any) -> BudgetStatus:
    budget = BudgetStatus(
        account="physics",
        user="",
        period="month",
        period_start=NOW - 86400,
        period_end=NOW + 86400,
        unit="card-hours",
        limit="1000",
        settled="700.0000",
        in_flight="112.5000",
        committed="40.0000",
        left="187.5000",
        used_percent=81.25,
        alerts=((80, NOW - 60),),
    )
    return msgspec.structs.replace(budget, **changes)


def test_a_budget_shows_every_part_of_its_sum() -> None:
    """Limit, settled, running, committed and left are told apart, and the alert with its time."""
    assert render_budgets([make_budget()], NOW, Terminal(columns=0, has_blocks=True)) == [
        "ACCOUNT  USER  PERIOD  LIMIT   SETTLED   RUNNING  COMMITTED      LEFT                USED",
        "physics  -     month    1000  700.0000  112.5000    40.0000  187.5000  card-hours  81.2 %"
        "  ████████████████░░░░",
        "",
        "alert at 80 % of physics sent at 08:52:20",
    ]


@pytest.mark.parametrize(
    ("percent", "bar"),
    [
        (0, "...................."),
        (4.9, "...................."),
        (50, "##########.........."),
        (99.9, "###################."),
        (100, "####################"),
        (250, "####################!"),
    ],
)
def test_a_bar_is_full_only_at_the_limit(percent: float, bar: str) -> None:
    """99.9 % does not look like 100 %, and more than the limit is marked."""
    assert draw_bar(percent, has_blocks=False) == bar


def test_the_command_asks_and_prints(stand_in: Any) -> None:
    """The account is passed on, the table goes to stdout."""
    stand_in.answers["budgets"] = BudgetAnswer(now=NOW, timezone="UTC", budgets=(make_budget(),))
    done = stand_in.run("slurmwrap", "budget", "--account", "physics")
    assert (done.returncode, done.stderr) == (0, "")
    assert "187.5000" in done.stdout
    assert stand_in.questions == [("budgets", BudgetQuestion(account="physics"))]


def test_json_keeps_amounts_as_text(stand_in: Any) -> None:
    """Decimal amounts travel as text, since a float would round them."""
    stand_in.answers["budgets"] = BudgetAnswer(now=NOW, timezone="UTC", budgets=(make_budget(),))
    document = json.loads(stand_in.run("slurmwrap", "budget", "--json").stdout)
    assert document["budgets"][0]["left"] == "187.5000"


def test_no_budget_is_said_so(stand_in: Any) -> None:
    """Without a budget nothing is limited, and that is no error."""
    stand_in.answers["budgets"] = BudgetAnswer(now=NOW, timezone="UTC", budgets=())
    done = stand_in.run("slurmwrap", "budget")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no budget is set for you" in done.stderr


def test_hostile_account_names_stay_in_their_cell() -> None:
    """X9: a name with escape sequences or newlines does not leave its row."""
    lines = render_budgets(
        [make_budget(account="a\x1b[31m\nb")], NOW, Terminal(columns=0, has_blocks=True)
    )
    assert all(line.isprintable() for line in lines)
