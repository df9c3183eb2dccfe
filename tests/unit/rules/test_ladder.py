"""The ladder: no cancel without a warning that was delivered long enough ago."""

from __future__ import annotations

import msgspec
import pytest
from rule_scene import HOUR, INTERVAL, MINUTE, START, constant, judge_idle, make_run, watch

from slurmwrap.rules import (
    Action,
    ActionKind,
    CancelRecord,
    History,
    Reason,
    State,
    Verdict,
    WarningRecord,
    decide,
    recheck,
)
from slurmwrap.rules.plateau import RULE_ID as PLATEAU

GRACE = 30 * MINUTE
RUN = make_run().key


def at(minutes: int) -> int:
    return START + minutes * MINUTE


def verdict_at(minutes: int, state: State, *, since: int | None = 0, **changes: object) -> Verdict:
    verdict = Verdict(
        rule="idle-gpu",
        run=RUN,
        state=state,
        reason=Reason(template="text", values={"text": "idle"}),
        at=at(minutes),
        since=None if since is None else at(since),
    )
    return msgspec.structs.replace(verdict, **changes)


def warned(recorded: int, delivered: int | None, **changes: object) -> History:
    record = WarningRecord(
        rule="idle-gpu",
        run=RUN,
        episode_since=START,
        recorded_at=at(recorded),
        delivered_at=None if delivered is None else at(delivered),
    )
    return History(warnings=(msgspec.structs.replace(record, **changes),))


def act(verdict: Verdict, history: History = History(), mode: str = "enforce") -> ActionKind:  # noqa: B008
    return decide(verdict, mode=mode, grace_seconds=GRACE, history=history, now=verdict.at).kind


def test_warning_then_grace_then_cancel() -> None:
    """The plain way: warned at 90 min, delivered at once, cancelled at 2 h."""
    assert act(verdict_at(89, State.SUSPECT)) is ActionKind.NOTHING
    assert act(verdict_at(90, State.WARN)) is ActionKind.WARN
    assert act(verdict_at(91, State.WARN), warned(90, None)) is ActionKind.NOTHING
    assert act(verdict_at(119, State.WARN), warned(90, 90)) is ActionKind.NOTHING
    assert act(verdict_at(120, State.CANCEL), warned(90, 90)) is ActionKind.CANCEL


def test_x1_cancel_is_due_but_the_warning_was_missed() -> None:
    """X1: the daemon was down when the warning was due: warn first, wait, then cancel."""
    assert act(verdict_at(200, State.CANCEL)) is ActionKind.WARN
    assert act(verdict_at(229, State.CANCEL), warned(200, 200)) is ActionKind.NOTHING
    assert act(verdict_at(230, State.CANCEL), warned(200, 200)) is ActionKind.CANCEL


def test_x2_undelivered_warning_forbids_the_cancel() -> None:
    """X2: the mail server refuses for hours: no cancel; the outbox goes on trying."""
    assert act(verdict_at(600, State.CANCEL), warned(90, None)) is ActionKind.NOTHING


def test_x2_late_delivery_moves_the_cancel() -> None:
    """X2: recorded at 90 min, delivered at 200: the grace runs from the delivery."""
    assert act(verdict_at(229, State.CANCEL), warned(90, 200)) is ActionKind.NOTHING
    assert act(verdict_at(230, State.CANCEL), warned(90, 200)) is ActionKind.CANCEL


def test_new_episode_needs_a_new_warning() -> None:
    """The run worked since it was warned: the old warning is no longer about this idleness."""
    again = verdict_at(400, State.CANCEL, since=200)
    assert act(again, warned(90, 90)) is ActionKind.WARN
    both = History(warnings=warned(90, 90).warnings + warned(300, 301).warnings)
    assert act(again, both) is ActionKind.CANCEL


@pytest.mark.parametrize("state", [State.FINE, State.UNKNOWN, State.SUSPECT])
@pytest.mark.parametrize("mode", ["observe", "warn", "enforce"])
def test_unknown_never_leads_to_anything(state: State, mode: str) -> None:
    """Whatever was warned of before, an unknown run is left alone."""
    assert act(verdict_at(600, state), warned(90, 90), mode) is ActionKind.NOTHING


def test_warnings_of_others_do_not_count() -> None:
    """A warning of another rule, run of the job, or only noted in observe mode is none."""
    due = verdict_at(120, State.CANCEL)
    requeued = msgspec.structs.replace(RUN, start=START - HOUR)
    assert act(due, warned(90, 90, rule=PLATEAU)) is ActionKind.WARN
    assert act(due, warned(90, 90, run=requeued)) is ActionKind.WARN
    assert act(due, warned(90, 90, observed=True)) is ActionKind.WARN


