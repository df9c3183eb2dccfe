"""The rule idle-gpu: cards that a run holds and does not use."""

from __future__ import annotations

from dataclasses import dataclass

from slurmwrap.model import UTILISATION_EDGES, Card, CardReading
from slurmwrap.rules.evidence import (
    CardObservation,
    Evidence,
    RunClock,
    count_unknown_seconds,
    find_read_fault,
    observe_card,
)
from slurmwrap.rules.idleness import (
    IdleCondition,
    Tally,
    Track,
    find_counter_fault,
    is_open,
    tally_newest,
    track_idleness,
)
from slurmwrap.rules.ladder import MODES
from slurmwrap.rules.reasons import Reason, Value, format_cards
from slurmwrap.rules.verdict import State, Verdict
from slurmwrap.setting import Duration, setting
from slurmwrap.units import format_duration, format_size

RULE_ID = "idle-gpu"


@dataclass(frozen=True)
class IdleSettings:
    """When a run counts as idle, and what follows."""

    mode: str = setting("observe", "How far the rule may go.", choices=MODES)
    threshold_percent: int = setting(
        30, "Reads below this utilisation are idle ones; an edge of the histogram."
    )
    share_below: float = setting(
        0.95, "Share of each card's reads in the window that must be below the threshold."
    )
    window: Duration = setting(Duration(7200), "Idle for this long: cancel.")
    warn_after: Duration = setting(Duration(5400), "Idle for this long: warn.")
    grace: Duration = setting(
        Duration(1800), "Shortest time between a delivered warning and the cancel."
    )
    scope: str = setting(
        "all",
        "all: every card must be idle; any: one idle card is enough for a warning, and nothing"
        " is ever cancelled.",
        choices=("all", "any"),
    )
    staging_cap: Duration = setting(
        Duration(3600), "Time from the run's start within which declared staging stops the clock."
    )
    broken_counter_watts: int = setting(
        200, "A card that shows 0 % at this power or more has a broken counter: unknown."
    )

    def __post_init__(self) -> None:
        edges = UTILISATION_EDGES[1:]
        if self.threshold_percent not in edges:
            raise ValueError(
                f"threshold_percent must be an edge of the utilisation histogram"
                f" ({', '.join(map(str, edges))}), not {self.threshold_percent}"
            )
        if not 0.5 < self.share_below <= 1:
            raise ValueError(f"share_below is above 0.5 and at most 1, not {self.share_below}")
        if self.warn_after >= self.window:
            raise ValueError(
                f"warn_after ({format_duration(self.warn_after)}) must be shorter than window"
                f" ({format_duration(self.window)})"
            )
        if self.warn_after + self.grace > self.window:
            raise ValueError(
                f"grace ({format_duration(self.grace)}) must fit between warn_after"
                f" ({format_duration(self.warn_after)}) and window"
                f" ({format_duration(self.window)})"
            )
        if self.broken_counter_watts < 1:
            raise ValueError(f"broken_counter_watts is at least 1, not {self.broken_counter_watts}")

    @property
    def condition(self) -> IdleCondition:
        return IdleCondition(
            threshold_percent=self.threshold_percent,
            share_below=self.share_below,
            window_seconds=self.window,
        )


class IdleGpu:
    """Every card below the threshold for a whole window, by the evidence contract."""

    id = RULE_ID
    settings_type = IdleSettings

    def reach_seconds(self, settings: IdleSettings) -> int:
        # Half a window more than judged, so that a late warning still meets its own episode.
        return settings.window + settings.window // 2

    def evaluate(self, settings: IdleSettings, evidence: Evidence) -> Verdict:
        cards = [allocation.card for allocation in evidence.run.cards]
        if not evidence.run.cards_known:
            return _plain(evidence, State.UNKNOWN, Reason(template="cards-unknown"))
        if not cards:
            return _plain(evidence, State.FINE, Reason(template="no-cards"))

        def find_fault(reading: CardReading) -> str | None:
            return find_read_fault(reading) or find_counter_fault(
                reading, settings.broken_counter_watts
            )

        clock = RunClock(evidence, settings.staging_cap)
        observations = [observe_card(evidence, clock, card, find_fault) for card in cards]
        unknown_seconds = count_unknown_seconds(observations)
        if clock.is_suspended or clock.is_staging:
            reason = Reason(template="suspended" if clock.is_suspended else "staging")
            return _plain(evidence, State.FINE, reason, unknown_seconds)
        unseen = [item for item in observations if item.problem is not None]
        tracks = [
            track_idleness(item, settings.condition, evidence.interval_seconds)
            for item in observations
            if item.problem is None
        ]
        if settings.scope == "any":
            idle = _judge_any(settings, evidence, tracks, unknown_seconds)
            if idle is not None:
                return idle
        if unseen:
            silent = tuple(item.card for item in unseen)
            return _plain(evidence, State.UNKNOWN, _reason_unknown(unseen), unknown_seconds, silent)
        if settings.scope == "all":
            idle = _judge_all(settings, evidence, tracks, unknown_seconds)
            if idle is not None:
                return idle
        reason, busy = _reason_busy(tracks, settings)
        return _plain(evidence, State.FINE, reason, unknown_seconds, busy)


