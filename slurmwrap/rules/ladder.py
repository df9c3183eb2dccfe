"""From a verdict to an action: observe, warn, cancel, never a cancel without a warning."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from slurmwrap.model import JobRun, RunKey
from slurmwrap.rules.reasons import Reason
from slurmwrap.rules.verdict import State, Verdict

MODES = ("observe", "warn", "enforce")


class WarningRecord(Struct, frozen=True, kw_only=True):
    """A warning that was decided for a run."""

    rule: str
    run: RunKey
    episode_since: int
    """``since`` of the verdict that led to it."""
    recorded_at: int
    delivered_at: int | None = None
    """When a channel of the user accepted it; None: not yet."""
    observed: bool = False
    """Only noted, in observe mode: nobody was told."""


class CancelRecord(Struct, frozen=True, kw_only=True):
    """A cancel that was decided for a run."""

    rule: str
    run: RunKey
    episode_since: int
    recorded_at: int
    observed: bool = False


class History(Struct, frozen=True, kw_only=True):
    """What was decided before. Records of other runs and rules do no harm."""

    warnings: tuple[WarningRecord, ...] = ()
    cancels: tuple[CancelRecord, ...] = ()


class ActionKind(StrEnum):
    """What is to be done now."""

    NOTHING = "nothing"
    WARN = "warn"
    CANCEL = "cancel"
    WOULD_WARN = "would-warn"
    WOULD_CANCEL = "would-cancel"


class Action(Struct, frozen=True, kw_only=True):
    """What the service has to do or to record for one run and rule."""

    kind: ActionKind
    rule: str
    run: RunKey
    at: int
    episode_since: int | None = None
    """Goes into the record that the service keeps of it."""
    reason: Reason


def decide(
    verdict: Verdict,
    *,
    mode: str,
    grace_seconds: int,
    history: History,
    now: int,
    exemption: Reason | None = None,
) -> Action:
    """What to do about a verdict.

    A cancel needs mode ``enforce`` and a warning of the same run, rule and episode that was
    delivered at least ``grace_seconds`` ago. A late warning therefore moves the cancel, and an
    undelivered one forbids it.

    Raises:
        ValueError: a mode that does not exist.
    """
    if mode not in MODES:
        raise ValueError(f"{mode!r} is no mode; modes are {', '.join(MODES)}")
    kind = ActionKind.NOTHING
    holds = verdict.state in (State.WARN, State.CANCEL) and verdict.since is not None
    if holds and exemption is None:
        if mode == "observe":
            kind = _decide_observed(verdict, grace_seconds, history, now)
        else:
            kind = _decide_acting(verdict, mode, grace_seconds, history, now)
    return Action(
        kind=kind,
        rule=verdict.rule,
        run=verdict.run,
        at=now,
        episode_since=verdict.since,
        reason=exemption or verdict.reason,
    )


def recheck(decided: Verdict, run: JobRun | None, current: Verdict) -> Reason | None:
    """Why a decided cancel must not be carried out after all; None: go ahead.

    Args:
        decided: the verdict that the cancel was decided on.
        run: the run as slurmctld tells it just now; None when it tells none of that id.
        current: the rule's verdict on readings read again just now.
    """
    if run is None or run.key != decided.run or run.state != "RUNNING":
        return Reason(template="run-changed", values={"state": run.state if run else "-"})
    same = current.rule == decided.rule and current.run == decided.run
    if same and current.state is State.CANCEL and same_episode(current, decided.at):
        return None
    return Reason(template="no-longer-holds", values={"now": current.reason.text()})


def same_episode(verdict: Verdict, moment: int) -> bool:
    """Whether the verdict's condition held already at ``moment``, as far as can be proved."""
    return verdict.since is not None and verdict.since <= moment


def find_warnings(verdict: Verdict, history: History, *, observed: bool) -> list[WarningRecord]:
    """The warnings that were given, or in observe mode noted, for the verdict's episode."""
    return [
        record
        for record in history.warnings
        if record.observed == observed
        and record.rule == verdict.rule
        and record.run == verdict.run
        and same_episode(verdict, record.recorded_at)
    ]


def _decide_observed(
    verdict: Verdict, grace_seconds: int, history: History, now: int
) -> ActionKind:
    warned = find_warnings(verdict, history, observed=True)
    if not warned and not _was_told(verdict, history, observed=True):
        return ActionKind.WOULD_WARN
    noted = any(
        record.observed
        and record.rule == verdict.rule
        and record.run == verdict.run
        and (verdict.since_is_open or same_episode(verdict, record.recorded_at))
        for record in history.cancels
    )
    # As if the warning had been delivered at once.
    grace_is_over = any(record.recorded_at + grace_seconds <= now for record in warned)
    if verdict.state is State.CANCEL and grace_is_over and not noted:
        return ActionKind.WOULD_CANCEL
    return ActionKind.NOTHING


def _decide_acting(
    verdict: Verdict, mode: str, grace_seconds: int, history: History, now: int
) -> ActionKind:
    warned = find_warnings(verdict, history, observed=False)
    if not warned:
        # Where a cancel can follow, an episode that may be a new one is warned about again.
        told = mode == "warn" and _was_told(verdict, history, observed=False)
        return ActionKind.NOTHING if told else ActionKind.WARN
    grace_is_over = any(
        record.delivered_at is not None and record.delivered_at + grace_seconds <= now
        for record in warned
    )
    if mode == "enforce" and verdict.state is State.CANCEL and grace_is_over:
        return ActionKind.CANCEL
    return ActionKind.NOTHING


def _was_told(verdict: Verdict, history: History, *, observed: bool) -> bool:
    """Whether an older warning may be about the same episode: its begin is out of sight."""
    return verdict.since_is_open and any(
        record.observed == observed and record.rule == verdict.rule and record.run == verdict.run
        for record in history.warnings
    )
