"""The evidence contract: what counts, what restarts the clock, and when it stands still."""

from __future__ import annotations

import msgspec
import pytest
from rule_scene import (
    CARD,
    HOUR,
    INTERVAL,
    MINUTE,
    START,
    bad_reading,
    busy_until,
    constant,
    evidence_at,
    first_moment,
    judge_idle,
    make_run,
    watch,
    without,
)

from slurmwrap.model import Card, Phase, ReadStatus
from slurmwrap.rules import State, readings_start
from slurmwrap.rules.evidence import RunClock, merge_stretches, silent_seconds

IDLE = watch(constant(0), 6 * HOUR)
EIGHT = tuple(Card("gpu1", index) for index in range(8))


def staging(started_at: int, ended_at: int | None, node: str = "gpu1") -> Phase:
    return Phase(
        name="staging",
        node=node,
        started_at=START + started_at,
        ended_at=None if ended_at is None else START + ended_at,
    )


def test_v2_time_that_nobody_watched_restarts_the_clock() -> None:
    """V2: 50 min unseen inside the window: 2 h begin anew where readings come again."""
    readings = without(IDLE, 60 * MINUTE, 110 * MINUTE)
    assert first_moment(State.CANCEL, readings, 6 * HOUR, step=MINUTE) == 110 * MINUTE + 2 * HOUR
    after = judge_idle(115 * MINUTE, readings)
    assert (after.state, after.since) == (State.SUSPECT, START + 110 * MINUTE)
    assert after.unknown_seconds == 50 * MINUTE


def test_v2_nothing_is_known_while_nobody_watches() -> None:
    """V2, R5: once the newest reading is older than 3 intervals the run is unknown."""
    readings = watch(constant(0), 3 * HOUR)
    assert judge_idle(3 * HOUR + 90, readings).state is State.CANCEL
    verdict = judge_idle(3 * HOUR + 91, readings)
    assert verdict.state is State.UNKNOWN
    assert verdict.reason.text() == "nothing can be said: no fresh reading of gpu1:0"
    assert verdict.unknown_seconds == 91


def test_hole_of_three_intervals_does_not_restart() -> None:
    """Three intervals unseen are bridged; one second more restarts the clock."""
    bridged = without(IDLE, 60 * MINUTE, 60 * MINUTE + 3 * INTERVAL)
    assert judge_idle(2 * HOUR, bridged).state is State.CANCEL
    wider = without(IDLE, 60 * MINUTE, 60 * MINUTE + 4 * INTERVAL)
    verdict = judge_idle(2 * HOUR, wider)
    assert (verdict.state, verdict.since) == (State.SUSPECT, START + 62 * MINUTE)


@pytest.mark.parametrize(("keep_of", "caught"), [(8, False), (13, True)])
def test_coverage_below_ninety_percent_is_never_enough(keep_of: int, caught: bool) -> None:
    """Every 8th reading missing (87.5 % seen): never; every 13th (92.3 %): after 2 h."""
    readings = [item for number, item in enumerate(IDLE) if number % keep_of != keep_of - 1]
    moment = first_moment(State.CANCEL, readings, 6 * HOUR, step=5 * MINUTE)
    assert moment == (2 * HOUR if caught else None)


def test_overdue_reading_counts_as_missing() -> None:
    """With 12 min of a window missing, one more reading that does not come is too much."""
    readings = IDLE
    for hole in range(8):
        begin = (20 + 10 * hole) * MINUTE
        readings = without(readings, begin, begin + 3 * INTERVAL)
    # 8 holes of 90 s are 12 min, exactly a tenth of 2 h.
    assert judge_idle(2 * HOUR, readings).state is State.CANCEL
    late = without(readings, 2 * HOUR, 3 * HOUR)
    assert judge_idle(2 * HOUR + INTERVAL, late).state is State.CANCEL
    assert judge_idle(2 * HOUR + INTERVAL + 1, late).state is State.SUSPECT


def test_run_whose_cards_slurmctld_did_not_name_is_unknown() -> None:
    """An allocation that could not be read is not a run without cards."""
    run = make_run([], cards_known=False)
    assert judge_idle(2 * HOUR, IDLE, run).state is State.UNKNOWN