def _plain(
    evidence: Evidence,
    state: State,
    reason: Reason,
    unknown_seconds: int = 0,
    cards: tuple[Card, ...] = (),
) -> Verdict:
    return Verdict(
        rule=RULE_ID,
        run=evidence.run.key,
        state=state,
        reason=reason,
        at=evidence.now,
        cards=cards,
        unknown_seconds=unknown_seconds,
    )


def _judge_all(
    settings: IdleSettings, evidence: Evidence, tracks: list[Track], unknown_seconds: int
) -> Verdict | None:
    """The verdict when every card is idle now, by the time for which all of them have been."""
    condition = settings.condition
    held = min(track.end for track in tracks) - max(track.begin for track in tracks)
    if held <= 0:
        return None
    tallies = [tally_newest(track, min(held, settings.window)) for track in tracks]
    if not all(tally.is_idle(condition) for tally in tallies):
        return None
    state = State.SUSPECT
    if held >= settings.window:
        state = State.CANCEL if all(item.proves_idle(condition) for item in tallies) else state
    elif held >= settings.warn_after:
        warning = (tally_newest(track, settings.warn_after) for track in tracks)
        state = State.WARN if all(item.proves_idle(condition) for item in warning) else state
    cards = tuple(track.card for track in tracks)
    reason = Reason(template="idle", values=_describe(settings, held, cards, tallies))
    awake = [track.card for track in tracks if track.shares[-1] > 1 - settings.share_below]
    if state is State.CANCEL and awake:
        # It may just have begun to work: the next readings will tell.
        state = State.WARN
        values: dict[str, Value] = {"held_seconds": held, "cards": format_cards(awake)}
        reason = Reason(template="idle-just-busy", values=values)
    newest = min(track.samples[-1].reading.ended_at for track in tracks)
    return Verdict(
        rule=RULE_ID,
        run=evidence.run.key,
        state=state,
        reason=reason,
        at=evidence.now,
        since=max(track.since for track in tracks),
        since_is_open=all(is_open(track, evidence) for track in tracks),
        held_seconds=held,
        cards=cards,
        unknown_seconds=unknown_seconds,
        warn_at=newest + settings.warn_after - held,
        cancel_at=newest + settings.window - held,
    )


def _judge_any(
    settings: IdleSettings, evidence: Evidence, tracks: list[Track], unknown_seconds: int
) -> Verdict | None:
    """The verdict about the cards that are idle, if any is; never more than a warning."""

    condition = settings.condition
    warned = [
        track
        for track in tracks
        if track.held >= settings.warn_after
        and tally_newest(track, settings.warn_after).proves_idle(condition)
    ]
    idle = warned or [
        track
        for track in tracks
        if track.held > 0
        and tally_newest(track, min(track.held, settings.window)).is_idle(condition)
    ]
    if not idle:
        return None
    longest = max(idle, key=lambda track: track.held)
    cards = tuple(track.card for track in idle)
    tallies = [tally_newest(track, min(track.held, settings.window)) for track in idle]
    values = _describe(settings, longest.held, cards, tallies)
    values |= {"count": len(cards), "total": len(evidence.run.cards)}
    return Verdict(
        rule=RULE_ID,
        run=evidence.run.key,
        state=State.WARN if warned else State.SUSPECT,
        reason=Reason(template="idle-cards", values=values),
        at=evidence.now,
        since=longest.since,
        since_is_open=is_open(longest, evidence),
        held_seconds=longest.held,
        cards=cards,
        unknown_seconds=unknown_seconds,
        warn_at=longest.samples[-1].reading.ended_at + settings.warn_after - longest.held,
    )


def _describe(
    settings: IdleSettings, held: int, cards: tuple[Card, ...], tallies: list[Tally]
) -> dict[str, Value]:
    memories = [tally.memory_bytes for tally in tallies if tally.memory_bytes is not None]
    return {
        "held_seconds": held,
        "cards": format_cards(cards),
        "threshold_percent": settings.threshold_percent,
        "below_percent": min(tally.below_share for tally in tallies) * 100,
        "mean_percent": max(tally.mean_percent for tally in tallies),
        "coverage_percent": min(tally.coverage for tally in tallies) * 100,
        "memory": format_size(max(memories)) if memories else "?",
    }


def _reason_unknown(unseen: list[CardObservation]) -> Reason:
    problems: dict[str, list[Card]] = {}
    for item in unseen:
        problems.setdefault(item.problem or "silent", []).append(item.card)
    shown = {problem: format_cards(cards) for problem, cards in sorted(problems.items())}
    return Reason(template="unknown", values={"problems": shown})


def _reason_busy(tracks: list[Track], settings: IdleSettings) -> tuple[Reason, tuple[Card, ...]]:
    """The cards that keep the run alive, with the figures of the busiest."""
    tallies = {
        track.card: tally_newest(track, min(settings.window, track.end - track.samples[0].start))
        for track in tracks
    }
    condition = settings.condition
    busy = [card for card, tally in tallies.items() if not tally.is_idle(condition)]
    named = tuple(busy or tallies)
    busiest = min((tallies[card] for card in named), key=lambda tally: tally.below_share)
    values: dict[str, Value] = {
        "cards": format_cards(named),
        "threshold_percent": settings.threshold_percent,
        "busy_percent": (1 - busiest.below_share) * 100,
        "mean_percent": busiest.mean_percent,
        "span_seconds": busiest.span_seconds,
    }
    return Reason(template="busy", values=values), named
