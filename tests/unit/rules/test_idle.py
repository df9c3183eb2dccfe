"""The rule idle-gpu at work: what it catches, when, and what it leaves alone."""

from __future__ import annotations

import dataclasses
import re

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
    first_moment,
    judge_idle,
    make_reading,
    make_run,
    watch,
)

from slurmwrap.model import Card, ReadStatus
from slurmwrap.rules import Evidence, State
from slurmwrap.rules.idle import IdleGpu, IdleSettings

ANY = IdleSettings(scope="any")


@pytest.mark.parametrize(
    ("minutes", "state"),
    [(30, "suspect"), (89, "suspect"), (90, "warn"), (119, "warn"), (120, "cancel")],
)
def test_never_used_card_goes_up_the_ladder(minutes: int, state: str) -> None:
    """A card that was never used: warned of at 90 min, to be cancelled at 2 h."""
    verdict = judge_idle(minutes * MINUTE, watch(constant(0), 2 * HOUR))
    assert verdict.state == state
    assert verdict.since == START
    assert verdict.held_seconds == minutes * MINUTE
    assert verdict.warn_at == START + 90 * MINUTE
    assert verdict.cancel_at == START + 2 * HOUR


def test_v1_caught_two_hours_after_it_stopped() -> None:
    """V1: 10 min busy, then idle: 2 h after it stopped, not 2 h after it started."""
    readings = watch(busy_until(10 * MINUTE), 4 * HOUR)
    assert first_moment(State.WARN, readings, 4 * HOUR) == 10 * MINUTE + 90 * MINUTE
    assert first_moment(State.CANCEL, readings, 4 * HOUR) == 10 * MINUTE + 2 * HOUR
    assert judge_idle(3 * HOUR, readings).since == START + 10 * MINUTE


def test_v1_still_caught_after_forty_hours() -> None:
    """V1: 40 h later the begin of the idleness is still the same."""
    verdict = judge_idle(40 * HOUR, watch(busy_until(10 * MINUTE), 40 * HOUR))
    assert (verdict.state, verdict.since) == (State.CANCEL, START + 10 * MINUTE)


@pytest.mark.parametrize("busy_every", [3, 2])
def test_v7_data_bound_training_is_not_idle(busy_every: int) -> None:
    """V7: mean 8 % with a tenth of the reads above 30 %: not idle, for hours."""
    # 10 s in 100 at 62 %, else 2 %: mean 8 %. Every few bursts come together.
    period = 100 * busy_every

    def level(second: int) -> int:
        return 62 if second % period < 10 * busy_every else 2

    readings = watch(level, 8 * HOUR)
    assert first_moment(State.WARN, readings, 8 * HOUR, step=10 * MINUTE) is None
    verdict = judge_idle(8 * HOUR, readings)
    assert verdict.state in (State.FINE, State.SUSPECT)


def test_data_bound_training_that_stops_gets_its_two_hours() -> None:
    """V1, V7: work now and then before it stopped does not shorten the window by much.

    One second in ten busy is within the share of no window, so idleness begins where it stops.
    """
    readings = watch(lambda second: 62 if second < HOUR and second % 10 == 0 else 2, 4 * HOUR)
    assert first_moment(State.CANCEL, readings, 4 * HOUR) == 3 * HOUR


def test_few_stray_reads_do_not_save_a_run() -> None:
    """Up to 5 % of the reads may be busy: a heartbeat of 3 % is idleness."""
    readings = watch(lambda second: 100 if second % 100 in (40, 41, 42) else 0, 3 * HOUR)
    caught = first_moment(State.CANCEL, readings, 3 * HOUR)
    # The first beat, 40 s after the start, moves the begin behind it at most.
    assert caught is not None
    assert 2 * HOUR <= caught <= 2 * HOUR + 3 * MINUTE


def test_mean_must_be_below_the_threshold_too() -> None:
    """95 % of the reads at 29 % and 5 % at 100 %: below in share, mean 32.6 %: not idle."""
    readings = watch(lambda second: 100 if second % 20 == 19 else 29, 3 * HOUR)
    assert first_moment(State.WARN, readings, 3 * HOUR, step=5 * MINUTE) is None


def test_threshold_itself_is_busy() -> None:
    """Idle means below 30 %: constant 30 % is work, constant 29 % is not."""
    assert judge_idle(2 * HOUR, watch(constant(30), 2 * HOUR)).state is State.FINE
    assert judge_idle(2 * HOUR, watch(constant(29), 2 * HOUR)).state is State.CANCEL


def test_v4_slow_start_is_not_cancelled() -> None:
    """V4: 45 min of loading a model without any staging phase, then busy."""
    readings = watch(lambda second: 0 if second < 45 * MINUTE else 90, 4 * HOUR)
    assert first_moment(State.WARN, readings, 4 * HOUR, step=MINUTE) is None
    verdict = judge_idle(4 * HOUR, readings)
    assert verdict.state is State.FINE
    assert "at work: gpu1:0" in verdict.reason.text()


