"""How a verdict is told to the job's owner: in words, with the moments beside them."""

from __future__ import annotations

from msgspec import Struct

from slurmwrap.rules.ladder import History, find_warnings
from slurmwrap.rules.reasons import Reason
from slurmwrap.rules.verdict import State, Verdict


class View(Struct, frozen=True, kw_only=True):
    """A rule's view of a run; the fields of slurmwrap.api.RuleView."""

    rule: str
    mode: str
    text: str
    """Without moments: those are shown in the reader's zone."""
    warned_at: int | None = None
    """When the warning was delivered."""
    cancel_at: int | None = None
    """When the run would be cancelled if it goes on like this; None: it would not be."""


_NOTES = {
    "en": {
        "observe": "only observed",
        "pending": "a warning is on its way",
    },
    "zh": {
        "observe": "仅观察",
        "pending": "警告正在送达",
    },
}
_LINKS = {"en": "; ", "zh": "；"}


def describe(
    verdict: Verdict,
    *,
    mode: str,
    grace_seconds: int,
    history: History,
    exemption: Reason | None = None,
    language: str = "en",
) -> View:
    """The view of a run that `slurmwrap status` shows."""
    warned = find_warnings(verdict, history, observed=False)
    delivered = [item.delivered_at for item in warned if item.delivered_at is not None]
    warned_at = min(delivered, default=None)
    notes: list[str] = []
    if exemption is not None:
        notes.append(exemption.text(language))
    elif verdict.since is not None:
        if mode == "observe":
            notes.append(_NOTES[language]["observe"])
        if warned and warned_at is None:
            notes.append(_NOTES[language]["pending"])
    cancel_at = None
    if mode == "enforce" and exemption is None:
        cancel_at = _cancel_moment(verdict, warned_at, grace_seconds)
    return View(
        rule=verdict.rule,
        mode=mode,
        text=_LINKS[language].join([verdict.reason.text(language), *notes]),
        warned_at=warned_at,
        cancel_at=cancel_at,
    )


def _cancel_moment(verdict: Verdict, warned_at: int | None, grace_seconds: int) -> int | None:
    """The earliest moment at which rule and ladder would both agree to a cancel."""
    if verdict.cancel_at is None or verdict.state in (State.FINE, State.UNKNOWN):
        return None
    told_at = warned_at
    if told_at is None:
        # Not warned yet: at best that happens, and is delivered, as soon as it is due.
        told_at = max(verdict.at, verdict.warn_at if verdict.warn_at is not None else verdict.at)
    return max(verdict.cancel_at, told_at + grace_seconds)
