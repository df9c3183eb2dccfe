"""Reasons that a person can read: a template id with its values, in English and Chinese."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from slurmwrap.model import Card
from slurmwrap.units import format_duration

Value = str | int | float | dict[str, str]

LANGUAGES = ("en", "zh")


class Reason(Struct, frozen=True, kw_only=True):
    """Why a rule says what it says. Plain values, so that it can be stored and told again.

    A value whose key ends in ``_seconds`` is shown as a duration, a float with one decimal, and
    a table (problem → cards) as a list.
    """

    template: str
    """Key of TEMPLATES; ``text`` shows the value ``text`` as it is, for rules of a site."""
    values: dict[str, Value] = {}

    def text(self, language: str = "en") -> str:
        """The sentence in ``en`` or ``zh``.

        Raises:
            KeyError: a language, template or value that does not exist.
        """
        shown = {key: _show(key, value, language) for key, value in self.values.items()}
        return TEMPLATES[language][self.template].format_map(shown)


TEMPLATES: dict[str, dict[str, str]] = {
    "en": {
        "text": "{text}",
        # idle-gpu
        "busy": "at work: {cards}, {threshold_percent} % or more in up to {busy_percent} % of the"
        " reads of the last {span_seconds}, mean {mean_percent} %",
        "idle": "idle for {held_seconds}: {cards} below {threshold_percent} % in"
        " {below_percent} % of the reads, mean {mean_percent} %, {coverage_percent} % of the"
        " time seen, up to {memory} of memory held",
        "idle-cards": "{count} of {total} cards idle for {held_seconds}: {cards} below"
        " {threshold_percent} % in {below_percent} % of the reads, mean {mean_percent} %,"
        " {coverage_percent} % of the time seen",
        "idle-just-busy": "idle for {held_seconds}, but {cards} worked in the newest reading",
        "no-cards": "the run holds no cards",
        "cards-unknown": "nothing can be said: slurmctld did not say which cards the run holds",
        "staging": "data is being staged; the clock stands still",
        "suspended": "suspended; the clock stands still",
        "unknown": "nothing can be said: {problems}",
        # plateau
        "no-watch": "no metric is watched",
        "bad-watch": "the declared watch can't be followed: {problem}",
        "no-evaluation": "no evaluation of {metric} yet",
        "improving": "{metric} is improving: best {best} at step {best_step}, the newest"
        " evaluation",
        "plateau": "{metric} has not improved on {best} (step {best_step}) for {count} evaluations"
        " (patience {patience}), last {last} at step {last_step}",
        "unheard": "nothing can be said: the run's nodes have not been heard for {silent_seconds}",
        # acting
        "run-changed": "the run is no longer on its nodes in the same form: {state}",
        "no-longer-holds": "when looked at again: {now}",
        "breaker": "{wanted} cancels wanted and {recent} done within {window_seconds}, of"
        " {running} jobs: more than {max_share_percent} %, so nothing is cancelled",
        "exempt": "exempt: {field} {value}",
        "het-job": "left alone: a part of heterogeneous job {job}, which can only end as a whole",
    },
    "zh": {
        "text": "{text}",
        "busy": "正在工作：{cards} 在最近 {span_seconds}内最多有 {busy_percent} % 的读数不低于"
        " {threshold_percent} %，平均 {mean_percent} %",
        "idle": "已空闲 {held_seconds}：{cards} 有 {below_percent} % 的读数低于"
        " {threshold_percent} %，平均 {mean_percent} %，观测覆盖 {coverage_percent} %，"
        "占用显存最多 {memory}",
        "idle-cards": "{total} 张卡中有 {count} 张已空闲 {held_seconds}：{cards} 有"
        " {below_percent} % 的读数低于 {threshold_percent} %，平均 {mean_percent} %，"
        "观测覆盖 {coverage_percent} %",
        "idle-just-busy": "已空闲 {held_seconds}，但最新读数中 {cards} 在工作",
        "no-cards": "该作业没有占用卡",
        "cards-unknown": "无法判断：slurmctld 没有说明该作业占用哪些卡",
        "staging": "正在搬运数据，计时暂停",
        "suspended": "作业已挂起，计时暂停",
        "unknown": "无法判断：{problems}",
        "no-watch": "没有声明要观察的指标",
        "bad-watch": "声明的观察指标无法使用：{problem}",
        "no-evaluation": "指标 {metric} 还没有评估结果",
        "improving": "指标 {metric} 仍在改善：最新一次评估（第 {best_step} 步）即最佳值 {best}",
        "plateau": "指标 {metric} 连续 {count} 次评估没有超过第 {best_step} 步的 {best}"
        "（允许 {patience} 次），最近一次为第 {last_step} 步的 {last}",
        "unheard": "无法判断：已有 {silent_seconds} 没有收到作业节点的消息",
        "run-changed": "作业已不是原来的运行状态：{state}",
        "no-longer-holds": "再次检查时：{now}",
        "breaker": "将取消 {wanted} 个作业，{window_seconds} 内已取消 {recent} 个，共"
        " {running} 个作业：超过 {max_share_percent} %，因此全部不取消",
        "exempt": "已豁免：{field} {value}",
        "het-job": "不予处理：属于异构作业 {job}，只能整体结束",
    },
}

_PROBLEMS: dict[str, dict[str, str]] = {
    "en": {
        "silent": "no fresh reading of {cards}",
        "not_supported": "the driver gives no utilisation for {cards}",
        "lost": "{cards} lost",
        "stale": "the readings of {cards} are stale",
        "no_answer": "the driver does not answer for {cards}",
        "no_permission": "the agent may not read {cards}",
        "misattributed": "a process of another job is on {cards}",
        "broken_counter": "the utilisation counter of {cards} is broken (0 % at high power)",
    },
    "zh": {
        "silent": "没有 {cards} 的新读数",
        "not_supported": "驱动不提供 {cards} 的利用率",
        "lost": "{cards} 掉卡",
        "stale": "{cards} 的读数已过期",
        "no_answer": "驱动对 {cards} 没有应答",
        "no_permission": "代理无权读取 {cards}",
        "misattributed": "{cards} 上有其他作业的进程",
        "broken_counter": "{cards} 的利用率计数器异常（高功率下显示 0 %）",
    },
}

_SEPARATORS = {"en": "; ", "zh": "；"}
_UNITS_ZH = (("天", 86400), ("小时", 3600), ("分钟", 60), ("秒", 1))


def format_cards(cards: Iterable[Card]) -> str:
    """Cards for people, grouped by node: ``gpu1:0-3, gpu2:0,2``."""
    indexes: dict[str, list[int]] = {}
    for card in sorted(set(cards)):
        indexes.setdefault(card.node, []).append(card.index)
    return ", ".join(f"{node}:{_ranges(numbers)}" for node, numbers in indexes.items())


def _ranges(numbers: list[int]) -> str:
    stretches: list[tuple[int, int]] = []
    for number in numbers:
        if stretches and number == stretches[-1][1] + 1:
            stretches[-1] = (stretches[-1][0], number)
        else:
            stretches.append((number, number))
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in stretches)


def _show(key: str, value: Value, language: str) -> str:
    if isinstance(value, Mapping):
        return _SEPARATORS[language].join(
            _PROBLEMS[language][problem].format(cards=cards) for problem, cards in value.items()
        )
    if isinstance(value, float):
        return f"{value:.1f}"
    if key.endswith("_seconds") and isinstance(value, int):
        return format_duration(value) if language == "en" else _duration_zh(value)
    return str(value)


def _duration_zh(seconds: int) -> str:
    """As format_duration: the two largest units."""
    words: list[str] = []
    rest = seconds
    for name, size in _UNITS_ZH:
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count} {name}")
    return " ".join(words[:2]) or "0 秒"
