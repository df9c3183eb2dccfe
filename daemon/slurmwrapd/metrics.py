"""/metrics: the service's own condition in Prometheus' format, without a label per job."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from slurmwrapd.health import assess_health
from slurmwrapd.service import Service


def render_metrics(service: Service) -> tuple[bytes, str]:
    """The exposition text and its content type."""
    registry = CollectorRegistry()
    health = assess_health(service)
    runs = service.store.runs.on_nodes()
    _gauge(registry, "slurmwrapd_ready", "1 when every task succeeded lately", int(health.ready))
    _gauge(registry, "slurmwrapd_runs", "Runs on nodes at the last listing", len(runs))
    _gauge(
        registry,
        "slurmwrapd_cards_held",
        "Cards held by them",
        sum(len(stored.run.cards) for stored in runs),
    )
    waiting, _, _ = service.store.ledger.undelivered()
    _gauge(registry, "slurmwrapd_outbox_waiting", "Messages no channel has accepted", waiting)
    success = Gauge(
        "slurmwrapd_task_last_success_seconds",
        "UTC epoch seconds of a task's last success",
        ["task"],
        registry=registry,
    )
    for task in service.store.health.tasks().values():
        if task.last_success_at is not None:
            success.labels(task.task).set(task.last_success_at)
    heard = Gauge(
        "slurmwrapd_agent_last_message_seconds",
        "UTC epoch seconds of a node agent's last message",
        ["node"],
        registry=registry,
    )
    for row in service.store.readings.agents():
        heard.labels(row["node"]).set(row["last_message_at"])
    registry.register(_Refused(service.refusals.counts()))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Refused(Collector):
    """Requests and connections that were refused, by cause."""

    def __init__(self, refused: dict[str, int]) -> None:
        self._refused = refused

    def collect(self) -> list[CounterMetricFamily]:
        family = CounterMetricFamily(
            "slurmwrapd_requests_refused", "Requests refused, by cause", labels=["cause"]
        )
        for cause, count in self._refused.items():
            family.add_metric([cause], count)
        return [family]


def _gauge(registry: CollectorRegistry, name: str, meaning: str, value: float) -> None:
    Gauge(name, meaning, registry=registry).set(value)