EIGHT = tuple(Card("gpu1", index) for index in range(8))


def test_v8_one_busy_card_keeps_the_run_alive() -> None:
    """V8: 8 cards, one busy, scope all: alive."""
    readings = [
        reading
        for card in EIGHT
        for reading in watch(constant(90 if card.index == 3 else 0), 3 * HOUR, card=card)
    ]
    verdict = judge_idle(3 * HOUR, readings, make_run(EIGHT))
    assert verdict.state is State.FINE
    assert verdict.cards == (Card("gpu1", 3),)


def test_v8_scope_any_warns_and_names_the_seven() -> None:
    """V8: scope any: a warning that names the seven idle cards, never a cancel."""
    readings = [
        reading
        for card in EIGHT
        for reading in watch(constant(90 if card.index == 3 else 0), 9 * HOUR, card=card)
    ]
    verdict = judge_idle(9 * HOUR, readings, make_run(EIGHT), ANY)
    assert verdict.state is State.WARN
    assert verdict.cards == tuple(card for card in EIGHT if card.index != 3)
    assert "7 of 8 cards idle for 9 h: gpu1:0-2,4-7 below 30 %" in verdict.reason.text()
    assert verdict.cancel_at is None


def test_scope_any_does_not_cancel_even_when_all_are_idle() -> None:
    """Scope any never does more than warn."""
    assert judge_idle(5 * HOUR, watch(constant(0), 5 * HOUR), None, ANY).state is State.WARN


def test_scope_any_waits_for_one_card_to_be_idle_long_enough() -> None:
    """Cards idle for different times: the one that is due is named, not the other."""
    two = EIGHT[:2]
    readings = watch(constant(0), 2 * HOUR, card=two[0])
    readings += watch(busy_until(HOUR), 2 * HOUR, card=two[1])
    verdict = judge_idle(2 * HOUR, readings, make_run(two), ANY)
    assert (verdict.state, verdict.cards) == (State.WARN, two[:1])
    earlier = judge_idle(80 * MINUTE, readings, make_run(two), ANY)
    assert (earlier.state, earlier.warn_at) == (State.SUSPECT, START + 90 * MINUTE)


def test_idleness_of_a_run_begins_when_its_last_card_stopped() -> None:
    """Scope all: the time counts in which all cards are idle together."""
    two = EIGHT[:2]
    readings = watch(constant(0), 4 * HOUR, card=two[0])
    readings += watch(busy_until(HOUR), 4 * HOUR, card=two[1])
    run = make_run(two)
    assert first_moment(State.CANCEL, readings, 4 * HOUR, run=run, step=MINUTE) == 3 * HOUR
    assert judge_idle(2 * HOUR, readings, run).since == START + HOUR


