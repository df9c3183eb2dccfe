"""The task that judges every run by the rules, warns, and cancels what was warned in vain."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass

from slurmwrap.errors import PartialResultError, SlurmwrapError
from slurmwrap.model import RunKey
from slurmwrap.notify.messages import write_admin_alarm, write_cancellation, write_warning
from slurmwrap.rules.breaker import check_breaker
from slurmwrap.rules.ladder import ActionKind, recheck
from slurmwrap.rules.ruleset import Judgement, judge
from slurmwrap.slurm.control import CancelOutcome
from slurmwrap.store.ledger import Entry, Message
from slurmwrap.store.runs import StoredRun
from slurmwrapd.evidence import gather_evidence, gather_history
from slurmwrapd.service import Service

log = logging.getLogger("slurmwrapd")

_LISTINGS_LATE = 3


@dataclass(frozen=True)
class _Judged:
    stored: StoredRun
    judgement: Judgement


def watch(service: Service) -> str:
    """Judge every run on nodes and act; says how many warnings and cancels there were.

    Raises:
        PartialResultError: some runs could not be judged; the others were, and acted on.
    """
    now = service.clock.now()
    settle_cancels(service)
    judged: list[_Judged] = []
    failed: list[str] = []
    for stored in service.store.runs.on_nodes():
        run = stored.run
        if run.state != "RUNNING" or not run.cards or not _is_listed(service, stored, now):
            continue
        try:
            judged += [_Judged(stored, item) for item in judge_run(service, stored, now)]
        except Exception:
            # A rule, perhaps the site's own, that stumbles over one run must not blind the others.
            log.exception("job %s could not be judged", run.action_id)
            failed.append(run.action_id)
    counts: Counter[str] = Counter()
    cancels: list[_Judged] = []
    for item in judged:
        if item.judgement.action.kind is ActionKind.CANCEL:
            cancels.append(item)
        else:
            counts.update(_note(service, item))
    counts.update(_carry_out(service, cancels))
    seen = len({item.stored.id for item in judged})
    words = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()) if count)
    words = f"{seen} runs judged" + (f", {words}" if words else "")
    if failed:
        raise PartialResultError(
            f"{len(failed)} runs could not be judged, job {', '.join(failed[:10])} among them;"
            f" {words}",
            hint="the log says in which rule",
        )
    return words


def judge_run(service: Service, stored: StoredRun, now: int) -> tuple[Judgement, ...]:
    """What every rule makes of a run at ``now``."""
    history = gather_history(service, stored)
    evidence = gather_evidence(service, stored, history, now)
    return judge(service.rules, evidence, history, service.config.notify.language)


def settle_cancels(service: Service) -> None:
    """Finish what a kill between a cancel and its record left open.

    A decided cancel without an outcome, whose run has left the nodes, was carried out or
    overtaken by the run's own end: its owner is owed the message either way.
    """
    since = service.clock.now() - 7 * 86400
    settled = {entry.detail["decision"] for entry in service.store.ledger.of_kind("cancel", since)}
    for entry in service.store.ledger.of_kind("cancel_decision", since):
        if entry.id in settled or entry.run_id is None:
            continue
        stored = service.store.runs.get(entry.run_id)
        if stored is not None and stored.ended_at is not None:
            _record_cancel(service, stored, entry, outcome="left_nodes", at=stored.ended_at)


def _is_listed(service: Service, stored: StoredRun, now: int) -> bool:
    """Whether slurmctld has shown the run lately: what it does not show is not acted on."""
    return now - stored.last_seen_at <= _LISTINGS_LATE * service.config.collect.interval


def _note(service: Service, item: _Judged) -> list[str]:
    """Record a warning (with the message it owes) or what observe mode would have done."""
    action, run = item.judgement.action, item.stored.run
    kinds = {
        ActionKind.WARN: "warning",
        ActionKind.WOULD_WARN: "would_warn",
        ActionKind.WOULD_CANCEL: "would_cancel",
    }
    kind = kinds.get(action.kind)
    if kind is None:
        return []
    config = service.config
    reason = action.reason.text(config.notify.language)
    messages: list[Message] = []
    if kind == "warning":
        text = write_warning(
            run,
            rule=action.rule,
            reason=reason,
            cancel_at=item.judgement.view.cancel_at,
            language=config.notify.language,
            timezone=config.billing.timezone,
        )
        messages.append(
            Message(role="user", recipient=run.user, subject=text.subject, body=text.body)
        )
    is_new = service.store.ledger.add(
        at=action.at,
        kind=kind,
        dedupe_key=_key(kind, item),
        reason=reason,
        run_id=item.stored.id,
        rule=action.rule,
        detail={
            "episode_since": action.episode_since,
            "cancel_at": item.judgement.view.cancel_at,
            "values": action.reason.values,
        },
        messages=messages,
    )
    if is_new:
        log.info("%s job %s (%s): %s", kind, run.action_id, action.rule, reason)
    return [kind] if is_new else []


def _carry_out(service: Service, cancels: list[_Judged]) -> list[str]:
    if not cancels or _is_broken(service, cancels):
        return []
    done: list[str] = []
    for item in cancels:
        try:
            done.append(_cancel(service, item))
        except SlurmwrapError as error:
            # One failing cancel does not stop the others; it is tried again next time.
            log.error("job %s could not be cancelled: %s", item.stored.run.action_id, error)
            _record_failure(service, item, str(error))
            done.append("cancels failed")
    return done


def _cancel(service: Service, item: _Judged) -> str:
    """Look again, record the decision, leave the reason with Slurm, and only then cancel."""
    decided = item.judgement.verdict
    current_run = service.control.current(item.stored.run)
    now = service.clock.now()
    again = next(
        judgement.verdict
        for judgement in judge_run(service, item.stored, now)
        if judgement.verdict.rule == decided.rule
    )
    objection = recheck(decided, current_run, again)
    if objection is not None or current_run is None:
        words = objection.text(service.config.notify.language) if objection else "gone"
        log.info("job %s is spared: %s", item.stored.run.action_id, words)
        return "spared"
    action = item.judgement.action
    reason = action.reason.text(service.config.notify.language)
    key = _key("cancel_decision", item)
    service.store.ledger.add(
        at=now,
        kind="cancel_decision",
        dedupe_key=key,
        reason=reason,
        run_id=item.stored.id,
        rule=action.rule,
        detail={"episode_since": action.episode_since, "values": action.reason.values},
    )
    entry = next(
        entry
        for entry in service.store.ledger.of_run(item.stored.id)
        if entry.kind == "cancel_decision"
        and entry.rule == action.rule
        and entry.detail.get("episode_since") == action.episode_since
    )
    service.control.set_admin_comment(current_run, f"{action.rule}: {reason}")
    outcome = service.control.cancel(current_run)
    _record_cancel(service, item.stored, entry, outcome=outcome.value, at=service.clock.now())
    log.info("cancelled job %s (%s): %s", current_run.action_id, action.rule, reason)
    return "cancelled" if outcome is CancelOutcome.CANCELLED else "already ended"


def _record_cancel(
    service: Service, stored: StoredRun, decision: Entry, *, outcome: str, at: int
) -> None:
    """Record what became of a decided cancel, with the message to the owner."""
    warned = [
        entry.delivered_at
        for entry in service.store.ledger.of_run(stored.id)
        if entry.kind == "warning" and entry.rule == decision.rule and entry.delivered_at
    ]
    messages: list[Message] = []
    if outcome != CancelOutcome.NOT_RUNNING:
        text = write_cancellation(
            stored.run,
            rule=decision.rule,
            reason=decision.reason,
            cancelled_at=at,
            warned_at=max(warned, default=None),
            language=service.config.notify.language,
            timezone=service.config.billing.timezone,
        )
        messages.append(
            Message(role="user", recipient=stored.run.user, subject=text.subject, body=text.body)
        )
    service.store.ledger.add(
        at=at,
        kind="cancel",
        dedupe_key=f"cancel:{decision.id}",
        reason=decision.reason,
        run_id=stored.id,
        rule=decision.rule,
        detail={"decision": decision.id, "outcome": outcome},
        messages=messages,
    )


def _record_failure(service: Service, item: _Judged, error: str) -> None:
    now = service.clock.now()
    service.store.ledger.add(
        at=now,
        kind="cancel_failure",
        dedupe_key=f"{_key('cancel_failure', item)}:{now}",
        reason=error,
        run_id=item.stored.id,
        rule=item.judgement.action.rule,
    )


def _is_broken(service: Service, cancels: list[_Judged]) -> bool:
    """Whether so many jobs would be cancelled that it is more likely our mistake."""
    now = service.clock.now()
    running = {stored.run.key for stored in service.store.runs.on_nodes()}
    window = service.rules.breaker.window
    recent: list[tuple[RunKey, int]] = []
    for entry in service.store.ledger.of_kind("cancel", now - window):
        stored = service.store.runs.get(entry.run_id) if entry.run_id is not None else None
        if stored is not None:
            recent.append((stored.run.key, entry.at))
    reason = check_breaker(
        service.rules.breaker,
        running=running,
        wanted={item.stored.run.key for item in cancels},
        recent=recent,
        now=now,
    )
    if reason is None:
        return False
    words = reason.text(service.config.notify.language)
    log.error("circuit breaker: %s", words)
    alarm(service, what="circuit breaker", detail=words, dedupe_key=f"breaker:{now // window}")
    return True


def alarm(service: Service, *, what: str, detail: str, dedupe_key: str) -> None:
    """Tell administrators, once per key."""
    now = service.clock.now()
    text = write_admin_alarm(
        what=what,
        detail=detail,
        at=now,
        cluster=service.commands.cluster_name(),
        language=service.config.notify.language,
        timezone=service.config.billing.timezone,
    )
    service.store.ledger.add(
        at=now,
        kind="alarm",
        dedupe_key=f"alarm:{dedupe_key}",
        reason=detail,
        messages=[Message(role="admin", recipient="", subject=text.subject, body=text.body)],
    )


def _key(kind: str, item: _Judged) -> str:
    action = item.judgement.action
    return f"{kind}:{item.stored.id}:{action.rule}:{action.episode_since}"
