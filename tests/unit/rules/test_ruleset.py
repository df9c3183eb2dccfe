"""Judging one run by all rules: exemptions, the view for the owner, and the words."""

from __future__ import annotations

import string
import sys
from pathlib import Path
from types import ModuleType

import pytest
from rule_scene import HOUR, MINUTE, START, constant, evidence_at, make_run, watch

from slurmwrap.config.rules_file import parse_rules
from slurmwrap.model import Card, MetricPoint, ReadStatus, WatchedMetric
from slurmwrap.rules import (
    ActionKind,
    ConfiguredRule,
    Exemptions,
    History,
    Judgement,
    Reason,
    RuleSet,
    WarningRecord,
    judge,
)
from slurmwrap.rules.idle import IdleGpu, IdleSettings
from slurmwrap.rules.plateau import Plateau, PlateauSettings
from slurmwrap.rules.reasons import LANGUAGES, TEMPLATES, format_cards


def rule_set(mode: str = "enforce", exemptions: Exemptions = Exemptions()) -> RuleSet:  # noqa: B008
    return RuleSet(
        rules=(
            ConfiguredRule(IdleGpu(), IdleSettings(mode=mode)),
            ConfiguredRule(Plateau(), PlateauSettings(mode=mode)),
        ),
        exemptions=exemptions,
    )


def judge_idle_run(
    minutes: int, rules: RuleSet, warned_at: int | None = None, delivered: bool = True, **run: str
) -> Judgement:
    warnings = ()
    if warned_at is not None:
        moment = START + warned_at * MINUTE
        warnings = (
            WarningRecord(
                rule="idle-gpu",
                run=make_run().key,
                episode_since=START,
                recorded_at=moment,
                delivered_at=moment if delivered else None,
            ),
        )
    evidence = evidence_at(minutes * MINUTE, watch(constant(0), 4 * HOUR), make_run(**run))
    return judge(rules, evidence, History(warnings=warnings))[0]


@pytest.mark.parametrize(
    ("exemptions", "expected"),
    [
        (Exemptions(accounts=("physics",)), "exempt: account physics"),
        (Exemptions(users=("bob", "alice")), "exempt: user alice"),
        (Exemptions(qos=("normal",)), "exempt: qos normal"),
        (Exemptions(partitions=("gpu",)), "exempt: partition gpu"),
        (Exemptions(reservations=("course",)), "exempt: reservation course"),
    ],
)
def test_exemptions_by_what_slurm_authorises(exemptions: Exemptions, expected: str) -> None:
    """An exempt run is judged and shown, but nothing is done."""
    rules = rule_set(exemptions=exemptions)
    judgement = judge_idle_run(120, rules, warned_at=90, reservation="course")
    assert judgement.action.kind is ActionKind.NOTHING
    assert judgement.action.reason.text() == expected
    assert judgement.view.text.endswith(expected)
    assert judgement.view.cancel_at is None


def test_x6_exemptions_look_at_no_name_and_match_whole_words() -> None:
    """X6: neither the job's name, nor a part of a name, nor an empty reservation exempts."""
    exemptions = Exemptions(
        users=("interactive", "ali"), accounts=("phys",), partitions=("GPU",), reservations=("",)
    )
    judgement = judge_idle_run(120, rule_set(exemptions=exemptions), 90, name="interactive")
    assert judgement.action.kind is ActionKind.CANCEL


def test_a11_a_part_of_a_heterogeneous_job_is_left_alone() -> None:
    """A11: cancelling an idle component would end its busy leader too."""
    judgement = judge_idle_run(150, rule_set(), 90, het_job_id=12, het_offset=1)
    assert judgement.action.kind is ActionKind.NOTHING
    assert "heterogeneous job 12" in judgement.view.text
    assert judgement.view.cancel_at is None


def test_view_follows_the_ladder() -> None:
    """status: idle for 40 min; then warned, with the moment of the cancel."""
    rules = rule_set()
    early = judge_idle_run(40, rules).view
    assert early.text.startswith("idle for 40 min: gpu1:0 below 30 %")
    assert (early.warned_at, early.cancel_at) == (None, START + 120 * MINUTE)
    warned = judge_idle_run(100, rules, warned_at=90).view
    assert warned.text.endswith("% of the time seen, up to 10.0 GiB of memory held")
    assert (warned.warned_at, warned.cancel_at) == (START + 90 * MINUTE, START + 120 * MINUTE)
    late = judge_idle_run(150, rules, warned_at=140).view
    assert late.cancel_at == START + 170 * MINUTE
    pending = judge_idle_run(150, rules, warned_at=140, delivered=False).view
    assert pending.text.endswith("; a warning is on its way")
    assert (pending.warned_at, pending.cancel_at) == (None, START + 180 * MINUTE)


