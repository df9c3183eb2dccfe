"""The rule plateau: only the declared metric, only real evaluations, only this run."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

import pytest
from rule_scene import (
    CARD,
    HOUR,
    INTERVAL,
    MINUTE,
    START,
    bad_reading,
    constant,
    evidence_at,
    make_run,
    watch,
)

from slurmwrap.model import JobRun, MetricPoint, ReadStatus, WatchedMetric
from slurmwrap.rules import State, Verdict
from slurmwrap.rules.plateau import Plateau, PlateauSettings

NOW = 2 * HOUR
HEARD = watch(constant(95), NOW, begin=NOW - 10 * MINUTE)
ACCURACY = WatchedMetric(name="val_acc", mode="max")


def points(name: str, values: Sequence[float], *, every: int = 5 * MINUTE) -> list[MetricPoint]:
    """One evaluation per step, step 1 at one period after the start."""
    return [
        MetricPoint(name=name, step=step, value=value, at=START + step * every)
        for step, value in enumerate(values, 1)
    ]


def judge(
    metrics: Sequence[MetricPoint],
    watched: WatchedMetric | None = ACCURACY,
    *,
    settings: PlateauSettings = PlateauSettings(),  # noqa: B008  frozen
    run: JobRun | None = None,
    readings: Sequence[object] | None = None,
    **more: object,
) -> Verdict:
    evidence = evidence_at(
        NOW,
        HEARD if readings is None else readings,  # type: ignore[arg-type]
        run,
        metrics=tuple(metrics),
        watch=watched,
        **more,
    )
    return Plateau().evaluate(settings, evidence)


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ([0.5], "fine"),
        ([0.5, 0.6, 0.7], "fine"),
        ([0.5, 0.7, 0.6], "suspect"),
        ([0.5, 0.7, 0.6, 0.7], "suspect"),
        ([0.5, 0.7, 0.6, 0.7, 0.69], "cancel"),
        ([0.5, 0.7, 0.6, 0.7, 0.69, 0.71], "fine"),
        ([0.9, 0.9, 0.9, 0.9], "cancel"),
    ],
)
def test_three_evaluations_without_improvement(values: list[float], state: str) -> None:
    """Three evaluations after the best that do not beat it; an equal one does not."""
    assert judge(points("val_acc", values)).state == state


def test_reason_gives_the_figures() -> None:
    """The reader sees what was best, when, and what came since."""
    verdict = judge(points("val_acc", [0.5, 0.7125, 0.6, 0.7, 0.69]))
    assert verdict.reason.text() == (
        "val_acc has not improved on 0.7125 (step 2) for 3 evaluations (patience 3),"
        " last 0.69 at step 5"
    )
    assert verdict.reason.text("zh") == (
        "指标 val_acc 连续 3 次评估没有超过第 2 步的 0.7125（允许 3 次），最近一次为第 5 步的 0.69"
    )
    # It began with the first evaluation that did not improve, and was due at the third.
    assert verdict.since == START + 15 * MINUTE
    assert verdict.cancel_at == START + 25 * MINUTE


def test_min_mode_wants_smaller_values() -> None:
    """A loss improves downwards."""
    loss = WatchedMetric(name="loss", mode="min")
    assert judge(points("loss", [3.0, 2.0, 1.0, 0.5]), loss).state is State.FINE
    assert judge(points("loss", [0.5, 1.0, 2.0, 3.0]), loss).state is State.CANCEL


def test_improvement_must_be_larger_than_min_delta() -> None:
    """min_delta: crawling upwards by less is no improvement on the best."""
    watched = WatchedMetric(name="val_acc", min_delta=0.05)
    assert judge(points("val_acc", [0.5, 0.51, 0.52, 0.53]), watched).state is State.CANCEL
    # Small steps that add up do beat the best in the end.
    assert judge(points("val_acc", [0.5, 0.53, 0.56]), watched).state is State.FINE


def test_patience_of_the_job_goes_before_that_of_the_site() -> None:
    """patience: the job's own, else the site's."""
    values = points("val_acc", [0.9, 0.8, 0.8, 0.8])
    assert judge(values, WatchedMetric(name="val_acc", patience=4)).state is State.SUSPECT
    assert judge(values, settings=PlateauSettings(patience=4)).state is State.SUSPECT
    assert judge(values, WatchedMetric(name="val_acc", patience=1)).state is State.CANCEL


def test_without_a_watch_nothing_is_judged() -> None:
    """Only a job that asks for it is watched."""
    verdict = judge(points("val_acc", [0.9, 0.1, 0.1, 0.1, 0.1]), None)
    assert (verdict.state, verdict.reason.text()) == (State.FINE, "no metric is watched")


def test_v12_only_the_declared_metric_decides() -> None:
    """V12: the evaluation loss rises for six evaluations while the watched WER still falls."""
    metrics = points("eval_loss", [0.31, 0.33, 0.36, 0.40, 0.43, 0.47])
    metrics += points("wer", [22.1, 20.4, 19.0, 18.2, 17.9, 17.7])
    assert judge(metrics, WatchedMetric(name="wer", mode="min")).state is State.FINE
    assert judge(metrics, WatchedMetric(name="eval_loss", mode="min")).state is State.CANCEL


def test_v13_blanks_are_not_evaluations() -> None:
    """V13: a CSV with training and validation on different rows: blanks count for nothing."""
    table = """step,train_loss,val_acc
