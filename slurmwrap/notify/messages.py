"""What warnings, cancellations, budget alerts and alarms say, in English and Chinese."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from msgspec import Struct

from slurmwrap.display import one_line
from slurmwrap.model import JobRun


class Message(Struct, frozen=True):
    """One message before it has a target."""

    subject: str
    """One line."""
    body: str
    """Plain text, lines ended by a newline."""


class BudgetFacts(Struct, frozen=True, kw_only=True):
    """What a budget alert tells. Amounts are decimal text in ``unit``."""

    account: str
    user: str
    period: str
    """``2026-11``, ``2026-Q4`` or ``2026``."""
    unit: str
    limit: str
    settled: str
    in_flight: str
    committed: str
    left: str
    used_percent: float
    threshold: int


_WORDS = {
    "en": {
        "job": "Job",
        "user": "User",
        "account": "Account",
        "partition": "Partition",
        "nodes": "Nodes",
        "cards": "Cards",
        "rule": "Rule",
        "why": "Why",
        "warning_subject": "Job {job} ({name}) will be cancelled unless it changes",
        "notice_subject": "About job {job} ({name})",
        "warning_cancel": "It will be cancelled at {when} unless this changes.",
        "warning_watch": "Nothing will be done to it; this is for your information.",
        "warning_help": "See `slurmwrap status {job}`. If the job is right as it is, ask your"
        " administrator for an exemption.",
        "cancelled_subject": "Job {job} ({name}) was cancelled",
        "cancelled_at": "It was cancelled at {when}.",
        "cancelled_warned": "A warning had been delivered at {when}.",
        "cancelled_help": "Its card-hours end there. `slurmwrap status {job}` shows what was"
        " measured.",
        "budget_subject": "{percent} % of the budget of {who} is used ({period})",
        "limit": "Limit",
        "settled": "Used, settled",
        "in_flight": "Used, still running",
        "committed": "Time limits still to come",
        "left": "Left",
        "used": "Used",
        "alarm_subject": "slurmwrapd: {what}",
        "seen": "Seen",
        "cluster": "Cluster",
    },
    "zh": {
        "job": "作业",
        "user": "用户",
        "account": "账户",
        "partition": "分区",
        "nodes": "节点",
        "cards": "卡数",
        "rule": "规则",
        "why": "原因",
        "warning_subject": "作业 {job}（{name}）如无改变将被取消",
        "notice_subject": "关于作业 {job}（{name}）",
        "warning_cancel": "若情况没有改变，作业将于 {when} 被取消。",
        "warning_watch": "不会对作业做任何处理，仅供参考。",
        "warning_help": "详情请运行 `slurmwrap status {job}`。"
        "如作业确需如此运行，请向管理员申请豁免。",
        "cancelled_subject": "作业 {job}（{name}）已被取消",
        "cancelled_at": "取消时间：{when}。",
        "cancelled_warned": "此前已于 {when} 送达警告。",
        "cancelled_help": "卡时计到取消时为止。测量记录请运行 `slurmwrap status {job}` 查看。",
        "budget_subject": "{who} 的预算已使用 {percent} %（{period}）",
        "limit": "额度",
        "settled": "已用（已结算）",
        "in_flight": "已用（运行中）",
        "committed": "运行中作业的剩余时限",
        "left": "剩余",
        "used": "使用比例",
        "alarm_subject": "slurmwrapd：{what}",
        "seen": "时间",
        "cluster": "集群",
    },
}


def write_warning(
    run: JobRun, *, rule: str, reason: str, cancel_at: int | None, language: str, timezone: str
) -> Message:
    """To a job's owner: what a rule sees, and when it would act (None: never)."""
    words = _WORDS[language]
    if cancel_at is None:
        subject, outlook = words["notice_subject"], words["warning_watch"]
    else:
        subject = words["warning_subject"]
        outlook = words["warning_cancel"].format(when=format_moment(cancel_at, timezone))
    return Message(
        subject=_about_job(subject, run),
        body=_paragraphs(
            one_line(reason, width=500) + "\n" + outlook,
            _describe_run(run, rule, words),
            _about_job(words["warning_help"], run),
        ),
    )


def write_cancellation(
    run: JobRun,
    *,
    rule: str,
    reason: str,
    cancelled_at: int,
    warned_at: int | None,
    language: str,
    timezone: str,
) -> Message:
    """To a job's owner: that a rule has cancelled the job, why, and when it was announced."""
    words = _WORDS[language]
    lines = [
        one_line(reason, width=500),
        words["cancelled_at"].format(when=format_moment(cancelled_at, timezone)),
    ]
    if warned_at is not None:
        lines.append(words["cancelled_warned"].format(when=format_moment(warned_at, timezone)))
    return Message(
        subject=_about_job(words["cancelled_subject"], run),
        body=_paragraphs(
            "\n".join(lines),
            _describe_run(run, rule, words),
            _about_job(words["cancelled_help"], run),
        ),
    )


def write_budget_alert(budget: BudgetFacts, *, language: str) -> Message:
    """To those who answer for an account: that a share of its budget is used."""
    words = _WORDS[language]
    who = "/".join(one_line(name) for name in (budget.account, budget.user) if name)
    unit = one_line(budget.unit)
    rows = [
        (words[key], f"{value} {unit}")
        for key, value in (
            ("limit", budget.limit),
            ("settled", budget.settled),
            ("in_flight", budget.in_flight),
            ("committed", budget.committed),
            ("left", budget.left),
        )
    ]
    rows.append((words["used"], f"{budget.used_percent:.1f} %"))
    return Message(
        subject=words["budget_subject"].format(
            percent=budget.threshold, who=who, period=one_line(budget.period)
        ),
        body=_paragraphs(_table(rows)),
    )


def write_admin_alarm(
    *, what: str, detail: str, at: int, cluster: str, language: str, timezone: str
) -> Message:
    """To administrators: something that stops evidence or accounting from being right."""
    words = _WORDS[language]
    lines = [one_line(line, width=1000) for line in detail.splitlines()]
    return Message(
        subject=words["alarm_subject"].format(what=one_line(what)),
        body=_paragraphs(
            "\n".join(lines),
            _table(
                [
                    (words["cluster"], one_line(cluster)),
                    (words["seen"], format_moment(at, timezone)),
                ]
            ),
        ),
    )


def format_moment(at: int, timezone: str) -> str:
    """A moment for people with its offset: ``2026-11-30 18:05:09 +0800``."""
    return datetime.fromtimestamp(at, ZoneInfo(timezone)).strftime("%Y-%m-%d %H:%M:%S %z")


def _describe_run(run: JobRun, rule: str, words: dict[str, str]) -> str:
    return _table(
        [
            (words["job"], f"{run.action_id} ({one_line(run.name)})"),
            (words["cluster"], one_line(run.key.cluster)),
            (words["user"], one_line(run.user)),
            (words["account"], one_line(run.account)),
            (words["partition"], one_line(run.partition)),
            (words["nodes"], one_line(", ".join(run.nodes), width=400)),
            (words["cards"], str(len(run.cards))),
            (words["rule"], one_line(rule)),
        ]
    )


def _about_job(template: str, run: JobRun) -> str:
    return template.format(job=run.action_id, name=one_line(run.name, width=60))


def _table(rows: list[tuple[str, str]]) -> str:
    return "\n".join(f"{label}: {value}" for label, value in rows)


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
