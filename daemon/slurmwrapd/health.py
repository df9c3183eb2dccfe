"""Whether the service does its work: said by what succeeded last, not by hope."""

from __future__ import annotations

from slurmwrap.api import HealthAnswer, HealthCheck, Nothing
from slurmwrap.units import format_duration
from slurmwrapd.authority import Asker
from slurmwrapd.service import Service

_INTERVALS_LATE = 3
_SKEW_SECONDS = 10


def task_intervals(service: Service) -> dict[str, int]:
    """Every periodic task and its interval in seconds."""
    config = service.config
    return {
        "collect": config.collect.interval,
        "accounting": config.accounting.interval,
        "watch": config.rules.interval,
        "budgets": config.budgets.interval,
        "outbox": config.notify.interval,
    }


def assess_health(service: Service) -> HealthAnswer:
    """Everything that can be told without asking Slurm again.

    Ready means: every task has succeeded since the start, and within its last three intervals.
    """
    tasks = [_check_task(service, task, span) for task, span in task_intervals(service).items()]
    others = [*_check_agents(service), _check_outbox(service), _check_prices(service)]
    return HealthAnswer(ready=all(check.ok for check in tasks), checks=(*tasks, *others))


def answer_health(service: Service, asker: Asker, question: Nothing) -> HealthAnswer:
    """The health, with details for administrators."""
    health = assess_health(service)
    return health if asker.is_administrator else without_details(health)


def without_details(health: HealthAnswer) -> HealthAnswer:
    """For those who are not administrators: details can name users, targets and paths."""
    return HealthAnswer(
        ready=health.ready,
        checks=tuple(HealthCheck(name=item.name, ok=item.ok, detail="") for item in health.checks),
    )


def _check_task(service: Service, task: str, interval_seconds: int) -> HealthCheck:
    now = service.clock.now()
    health = service.store.health.tasks().get(task)
    success = health.last_success_at if health else None
    reference = max(success or 0, service.started_at)
    late = (
        now - reference > _INTERVALS_LATE * interval_seconds + service.config.slurm.command_timeout
    )
    failing = health is not None and health.failures_in_a_row >= _INTERVALS_LATE
    is_pending = task not in service.succeeded
    if success is None:
        words = "has not succeeded yet"
    else:
        words = f"succeeded {format_duration(max(0, now - success))} ago"
        words += ", not since the start" if is_pending else ""
    if health and health.failures_in_a_row:
        words += f"; failed {health.failures_in_a_row} times since: {health.last_error}"
    return HealthCheck(
        name=task,
        ok=not (late or failing or is_pending),
        detail=words,
        hint="" if not (late or failing) else "see the service's log",
    )


def _check_agents(service: Service) -> list[HealthCheck]:
    now = service.clock.now()
    limit = _INTERVALS_LATE * service.config.agents.interval
    agents = {row["node"]: row for row in service.store.readings.agents()}
    busy_nodes: dict[str, int] = {}
    for stored in service.store.runs.on_nodes():
        for card in stored.run.cards:
            busy_nodes.setdefault(card.card.node, stored.run.key.start)
    checks: list[HealthCheck] = []
    for node, since in sorted(busy_nodes.items()):
        row = agents.get(node)
        heard = row["last_message_at"] if row else None
        if now - max(heard or 0, since) > limit:
            words = "never" if heard is None else f"{format_duration(now - heard)} ago"
            checks.append(
                HealthCheck(
                    name=f"agent {node}",
                    ok=False,
                    detail=f"runs hold its cards, but its agent was heard {words}",
                    hint=f"start slurmwrapd-agent on {node}; is its NodeName {node}?",
                )
            )
    for node, row in agents.items():
        if row["error"]:
            checks.append(HealthCheck(name=f"agent {node}", ok=False, detail=row["error"]))
        if row["dropped_messages"]:
            checks.append(
                HealthCheck(
                    name=f"agent {node}",
                    ok=False,
                    detail=f"its spool had to drop {row['dropped_messages']} messages",
                    hint="raise agents.spool_messages",
                )
            )
    if not checks:
        newest = max((row["last_message_at"] for row in agents.values()), default=None)
        words = "none has spoken yet" if newest is None else f"{len(agents)} known, all heard"
        checks.append(HealthCheck(name="agents", ok=True, detail=words))
    return checks


def _check_outbox(service: Service) -> HealthCheck:
    waiting, since, error = service.store.ledger.undelivered()
    if not waiting or since is None:
        return HealthCheck(name="delivery", ok=True, detail="nothing waits")
    age = format_duration(service.clock.now() - since)
    return HealthCheck(
        name="delivery",
        ok=False,
        detail=f"{waiting} messages wait, the oldest for {age}: {error}",
        hint="without a delivered warning no job is cancelled; check notify.user_urls",
    )


def _check_prices(service: Service) -> HealthCheck:
    if service.prices is None:
        return HealthCheck(
            name="prices",
            ok=False,
            detail=f"there is no price file {service.config.billing.prices}",
            hint="everything is unpriced until there is one",
        )
    return HealthCheck(name="prices", ok=True, detail=service.config.billing.prices)