def test_v3_eight_cards_are_one_time() -> None:
    """V3: one tick of eight cards after a restart is half a minute, not four."""
    readings = [
        reading
        for card in EIGHT
        for reading in watch(constant(0), 3 * HOUR, card=card, begin=3 * HOUR - INTERVAL)
    ]
    verdict = judge_idle(3 * HOUR, readings, make_run(EIGHT))
    assert (verdict.state, verdict.held_seconds) == (State.SUSPECT, INTERVAL)
    # And what was not seen is counted once, too.
    assert verdict.unknown_seconds == 3 * HOUR - INTERVAL


def test_same_reading_many_times_counts_once() -> None:
    """V3: a reading that was sent again changes nothing."""
    once = judge_idle(80 * MINUTE, IDLE)
    assert judge_idle(80 * MINUTE, IDLE * 3) == once


def test_overlapping_readings_count_time_once() -> None:
    """A restarted agent's readings may overlap the former's: the time is counted once."""
    shifted = [
        msgspec.structs.replace(item, started_at=item.started_at + 7, ended_at=item.ended_at + 7)
        for item in IDLE
    ]
    assert judge_idle(119 * MINUTE, IDLE + shifted).held_seconds <= 119 * MINUTE


@pytest.mark.parametrize(
    "status",
    [
        ReadStatus.NOT_SUPPORTED,
        ReadStatus.LOST,
        ReadStatus.STALE,
        ReadStatus.NO_ANSWER,
        ReadStatus.NO_PERMISSION,
    ],
)
def test_r1_r2_r3_r5_unreadable_is_unknown_not_zero(status: ReadStatus) -> None:
    """R1, R2, R3, R5: MIG without a counter, lost cards, dead drivers, repeated values."""
    readings = [bad_reading(CARD, START + at, status) for at in range(0, 4 * HOUR, INTERVAL)]
    verdict = judge_idle(4 * HOUR, readings)
    assert verdict.state is State.UNKNOWN
    assert verdict.unknown_seconds == 4 * HOUR


@pytest.mark.parametrize("others", [0, 90])
def test_r2_one_lost_card_of_eight(others: int) -> None:
    """R2: the eighth is lost, seven go on: the run is unknown, and the lost card is named."""
    readings = [r for card in EIGHT[:7] for r in watch(constant(others), 3 * HOUR, card=card)]
    readings += watch(constant(0), HOUR, card=EIGHT[7])
    readings += [
        bad_reading(EIGHT[7], START + at, ReadStatus.LOST) for at in range(HOUR, 3 * HOUR, INTERVAL)
    ]
    verdict = judge_idle(3 * HOUR, readings, make_run(EIGHT))
    assert (verdict.state, verdict.cards) == (State.UNKNOWN, (EIGHT[7],))
    assert verdict.unknown_seconds == 2 * HOUR


