"""The task that asks slurmctld which runs hold which cards."""

from __future__ import annotations

from slurmwrapd.service import Service


def collect(service: Service) -> str:
    """Take in one listing of the runs on nodes; says what was seen."""
    # Read before the listing: a run that it shows was there at this moment, or began later.
    now = service.clock.now()
    runs = service.live.list_runs()
    service.store.runs.record_seen(runs, now)
    cards = sum(len(run.cards) for run in runs)
    unknown = sum(not run.cards_known for run in runs)
    text = f"{len(runs)} runs on {cards} cards"
    return f"{text}, cards of {unknown} runs unknown" if unknown else text