1,0.9,
1,,0.50
2,0.8,
2,,0.60
3,0.7,
4,0.6,
5,0.5,
6,0.4,
"""
    metrics = [
        MetricPoint(
            name=name,
            step=int(row["step"]),
            value=float(row[name]) if row[name] else math.nan,
            at=START + 60 * int(row["step"]),
        )
        for row in csv.DictReader(io.StringIO(table))
        for name in ("train_loss", "val_acc")
    ]
    assert judge(metrics).state is State.FINE
    assert judge(metrics).reason.text().startswith("val_acc is improving: best 0.6 at step 2")


@pytest.mark.parametrize("blank", [math.nan, math.inf, -math.inf])
def test_v13_values_that_are_no_numbers_are_blanks(blank: float) -> None:
    """V13: NaN and infinities neither count as evaluations nor become the best."""
    assert judge(points("val_acc", [0.9, blank, blank, blank])).state is State.FINE
    assert judge(points("val_acc", [blank] * 5)).reason.template == "no-evaluation"
    mixed = [0.9, blank, 0.8, blank, 0.8, 0.8]
    assert judge(points("val_acc", mixed)).state is State.CANCEL


def test_step_written_twice_counts_once_with_the_last_value() -> None:
    """A step that is logged again is one evaluation; what was written last holds."""
    metrics = points("val_acc", [0.9, 0.8])
    again = [
        MetricPoint(name="val_acc", step=2, value=value, at=START + HOUR + second)
        for second, value in enumerate([0.7, 0.6, 0.95])
    ]
    assert judge(metrics + again).state is State.FINE
    assert judge([*again, *metrics]).reason.values["best"] == "0.95"
    blank_last = [*metrics, MetricPoint(name="val_acc", step=2, value=math.nan, at=START + HOUR)]
    assert judge(blank_last).state is State.SUSPECT


def test_steps_are_evaluated_in_their_own_order() -> None:
    """Points arrive in any order; steps decide."""
    metrics = points("val_acc", [0.1, 0.2, 0.3, 0.4, 0.5])
    assert judge(metrics[::-1]).state is State.FINE


def test_metrics_from_before_the_start_belong_to_an_earlier_run() -> None:
    """V5: a resumed run is not judged by what the run before it reached."""
    metrics = points("val_acc", [0.9, 0.8, 0.8, 0.8])
    run = make_run(start=START + 12 * MINUTE)
    verdict = judge(metrics, run=run)
    # Left are steps 3 and 4, of which the second does not improve on the first.
    assert (verdict.state, verdict.reason.values["count"]) == (State.SUSPECT, 1)


def test_run_whose_nodes_are_not_heard_is_unknown() -> None:
    """A node that is silent may also have improvements to tell: nothing is cancelled."""
    metrics = points("val_acc", [0.9, 0.8, 0.8, 0.8])
    silent = watch(constant(95), HOUR)
    verdict = judge(metrics, readings=silent)
    assert verdict.state is State.UNKNOWN
    assert verdict.reason.text() == (
        "nothing can be said: the run's nodes have not been heard for 1 h"
    )
    assert judge(metrics, readings=[]).state is State.UNKNOWN
    assert judge(metrics, readings=[], run=make_run([])).state is State.CANCEL


def test_cards_without_a_counter_do_not_stop_the_rule() -> None:
    """R1: on MIG cards utilisation is not supported; their node is heard all the same."""
    mig = [bad_reading(CARD, START + NOW - INTERVAL, ReadStatus.NOT_SUPPORTED)]
    assert judge(points("val_acc", [0.9, 0.8, 0.8, 0.8]), readings=mig).state is State.CANCEL


def test_suspended_run_is_left_alone() -> None:
    """V6: nothing is decided about a run that can't do anything."""
    run = make_run(state="SUSPENDED")
    assert judge(points("val_acc", [0.9, 0.8, 0.8, 0.8]), run=run).reason.template == "suspended"


@pytest.mark.parametrize(
    "watched",
    [
        WatchedMetric(name="val_acc", mode="maximum"),
        WatchedMetric(name="val_acc", min_delta=-1.0),
        WatchedMetric(name="val_acc", min_delta=math.nan),
        WatchedMetric(name="val_acc", patience=0),
    ],
)
def test_watch_that_makes_no_sense_is_unknown(watched: WatchedMetric) -> None:
    """A declaration that can't be followed cancels nothing, and the job's owner reads why."""
    verdict = judge(points("val_acc", [0.9, 0.8, 0.8, 0.8]), watched)
    assert (verdict.state, verdict.reason.template) == (State.UNKNOWN, "bad-watch")


def test_patience_below_one_is_refused() -> None:
    """A site that wrote 0 would cancel every job at its best."""
    with pytest.raises(ValueError, match="patience is at least 1, not 0"):
        PlateauSettings(patience=0)
