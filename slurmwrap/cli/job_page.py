"""How `slurmwrap status` shows jobs: one line each, or one of them on a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from slurmwrap.cli.terminal import Terminal, local_date_time, local_time
from slurmwrap.display import align_columns, cut_text, one_line, pad_text
from slurmwrap.units import card_hours, format_duration, format_size

if TYPE_CHECKING:
    from slurmwrap.api import CardStatus, JobStatus, RuleView
    from slurmwrap.model import Phase

BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN_BLOCKS = "_.-:=+*#"
UNKNOWN = "·"
PLAIN_UNKNOWN = "?"
NO_VALUE = "?"
MOST_GAPS = 5
MOST_METRIC_VALUES = 5
LABEL_WIDTH = 12


def render_list(jobs: Sequence[JobStatus], now: int, terminal: Terminal) -> list[str]:
    """One line per job, newest first as they came."""
    rows = [
        ["JOB", "NAME", "PARTITION", "STATE", "TIME", "CARDS", "USE", "CARD-H", "COST", "RULES"]
    ]
    for job in jobs:
        limit = _limit(job)
        rows.append(
            [
                job.action_id,
                one_line(job.name, 24),
                one_line(job.partition, 16),
                one_line(job.state, 16),
                f"{format_duration(_elapsed_seconds(job, now))} of {limit}",
                str(len(job.cards)),
                _percent(_mean(card.mean for card in job.cards)),
                f"{card_hours(job.card_seconds):.2f}",
                _cost(job),
                _summarise_rules(job, now) or one_line(job.end_reason, 200),
            ]
        )
    lines = align_columns(rows, right={5, 6, 7, 8})
    return [cut_text(line, terminal.columns) if terminal.columns else line for line in lines]


def render_page(job: JobStatus, now: int, terminal: Terminal) -> list[str]:
    """Everything that is known of one run."""
    lines = _header(job, now)
    if job.cards:
        lines += ["", *_card_table(job, now, terminal)]
    lines.append("")
    measured = f"{card_hours(job.measured_card_seconds):.2f} of them measured"
    lines.append(_labelled("used", f"{card_hours(job.card_seconds):.2f} card-hours, {measured}"))
    lines.append(_labelled("cost", f"{_cost(job)} so far" if job.ended_at is None else _cost(job)))
    lines += _several("gaps", _describe_gaps(job, now))
    lines += _several("phases", [_describe_phase(phase, now) for phase in job.phases])
    lines += _several("metrics", [_describe_metric(*item) for item in job.metrics.items()])
    lines += _several("rules", [line for view in job.rules for line in _describe_rule(view, now)])
    if job.end_reason:
        lines.append(_labelled("ended", one_line(job.end_reason, 500)))
    return lines


def plot(slots: Sequence[float | None], *, has_blocks: bool = True) -> str:
    """One mark per slot, higher for more; a slot that nobody measured is no zero."""
    marks, unknown = (BLOCKS, UNKNOWN) if has_blocks else (PLAIN_BLOCKS, PLAIN_UNKNOWN)
    return "".join(
        unknown if value is None else marks[max(0, min(len(marks) - 1, int(value * 8 / 100)))]
        for value in slots
    )


def _header(job: JobStatus, now: int) -> list[str]:
    name = f" ({one_line(job.name, 60)})" if job.name else ""
    rows = [
        f"Job {job.action_id}{name} is {one_line(job.state, 30)} on {_nodes(job)}",
        _labelled(
            "owner",
            f"{one_line(job.user, 40)}, account {one_line(job.account, 40)},"
            f" partition {one_line(job.partition, 40)}",
        ),
        _labelled("started", local_date_time(job.run.start)),
    ]
    if job.ended_at is not None:
        rows.append(_labelled("ended", local_date_time(job.ended_at)))
    elapsed = format_duration(_elapsed_seconds(job, now))
    rows.append(_labelled("time", f"{elapsed} of {_limit(job)}"))
    return rows


def _card_table(job: JobStatus, now: int, terminal: Terminal) -> list[str]:
    end = job.ended_at if job.ended_at is not None else now
    plots = [_slots_of_run(job, card, end) for card in job.cards]
    longest = max(len(slots) for slots in plots)
    span = format_duration(min(longest * job.recent_slot_seconds, end - job.run.start))
    rows = [["CARD", "TYPE", "MEAN", "NOW", f"LAST {span.upper()}", "MEMORY", "POWER"]]
    for card, slots in zip(job.cards, plots, strict=True):
        power = NO_VALUE if card.power_watts is None else f"{card.power_watts:.0f} W"
        rows.append(
            [
                f"{one_line(card.node, 40)}:{card.index}",
                one_line(card.gpu_type, 30) or "-",
                _percent(card.mean),
                _now(card, slots),
                pad_text(plot(slots, has_blocks=terminal.has_blocks), longest, right=True),
                _memory(card),
                power,
            ]
        )
    return [f"  {line}" for line in align_columns(rows, right={2, 3, 5, 6})]


def _slots_of_run(job: JobStatus, card: CardStatus, end: int) -> Sequence[float | None]:
    """The slots since the run's start: before it, nothing could be measured."""
    lived = max(1, -(-(end - job.run.start) // max(1, job.recent_slot_seconds)))
    slots = card.recent[-lived:]
    # The reading of the slot that has just begun is still on its way: that is no gap.
    is_on_its_way = job.ended_at is None and len(slots) > 1 and slots[-1] is None
    return slots[:-1] if is_on_its_way and slots[-2] is not None else slots


def _now(card: CardStatus, slots: Sequence[float | None]) -> str:
    if card.status not in ("", "ok"):
        return card.status.replace("_", " ")
    return _percent(slots[-1] if slots else None)


def _memory(card: CardStatus) -> str:
    if card.memory_used_bytes is None:
        return NO_VALUE
    if card.memory_total_bytes is None:
        return format_size(card.memory_used_bytes)
    return f"{format_size(card.memory_used_bytes)} of {format_size(card.memory_total_bytes)}"


def _describe_gaps(job: JobStatus, now: int) -> list[str]:
    shown = [
        f"{local_time(start, now)} to {local_time(end, now)}"
        f" ({format_duration(end - start)}): not every card was seen"
        for start, end in job.gaps[-MOST_GAPS:]
    ]
    hidden = len(job.gaps) - len(shown)
    return [f"{hidden} earlier ones", *shown] if hidden else shown


def _describe_phase(phase: Phase, now: int) -> str:
    node = f" on {one_line(phase.node, 40)}" if phase.node else ""
    detail = f": {one_line(phase.detail, 200)}" if phase.detail else ""
    if phase.ended_at is None:
        when = f"since {local_time(phase.started_at, now)}"
    else:
        when = f"for {format_duration(phase.ended_at - phase.started_at)}"
    return f"{one_line(phase.name, 40)}{node} {when}{detail}"


def _describe_metric(name: str, points: Sequence[tuple[int, float]]) -> str:
    ordered = sorted(points)
    step = ordered[-1][0]
    values = ", ".join(f"{value:.6g}" for _, value in ordered[-MOST_METRIC_VALUES:])
    return f"{one_line(name, 60)} {values} (step {step})"


def _describe_rule(view: RuleView, now: int) -> list[str]:
    """What a rule says of the run, and on a line of their own when it spoke and will act."""
    said = f"{one_line(view.rule, 40)} ({one_line(view.mode, 20)}): {one_line(view.text, 300)}"
    moments = _describe_moments(view, now)
    return [said, f"  {moments}"] if moments else [said]


def _describe_moments(view: RuleView, now: int) -> str:
    words = []
    if view.warned_at is not None:
        words.append(f"warned at {local_time(view.warned_at, now)}")
    if view.cancel_at is not None:
        verb = "will be cancelled" if view.mode == "enforce" else "would be cancelled"
        words.append(f"{verb} at {local_time(view.cancel_at, now)}")
    return "; ".join(words)


def _summarise_rules(job: JobStatus, now: int) -> str:
    """The rules that have warned or are about to act, in a few words."""
    spoken = [(one_line(view.rule, 40), _describe_moments(view, now)) for view in job.rules]
    return "; ".join(f"{rule}: {moments}" for rule, moments in spoken if moments)


def _several(label: str, texts: Iterable[str]) -> list[str]:
    """A label before the first of several lines."""
    return [_labelled(label if number == 0 else "", text) for number, text in enumerate(texts)]


def _labelled(label: str, text: str) -> str:
    return f"  {pad_text(label, LABEL_WIDTH)}{text}"


def _elapsed_seconds(job: JobStatus, now: int) -> int:
    return max(0, (job.ended_at if job.ended_at is not None else now) - job.run.start)


def _nodes(job: JobStatus) -> str:
    return one_line(", ".join(job.nodes), 200) or "-"


def _limit(job: JobStatus) -> str:
    if job.time_limit_seconds is None:
        return "unlimited"
    return format_duration(job.time_limit_seconds)


def _cost(job: JobStatus) -> str:
    return "no price" if job.cost is None else f"{job.cost} {one_line(job.currency, 10)}"


def _percent(value: float | None) -> str:
    return NO_VALUE if value is None else f"{value:.0f} %"


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