def test_mode_warn_never_cancels() -> None:
    """Mode warn: one warning per episode, nothing more."""
    assert act(verdict_at(90, State.WARN), mode="warn") is ActionKind.WARN
    assert act(verdict_at(500, State.CANCEL), warned(90, 90), "warn") is ActionKind.NOTHING


def test_mode_observe_notes_what_it_would_have_done_once() -> None:
    """Mode observe: the warning and, a grace later, the cancel are noted, each once."""
    noted = warned(90, None, observed=True)
    assert act(verdict_at(90, State.WARN), mode="observe") is ActionKind.WOULD_WARN
    assert act(verdict_at(91, State.WARN), noted, "observe") is ActionKind.NOTHING
    assert act(verdict_at(120, State.CANCEL), noted, "observe") is ActionKind.WOULD_CANCEL
    done = CancelRecord(
        rule="idle-gpu", run=RUN, episode_since=START, recorded_at=at(120), observed=True
    )
    both = History(warnings=noted.warnings, cancels=(done,))
    assert act(verdict_at(121, State.CANCEL), both, "observe") is ActionKind.NOTHING


def test_begin_out_of_sight_is_not_warned_of_again_and_again() -> None:
    """Readings reach back 3 h, the idleness 40: one warning, unless a cancel could follow."""
    old = verdict_at(2400, State.CANCEL, since=2220, since_is_open=True)
    assert act(old, warned(90, 90), "warn") is ActionKind.NOTHING
    assert act(old, warned(90, None, observed=True), "observe") is ActionKind.NOTHING
    # It can't be proved that the old warning is about this idleness: warn again first.
    assert act(old, warned(90, 90), "enforce") is ActionKind.WARN


def test_exempt_run_is_left_alone_with_the_reason() -> None:
    """An exemption stops every action and says itself why."""
    exemption = Reason(template="exempt", values={"field": "qos", "value": "serving"})
    action = decide(
        verdict_at(120, State.CANCEL),
        mode="enforce",
        grace_seconds=GRACE,
        history=warned(90, 90),
        now=at(120),
        exemption=exemption,
    )
    assert action == Action(
        kind=ActionKind.NOTHING,
        rule="idle-gpu",
        run=RUN,
        at=at(120),
        episode_since=START,
        reason=exemption,
    )


def test_unknown_mode_is_refused() -> None:
    """A mode nobody knows must not be taken for one that acts."""
    with pytest.raises(ValueError, match="modes are observe, warn, enforce"):
        act(verdict_at(120, State.CANCEL), mode="Enforce")


def test_x4_recheck_lets_an_idle_run_go_ahead() -> None:
    """X4: still idle on the newest readings: nothing stands in the way."""
    readings = watch(constant(0), 2 * HOUR + INTERVAL)
    decided = judge_idle(2 * HOUR, readings)
    assert recheck(decided, make_run(), judge_idle(2 * HOUR + INTERVAL, readings)) is None


def test_x4_run_that_turned_busy_is_spared() -> None:
    """X4: busy between decision and cancel: re-read, not cancelled."""
    decided = judge_idle(2 * HOUR, watch(constant(0), 2 * HOUR))
    turned = watch(lambda second: 0 if second < 2 * HOUR + 20 else 95, 2 * HOUR + INTERVAL)
    reason = recheck(decided, make_run(), judge_idle(2 * HOUR + INTERVAL, turned))
    assert reason is not None
    assert reason.text() == (
        "when looked at again: idle for 2 h 30 s, but gpu1:0 worked in the newest reading"
    )


def test_x4_requeued_or_ended_run_is_spared() -> None:
    """X4: the same job id on nodes again is another run; an ended or suspended one is none."""
    decided = judge_idle(2 * HOUR, watch(constant(0), 2 * HOUR))
    for run in (
        None,
        make_run(start=START + 2 * HOUR),
        make_run(state="COMPLETING"),
        make_run(state="SUSPENDED"),
    ):
        reason = recheck(decided, run, decided)
        assert reason is not None
        assert reason.template == "run-changed"


def test_x4_unknown_at_the_second_look_spares() -> None:
    """X4: readings that went stale in between are no evidence."""
    readings = watch(constant(0), 2 * HOUR)
    decided = judge_idle(2 * HOUR, readings)
    assert recheck(decided, make_run(), judge_idle(3 * HOUR, readings)) is not None