def test_r5_last_value_repeated_goes_stale() -> None:
    """R5: a dead exporter's last reading, handed in again and again, gets old."""
    readings = [*watch(constant(0), HOUR), *[IDLE[HOUR // INTERVAL - 1]] * 500]
    assert judge_idle(3 * HOUR, readings).state is State.UNKNOWN


def test_reading_without_a_single_good_read_is_unknown() -> None:
    """A status of ok with nothing read proves nothing."""
    readings = [
        msgspec.structs.replace(item, reads=0, utilisation_mean=None, histogram=None)
        for item in IDLE
    ]
    assert judge_idle(3 * HOUR, readings).state is State.UNKNOWN


def test_a8_silence_of_one_node_makes_the_run_unknown() -> None:
    """A8: both nodes count; 2 h of idleness on one node and silence on the other: unknown."""
    cards = (Card("gpu1", 0), Card("gpu2", 3))
    run = make_run(cards)
    both = [r for card in cards for r in watch(constant(0), 2 * HOUR, card=card)]
    assert judge_idle(2 * HOUR, both, run).state is State.CANCEL
    verdict = judge_idle(2 * HOUR, watch(constant(0), 2 * HOUR, card=cards[0]), run)
    assert (verdict.state, verdict.cards) == (State.UNKNOWN, cards[1:])
    busy = watch(constant(0), 2 * HOUR, card=cards[0])
    busy += watch(constant(80), 2 * HOUR, card=cards[1])
    assert judge_idle(2 * HOUR, busy, run).state is State.FINE


def test_a7_readings_of_cards_that_the_run_does_not_hold_are_ignored() -> None:
    """A7: the neighbour's busy card does not keep an idle run alive, nor the other way round."""
    neighbour = watch(constant(95), 2 * HOUR, card=Card("gpu1", 1))
    assert judge_idle(2 * HOUR, IDLE + neighbour).state is State.CANCEL
    mine = watch(constant(95), 2 * HOUR)
    idle_neighbour = watch(constant(0), 2 * HOUR, card=Card("gpu1", 1))
    assert judge_idle(2 * HOUR, mine + idle_neighbour).state is State.FINE


def test_v5_requeued_run_starts_over() -> None:
    """V5: the same job id with a new start: what was seen before belongs to the earlier run."""
    later = make_run(start=START + 110 * MINUTE)
    verdict = judge_idle(2 * HOUR, IDLE, later)
    assert (verdict.state, verdict.held_seconds) == (State.SUSPECT, 10 * MINUTE)
    assert first_moment(State.CANCEL, IDLE, 6 * HOUR, run=later, step=MINUTE) == 230 * MINUTE


def test_reading_across_the_start_is_left_out() -> None:
    """A reading that began before the run may hold the former owner's work, or idleness."""
    later = make_run(start=START + 10)
    verdict = judge_idle(10 * MINUTE, IDLE, later)
    assert (verdict.since, verdict.unknown_seconds) == (START + INTERVAL, 0)


def test_readings_from_the_future_do_not_count() -> None:
    """A clock that is ahead, or a tick in the past of a replay: only up to now."""
    assert judge_idle(80 * MINUTE, IDLE).held_seconds == 80 * MINUTE


def test_v4_declared_staging_stops_the_clock() -> None:
    """V4: 45 min of staging, then idle: the clock starts when the data is there."""
    phases = (staging(0, 45 * MINUTE),)
    assert judge_idle(40 * MINUTE, IDLE, phases=(staging(0, None),)).reason.template == "staging"
    moment = first_moment(State.CANCEL, IDLE, 6 * HOUR, step=MINUTE, phases=phases)
    assert moment == 45 * MINUTE + 2 * HOUR
    assert judge_idle(80 * MINUTE, IDLE, phases=phases).held_seconds == 35 * MINUTE


@pytest.mark.parametrize("phases", [(staging(0, None),), (staging(0, 5 * HOUR),)])
def test_v4_staging_for_ever_is_capped(phases: tuple[Phase, ...]) -> None:
    """V4: however long a job says that it stages, the clock starts after an hour."""
    moment = first_moment(State.CANCEL, IDLE, 6 * HOUR, step=MINUTE, phases=phases)
    assert moment == 3 * HOUR


def test_staging_on_any_node_stops_the_clock() -> None:
    """Two nodes that stage one after the other: both times are left out, overlaps once."""
    phases = (staging(0, 20 * MINUTE, "gpu1"), staging(10 * MINUTE, 30 * MINUTE, "gpu2"))
    verdict = judge_idle(60 * MINUTE, IDLE, phases=phases)
    assert verdict.held_seconds == 30 * MINUTE


def test_phases_of_other_names_do_not_stop_the_clock() -> None:
    """Only staging is left out, whatever else a supervisor publishes."""
    phases = (msgspec.structs.replace(staging(0, None), name="running"),)
    assert judge_idle(2 * HOUR, IDLE, phases=phases).state is State.CANCEL


def test_v6_suspension_neither_counts_nor_breaks() -> None:
    """V6: idle 1 h, suspended 5 h, idle again: caught after one more hour."""
    readings = watch(constant(0), 9 * HOUR)
    suspended = ((START + HOUR, START + 6 * HOUR),)
    run = make_run(suspended_seconds=5 * HOUR)
    moment = first_moment(
        State.CANCEL, readings, 9 * HOUR, run=run, step=MINUTE, suspensions=suspended
    )
    assert moment == 7 * HOUR
    verdict = judge_idle(7 * HOUR, readings, run, suspensions=suspended)
    assert (verdict.since, verdict.held_seconds) == (START, 2 * HOUR)


def test_v6_nothing_is_cancelled_while_suspended() -> None:
    """V6: the clock stands still in a suspension, readings of that time or not."""
    run = make_run(state="SUSPENDED")
    for readings in (IDLE, watch(constant(0), HOUR)):
        verdict = judge_idle(6 * HOUR, readings, run, suspensions=((START + HOUR, None),))
        assert (verdict.state, verdict.reason.template) == (State.FINE, "suspended")


def test_v6_no_readings_while_suspended_is_no_hole() -> None:
    """V6: an agent that sends nothing of a suspended job does not restart the clock."""
    readings = without(watch(constant(0), 9 * HOUR), HOUR, 6 * HOUR)
    suspended = ((START + HOUR, START + 6 * HOUR),)
    verdict = judge_idle(7 * HOUR, readings, suspensions=suspended)
    assert (verdict.state, verdict.unknown_seconds) == (State.CANCEL, 0)


def test_unaligned_suspension_does_not_break() -> None:
    """V6: readings cut by the edges of a suspension are left out; the rest is bridged."""
    readings = watch(constant(0), 9 * HOUR)
    suspended = ((START + HOUR + 11, START + 6 * HOUR + 17),)
    verdict = judge_idle(7 * HOUR + 10, readings, suspensions=suspended)
    assert verdict.since == START


def test_run_clock_stands_still_in_stops() -> None:
    """Staging 0 to 10 min and suspension 20 to 30 min: 40 min later the clock shows 20."""
    evidence = evidence_at(
        40 * MINUTE,
        [],
        phases=(staging(-60, 10 * MINUTE),),
        suspensions=((START + 20 * MINUTE, START + 30 * MINUTE),),
    )
    clock = RunClock(evidence, HOUR)
    shown = [clock.at(START + minutes * MINUTE) // MINUTE for minutes in (0, 5, 10, 15, 25, 30, 40)]
    assert shown == [0, 0, 0, 5, 10, 10, 20]
    assert clock.place(START + 12 * MINUTE, START + 14 * MINUTE) == (2 * MINUTE, 4 * MINUTE)
    assert clock.place(START + 19 * MINUTE, START + 21 * MINUTE) is None


def test_merge_stretches() -> None:
    """Overlapping and open stretches are joined and clipped."""
    assert merge_stretches([(5, 9), (0, 3), (8, None), (3, 4)], 1, 20) == [(1, 4), (5, 20)]


def test_readings_start_steps_over_suspensions() -> None:
    """To see 2 h of the clock behind 5 h of suspension, 7 h of readings are needed."""
    run = make_run()
    now = START + 20 * HOUR
    assert readings_start(run, now, 2 * HOUR) == now - 2 * HOUR
    stopped = ((now - 6 * HOUR, now - HOUR),)
    assert readings_start(run, now, 2 * HOUR, stopped) == now - 7 * HOUR
    assert readings_start(run, now, 40 * HOUR) == START
    assert readings_start(run, now, HOUR, ((now - 3 * HOUR, None),)) == now - 4 * HOUR


def test_begin_out_of_sight_is_told() -> None:
    """When only the newest hours were fetched, an idleness as old as they are may be older."""
    fetched = without(watch(constant(0), 9 * HOUR), 0, 6 * HOUR)
    verdict = judge_idle(9 * HOUR, fetched, readings_from=START + 6 * HOUR)
    assert (verdict.state, verdict.since_is_open) == (State.CANCEL, True)
    assert verdict.unknown_seconds == 0
    seen = judge_idle(
        9 * HOUR,
        without(watch(busy_until(390 * MINUTE), 9 * HOUR), 0, 6 * HOUR),
        readings_from=START + 6 * HOUR,
    )
    assert (seen.since, seen.since_is_open) == (START + 390 * MINUTE, False)


def test_silent_seconds_hears_any_card_and_any_status() -> None:
    """A lost card still shows that its node talks."""
    run = make_run(EIGHT)
    readings = [bad_reading(EIGHT[2], START + 100, ReadStatus.LOST)]
    assert silent_seconds(evidence_at(200, readings, run)) == 70
    assert silent_seconds(evidence_at(200, [], run)) == 200