def test_view_of_a_rule_that_only_observes_threatens_nobody() -> None:
    """Mode observe and warn show no moment of a cancel."""
    observed = judge_idle_run(100, rule_set("observe")).view
    assert observed.text.endswith("; only observed")
    assert observed.cancel_at is None
    assert judge_idle_run(100, rule_set("warn")).view.cancel_at is None


def test_every_rule_is_asked() -> None:
    """A busy run with a stuck metric: idle is fine, plateau wants to warn."""
    metrics = tuple(
        MetricPoint(name="acc", step=step, value=value, at=START + step * 60)
        for step, value in enumerate([0.9, 0.8, 0.8, 0.8])
    )
    evidence = evidence_at(
        HOUR,
        watch(constant(90), HOUR),
        metrics=metrics,
        watch=WatchedMetric(name="acc"),
    )
    kinds = {
        judgement.verdict.rule: judgement.action.kind
        for judgement in judge(rule_set(), evidence, History())
    }
    assert kinds == {"idle-gpu": ActionKind.NOTHING, "plateau": ActionKind.WARN}


def test_reach_is_that_of_the_rule_that_needs_most() -> None:
    """Readings are fetched once, for all rules: a window and a half."""
    assert rule_set().reach_seconds == 3 * HOUR


def test_every_reason_is_written_in_every_language_with_the_same_values() -> None:
    """A template that lacks a language or a value would fail when it is needed."""

    def fields(text: str) -> set[str]:
        return {name for _, name, _, _ in string.Formatter().parse(text) if name}

    for language in LANGUAGES:
        assert TEMPLATES[language].keys() == TEMPLATES["en"].keys()
        for template, text in TEMPLATES[language].items():
            assert fields(text) == fields(TEMPLATES["en"][template]), (language, template)


@pytest.mark.parametrize("status", [item for item in ReadStatus if item is not ReadStatus.OK])
def test_every_status_has_its_words(status: ReadStatus) -> None:
    """Whatever a reading's status is, the reason for unknown can be told."""
    reason = Reason(template="unknown", values={"problems": {status.value: "gpu1:0"}})
    assert all("gpu1:0" in reason.text(language) for language in LANGUAGES)


def test_cards_are_grouped_by_node() -> None:
    """Many cards stay readable."""
    cards = [Card("n2", 1), *(Card("n1", index) for index in (0, 1, 2, 4, 7)), Card("n1", 0)]
    assert format_cards(cards) == "n1:0-2,4,7, n2:1"


def test_values_are_shown_as_they_are() -> None:
    """Braces and format words in a value are text, not instructions."""
    hostile = "{0.__class__} %s {text}"
    assert Reason(template="text", values={"text": hostile}).text() == hostile


def test_durations_in_chinese() -> None:
    """The two largest units, as in English."""
    reason = Reason(template="unheard", values={"silent_seconds": 90061})
    assert reason.text("zh") == "无法判断：已有 1 天 1 小时 没有收到作业节点的消息"
    assert reason.text() == ("nothing can be said: the run's nodes have not been heard for 1 d 1 h")


def test_example_of_the_docs_is_a_rule() -> None:
    """docs/rules/README.md: the rule that it shows works as it stands there."""
    page = Path(__file__).resolve().parents[3] / "docs/rules/README.md"
    code = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    module = ModuleType("night_shift")
    sys.modules["night_shift"] = module
    exec(compile(code, str(page), "exec"), module.__dict__)
    rule = module.NightShift()
    rules = parse_rules({"night-shift": {"max_cards": 1, "mode": "warn"}}, "x", {rule.id: rule})
    run = make_run([Card("gpu1", 0), Card("gpu1", 1)])
    judgement = judge(rules, evidence_at(MINUTE, [], run), History())[0]
    assert judgement.action.kind is ActionKind.WARN
    assert judgement.view.text == "holds 2 cards"
