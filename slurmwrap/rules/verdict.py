"""What a rule says of a run: a state, how long it has held, and why."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from slurmwrap.model import Card, RunKey
from slurmwrap.rules.reasons import Reason


class State(StrEnum):
    """Where a run stands with a rule. Only the ladder decides what is done about it."""

    FINE = "fine"
    UNKNOWN = "unknown"
    """Evidence is missing, stale or contradicts itself: nothing may be done."""
    SUSPECT = "suspect"
    """The condition holds, but not long enough to warn."""
    WARN = "warn"
    CANCEL = "cancel"
    """The condition has held for as long as a cancel needs. The ladder still asks for a
    delivered warning."""


class Verdict(Struct, frozen=True, kw_only=True):
    """A rule's answer for one run at one moment. Times are UTC epoch seconds."""

    rule: str
    run: RunKey
    state: State
    reason: Reason
    at: int
    """When it was judged."""
    since: int | None = None
    """When the condition began; None when it does not hold or nothing is known. It stays the
    same while the condition goes on: it identifies the episode."""
    since_is_open: bool = False
    """The condition reaches back to the beginning of the readings that were handed in: it may
    have begun earlier."""
    held_seconds: int = 0
    """How long the condition has held, on the run's clock: staging and suspension left out."""
    cards: tuple[Card, ...] = ()
    """The cards that the reason is about."""
    unknown_seconds: int = 0
    """Time on the run's clock in which at least one card was not seen."""
    warn_at: int | None = None
    """When it will be, or was, time to warn if the condition goes on; None: not in sight."""
    cancel_at: int | None = None
    """The same for a cancel, before any wait for the warning's grace."""
