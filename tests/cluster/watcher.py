"""The service's tasks, called one by one on a real Slurm with a clock that the test sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurmwrap.clock import SteppedClock
from slurmwrap.config import load_config
from slurmwrap.model import UTILISATION_EDGES, Card, CardReading, ReadStatus, RunKey
from slurmwrap.store.ledger import Entry
from slurmwrap.store.runs import StoredRun
from slurmwrapd.collect import collect
from slurmwrapd.outbox import deliver_owed
from slurmwrapd.service import Service
from slurmwrapd.watch import watch
from testbed.cluster import Testbed
from testbed.site import Site

INTERVAL = 30
# As shipped, but allowed to act: warn at 90 min, cancel at 2 h, 30 min after a delivered warning.
SHIPPED_WINDOWS = {
    "idle-gpu": {"mode": "enforce", "window": "2h", "warn_after": "90min", "grace": "30min"}
}


@dataclass
class Watcher:
    """One service in this process. Readings are made up; jobs, cancels and mails are real."""

    testbed: Testbed
    site: Site
    service: Service
    clock: SteppedClock

    @classmethod
    def prepare(
        cls,
        testbed: Testbed,
        name: str,
        *,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        rules: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Watcher:
        site = Site.prepare(
            testbed,
            name=name,
            settings={"agents": {"interval": "30s"}, **(settings or {})},
            rules=rules or SHIPPED_WINDOWS,
        )
        clock = SteppedClock(0)
        return cls(testbed, site, Service.start(load_config(site.config_file).config, clock), clock)

    def close(self) -> None:
        self.service.store.close()
        self.site.stop()

    def see(self, job: int, task: int | None = None) -> StoredRun:
        """Take in a listing and return the job's run."""
        self.testbed.wait_for(
            lambda: self.testbed.job_state(job if task is None else f"{job}_{task}") == "RUNNING",
            30,
            f"job {job} runs",
        )
        collect(self.service)
        return self.service.store.runs.of_job(job, task)[0]

    def at(self, moment: int) -> str:
        """Move the clock, list the runs, judge, and deliver: one tick. What watch said."""
        self.clock.set(moment)
        collect(self.service)
        words = watch(self.service)
        deliver_owed(self.service)
        return words

    def feed(self, stored: StoredRun, start: int, end: int, utilisation: int) -> None:
        """Readings of all the run's cards over ``[start, end)``, as its agents would send them."""
        self.feed_cards([item.card for item in stored.run.cards], start, end, utilisation)

    def feed_cards(self, cards: list[Card], start: int, end: int, utilisation: int) -> None:
        readings = [
            make_reading(card, moment, utilisation)
            for card in cards
            for moment in range(start, end - INTERVAL + 1, INTERVAL)
        ]
        self.service.store.readings.add(readings, end)

    def entries(self, stored: StoredRun, kind: str) -> list[Entry]:
        return [
            entry for entry in self.service.store.ledger.of_run(stored.id) if entry.kind == kind
        ]

    def state(self, job: int | str) -> str:
        return self.testbed.job_state(job)


def make_reading(card: Card, start: int, utilisation: int) -> CardReading:
    """Thirty reads of one value."""
    histogram = [0] * (len(UTILISATION_EDGES) - 1)
    last = len(histogram) - 1
    bin_of = max(i for i, edge in enumerate(UTILISATION_EDGES[:-1]) if utilisation >= edge)
    histogram[min(bin_of, last)] = INTERVAL
    return CardReading(
        node=card.node,
        index=card.index,
        started_at=start,
        ended_at=start + INTERVAL,
        status=ReadStatus.OK,
        reads=INTERVAL,
        utilisation_mean=float(utilisation),
        utilisation_max=utilisation,
        histogram=tuple(histogram),
        memory_used_bytes=500 * 2**20,
        memory_total_bytes=80 * 2**30,
        power_mean_watts=60.0 + utilisation * 3,
        power_max_watts=60.0 + utilisation * 3,
    )


def key_of(stored: StoredRun) -> RunKey:
    return stored.run.key
