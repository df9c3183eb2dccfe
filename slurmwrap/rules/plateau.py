"""The rule plateau: a training metric that the job asked to have watched, and that is stuck."""

from __future__ import annotations

import math
from dataclasses import dataclass

from slurmwrap.model import MetricPoint, WatchedMetric
from slurmwrap.rules.evidence import MAX_HOLE_INTERVALS, Evidence, RunClock, silent_seconds
from slurmwrap.rules.ladder import MODES
from slurmwrap.rules.reasons import Reason
from slurmwrap.rules.verdict import State, Verdict
from slurmwrap.setting import Duration, setting

RULE_ID = "plateau"


@dataclass(frozen=True)
class PlateauSettings:
    """When a watched metric counts as stuck, and what follows."""

    mode: str = setting("observe", "How far the rule may go.", choices=MODES)
    patience: int = setting(
        3, "Evaluations in a row without improvement, where the job does not say another number."
    )
    grace: Duration = setting(
        Duration(600), "Shortest time between a delivered warning and the cancel."
    )

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise ValueError(f"patience is at least 1, not {self.patience}")


@dataclass(frozen=True)
class _Course:
    """How a metric went: the best evaluation and those after it."""

    best: MetricPoint
    after: tuple[MetricPoint, ...]


class Plateau:
    """No improvement of the declared metric for as many evaluations as the patience allows."""

    id = RULE_ID
    settings_type = PlateauSettings

    def reach_seconds(self, settings: PlateauSettings) -> int:
        # Only whether the run's nodes are heard at all.
        return 0

    def evaluate(self, settings: PlateauSettings, evidence: Evidence) -> Verdict:
        watch = evidence.watch
        if watch is None:
            return self._plain(evidence, State.FINE, Reason(template="no-watch"))
        problem = _find_watch_fault(watch)
        if problem is not None:
            reason = Reason(template="bad-watch", values={"problem": problem})
            return self._plain(evidence, State.UNKNOWN, reason)
        if RunClock(evidence, 0).is_suspended:
            return self._plain(evidence, State.FINE, Reason(template="suspended"))
        if not evidence.run.cards_known:
            return self._plain(evidence, State.UNKNOWN, Reason(template="cards-unknown"))
        silent = silent_seconds(evidence)
        if evidence.run.cards and silent > MAX_HOLE_INTERVALS * evidence.interval_seconds:
            # Who does not hear a run's nodes may also have missed an improvement.
            reason = Reason(template="unheard", values={"silent_seconds": silent})
            return self._plain(evidence, State.UNKNOWN, reason)
        course = _follow(watch, evidence)
        if course is None:
            reason = Reason(template="no-evaluation", values={"metric": watch.name})
            return self._plain(evidence, State.FINE, reason)
        return self._judge(settings, evidence, watch, course)

    def _judge(
        self,
        settings: PlateauSettings,
        evidence: Evidence,
        watch: WatchedMetric,
        course: _Course,
    ) -> Verdict:
        patience = settings.patience if watch.patience is None else watch.patience
        if not course.after:
            values = {"metric": watch.name, **_tell("best", course.best)}
            return self._plain(
                evidence, State.FINE, Reason(template="improving", values={**values})
            )
        since = course.after[0].at
        reason = Reason(
            template="plateau",
            values={
                "metric": watch.name,
                "count": len(course.after),
                "patience": patience,
                **_tell("best", course.best),
                **_tell("last", course.after[-1]),
            },
        )
        stuck = len(course.after) >= patience
        due = course.after[patience - 1].at if stuck else None
        return Verdict(
            rule=self.id,
            run=evidence.run.key,
            state=State.CANCEL if stuck else State.SUSPECT,
            reason=reason,
            at=evidence.now,
            since=since,
            held_seconds=max(0, evidence.now - since),
            warn_at=due,
            cancel_at=due,
        )

    def _plain(self, evidence: Evidence, state: State, reason: Reason) -> Verdict:
        return Verdict(
            rule=self.id, run=evidence.run.key, state=state, reason=reason, at=evidence.now
        )


def _find_watch_fault(watch: WatchedMetric) -> str | None:
    if watch.mode not in ("max", "min"):
        return f"mode {watch.mode!r} is neither max nor min"
    if not math.isfinite(watch.min_delta) or watch.min_delta < 0:
        return f"min_delta {watch.min_delta} is not a number of 0 or more"
    if watch.patience is not None and watch.patience < 1:
        return f"patience {watch.patience} is below 1"
    return None


def _follow(watch: WatchedMetric, evidence: Evidence) -> _Course | None:
    """The course of the watched metric in this run, in order of steps; None: not evaluated.

    Blanks are no evaluations, a step written twice counts once with what was written last, and
    what was written before the run began belongs to an earlier one.
    """
    by_step: dict[int, MetricPoint] = {}
    for point in evidence.metrics:
        if point.name != watch.name or point.at < evidence.run.key.start:
            continue
        if not math.isfinite(point.value):
            continue
        known = by_step.get(point.step)
        if known is None or (point.at, point.value) > (known.at, known.value):
            by_step[point.step] = point
    evaluations = [by_step[step] for step in sorted(by_step)]
    if not evaluations:
        return None
    sign = 1 if watch.mode == "max" else -1
    best = 0
    for index, point in enumerate(evaluations):
        if sign * (point.value - evaluations[best].value) > watch.min_delta:
            best = index
    return _Course(best=evaluations[best], after=tuple(evaluations[best + 1 :]))


def _tell(which: str, point: MetricPoint) -> dict[str, str | int]:
    return {which: f"{point.value:.6g}", f"{which}_step": point.step}