def test_cards_that_take_turns_are_not_idle() -> None:
    """One card busy in even hours, the other in odd ones: the run always works."""
    two = EIGHT[:2]
    readings = watch(lambda s: 90 if s // HOUR % 2 == 0 else 0, 6 * HOUR, card=two[0])
    readings += watch(lambda s: 90 if s // HOUR % 2 == 1 else 0, 6 * HOUR, card=two[1])
    run = make_run(two)
    assert first_moment(State.WARN, readings, 6 * HOUR, run=run, step=5 * MINUTE) is None


def test_a10_only_the_idle_array_task_is_caught() -> None:
    """A10: tasks of one array on one node, only task 2 idle."""
    states = {}
    for task in range(4):
        card = Card("gpu1", task)
        run = make_run([card], array_job_id=40, array_task_id=task)
        verdict = judge_idle(
            2 * HOUR, watch(constant(0 if task == 2 else 80), 2 * HOUR, card=card), run
        )
        states[run.action_id] = verdict.state
    assert states == {
        "40_0": State.FINE,
        "40_1": State.FINE,
        "40_2": State.CANCEL,
        "40_3": State.FINE,
    }


@pytest.mark.parametrize("name", ["interactive", "debug-x", "idle-ok", "a'; echo x", "测试"])
def test_x6_names_never_exempt(name: str) -> None:
    """X6: whatever a job is called, it is judged alike."""
    readings = watch(constant(0), 2 * HOUR)
    assert judge_idle(2 * HOUR, readings, make_run(name=name)).state is State.CANCEL


def test_run_without_cards_is_fine() -> None:
    """A CPU job holds no cards that could be idle."""
    verdict = judge_idle(9 * HOUR, [], make_run([]))
    assert (verdict.state, verdict.reason.text()) == (State.FINE, "the run holds no cards")


def test_card_that_worked_in_the_newest_reading_is_not_cancelled() -> None:
    """X4: a run that has just begun to work is warned at most, until the next readings tell."""
    readings = watch(constant(0), 2 * HOUR - INTERVAL)
    readings.append(make_reading(CARD, START + 2 * HOUR - INTERVAL, [0] * 20 + [95] * 10))
    verdict = judge_idle(2 * HOUR, readings)
    assert verdict.state is State.WARN
    assert verdict.reason.text() == "idle for 2 h, but gpu1:0 worked in the newest reading"


def test_r7_zero_percent_at_high_power_is_a_broken_counter() -> None:
    """R7: constant 0 % at 300 W and 70 GB: unknown with the reason, never idle."""
    readings = [
        msgspec.structs.replace(reading, power_mean_watts=300.0, memory_used_bytes=70 * 10**9)
        for reading in watch(constant(0), 3 * HOUR)
    ]
    verdict = judge_idle(3 * HOUR, readings)
    assert verdict.state is State.UNKNOWN
    assert "utilisation counter of gpu1:0 is broken (0 % at high power)" in verdict.reason.text()
    assert verdict.unknown_seconds == 3 * HOUR


def test_power_that_is_not_known_proves_nothing() -> None:
    """R7: without a power reading the utilisation is believed."""
    readings = [
        msgspec.structs.replace(reading, power_mean_watts=None)
        for reading in watch(constant(0), 2 * HOUR)
    ]
    assert judge_idle(2 * HOUR, readings).state is State.CANCEL


def test_v9_full_memory_does_not_hide_idleness() -> None:
    """V9: an inference server with full memory at 1 % is warned of, and the memory is told."""
    readings = [
        msgspec.structs.replace(reading, memory_used_bytes=79 * 2**30)
        for reading in watch(constant(1), 2 * HOUR)
    ]
    verdict = judge_idle(100 * MINUTE, readings)
    assert verdict.state is State.WARN
    assert "79.0 GiB of memory" in verdict.reason.text()


def test_reading_without_histogram_uses_its_maximum() -> None:
    """A source without a histogram: a reading is idle only when its maximum is."""
    readings = watch(constant(0), 2 * HOUR)
    quiet = [msgspec.structs.replace(reading, histogram=None) for reading in readings]
    assert judge_idle(2 * HOUR, quiet).state is State.CANCEL
    peaks = [msgspec.structs.replace(reading, utilisation_max=60) for reading in quiet]
    assert judge_idle(2 * HOUR, peaks).state is State.FINE
    single = [msgspec.structs.replace(reading, utilisation_max=None, reads=1) for reading in quiet]
    assert judge_idle(2 * HOUR, single).state is State.CANCEL


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threshold_percent": 33}, "edge of the utilisation histogram (1, 5, 10, 15, 20, 25, 30"),
        ({"threshold_percent": 0}, "edge of the utilisation histogram"),
        ({"share_below": 1.5}, "share_below"),
        ({"warn_after": 7200}, "warn_after (2 h) must be shorter than window (2 h)"),
        ({"grace": 3600}, "grace (1 h) must fit between warn_after (1 h 30 min) and window (2 h)"),
        ({"broken_counter_watts": 0}, "broken_counter_watts"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: dict[str, int], message: str) -> None:
    """A threshold that no histogram can answer, or a ladder out of order, is refused."""
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(IdleSettings(), **changes)  # type: ignore[arg-type]


def test_short_windows_work_by_settings_alone() -> None:
    """A demonstration shortens the window to 40 s and the interval with it; nothing else."""
    settings = IdleSettings(window=40, warn_after=20, grace=10)  # type: ignore[arg-type]
    readings = [
        make_reading(CARD, START + second, [0, 0], START + second + 2) for second in range(0, 60, 2)
    ]
    states = {}
    for seconds in (18, 20, 38, 40):
        evidence = Evidence(
            run=make_run(), now=START + seconds, interval_seconds=2, readings={CARD: readings}
        )
        states[seconds] = IdleGpu().evaluate(settings, evidence).state
    assert states == {
        18: State.SUSPECT,
        20: State.WARN,
        38: State.WARN,
        40: State.CANCEL,
    }


def test_unreadable_cards_are_told_by_what_is_wrong() -> None:
    """R1, R2: the reason groups the cards by their problem, in both languages."""
    three = EIGHT[:3]
    readings = watch(constant(0), 2 * HOUR, card=three[0])
    for card, status in ((three[1], ReadStatus.LOST), (three[2], ReadStatus.NOT_SUPPORTED)):
        readings += [bad_reading(card, START + at, status) for at in range(0, 2 * HOUR, INTERVAL)]
    verdict = judge_idle(2 * HOUR, readings, make_run(three))
    assert verdict.state is State.UNKNOWN
    assert verdict.cards == three[1:]
    assert verdict.reason.text() == (
        "nothing can be said: gpu1:1 lost; the driver gives no utilisation for gpu1:2"
    )
    assert verdict.reason.text("zh") == "无法判断：gpu1:1 掉卡；驱动不提供 gpu1:2 的利用率"
