"""The table of settings: every section, key, form, default, meaning and bounds, in one place.

Only the standard library is imported here, since every command reads its settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from slurmwrap.setting import Duration as Duration
from slurmwrap.setting import Settings, declared_fields
from slurmwrap.setting import setting as setting
from slurmwrap.units import format_duration

_HOUR = 3600
_DAY = 86400

StringLists = dict[str, tuple[str, ...]]
"""A table whose values are lists of strings."""

IndexLists = dict[str, tuple[int, ...]]
"""A table whose values are lists of whole numbers."""


class SlurmSettings(Settings):
    """How slurmwrap reaches Slurm."""

    cluster: str = setting("", "Name of the cluster; empty: asked from Slurm (ClusterName).")
    conf: str = setting("", "Path of slurm.conf for Slurm's commands; empty: Slurm's own default.")
    bin_dir: str = setting("", "Folder of squeue, sacct, sbatch, ...; empty: searched on PATH.")
    command_timeout: Duration = setting(
        Duration(60), "Longest wait for one Slurm command.", at_least=1, at_most=600
    )


class MungeSettings(Settings):
    """How slurmwrap reaches MUNGE."""

    socket: str = setting("", "Socket of munged; empty: MUNGE's own default.")


class DaemonSettings(Settings):
    """Where slurmwrapd listens, who it is and what it owns."""

    url: str = setting(
        "http://127.0.0.1:8642", "Address at which commands and agents find slurmwrapd."
    )
    bind: str = setting("127.0.0.1:8642", "Address and port that slurmwrapd serve listens on.")
    user: str = setting(
        "slurmwrap", "User that slurmwrapd serve runs as; requests are readable by it alone."
    )
    database: str = setting("/var/lib/slurmwrap/slurmwrap.db", "SQLite file, on a local disk.")
    request_timeout: Duration = setting(
        Duration(10), "Longest wait of a command for slurmwrapd.", at_least=1, at_most=600
    )


class CollectSettings(Settings):
    """Asking slurmctld which jobs hold which cards."""

    interval: Duration = setting(
        Duration(30), "Time between two queries of the running jobs.", at_least=1, at_most=300
    )


class AccountingSettings(Settings):
    """Reading slurmdbd's records."""

    interval: Duration = setting(
        Duration(300), "Time between two reads of slurmdbd's records.", at_least=1, at_most=_DAY
    )
    overlap: Duration = setting(
        Duration(86400),
        "How far each read reaches back before the last one.",
        at_least=60,
        at_most=366 * _DAY,
    )
    backfill: Duration = setting(
        Duration(62 * 86400),
        "How far the first read of a new database reaches back.",
        at_least=_HOUR,
        at_most=3660 * _DAY,
    )
    card_gres: tuple[str, ...] = setting(
        ("gpu",), "Generic resources that are cards: gpu, npu, dcu, mlu, ..."
    )

    def __post_init__(self) -> None:
        if not self.card_gres:
            raise ValueError("card_gres names no resource; for example ['gpu']")


class AgentsSettings(Settings):
    """The node agents."""

    users: tuple[str, ...] = setting(("slurmwrap-agent",), "Users that may push readings.")
    interval: Duration = setting(
        Duration(30), "Length of one reading; one message per interval.", at_least=1, at_most=300
    )
    read_every: float = setting(
        1.0, "Seconds between two reads of a card.", at_least=0.05, at_most=300
    )
    call_timeout: Duration = setting(
        Duration(5),
        "Longest wait for the driver to answer for one card.",
        at_least=1,
        at_most=60,
    )
    spool_dir: str = setting(
        "/var/spool/slurmwrap-agent", "Folder for messages while slurmwrapd is away."
    )
    spool_messages: int = setting(
        2880,
        "Messages kept at most; the oldest are dropped first, and counted.",
        at_least=1,
        at_most=1_000_000,
    )
    addresses: StringLists = setting(
        {},
        "Per node, the addresses its credentials may come from,"
        " where the node name does not resolve to them.",
    )
    cards: IndexLists = setting(
        {},
        "Per node, the driver's minor number of each Slurm card index,"
        " where minor order is not Slurm's order.",
    )

    def __post_init__(self) -> None:
        if self.read_every > self.interval:
            raise ValueError(
                f"read_every ({self.read_every:g} s) must not be longer than interval"
                f" ({format_duration(self.interval)})"
            )


class RulesSettings(Settings):
    """Where the rules are, and how the watch runs."""

    file: str = setting("/etc/slurmwrap/rules.toml", "The rules file.")
    interval: Duration = setting(
        Duration(60), "Time between two evaluations.", at_least=1, at_most=_HOUR
    )


class BillingSettings(Settings):
    """Periods, money and prices."""

    timezone: str = setting("Asia/Shanghai", "Zone in which a billing month begins and ends.")
    currency: str = setting("CNY", "ISO 4217 code of the currency of all prices.")
    prices: str = setting("/etc/slurmwrap/prices.toml", "The price file.")


class BudgetSettings(Settings):
    """Checking budgets."""

    interval: Duration = setting(
        Duration(300), "Time between two checks of the budgets.", at_least=1, at_most=_DAY
    )


class NotifySettings(Settings):
    """Where warnings and alerts go. URLs are Apprise's; {user} stands for the user's name."""

    user_urls: tuple[str, ...] = setting(
        (),
        "Targets for a job's owner, e.g. mailto://smtp.example.org?from=slurmwrap@example.org&to={user}@example.org",
        secret=True,
    )
    account_urls: tuple[str, ...] = setting(
        (), "Targets for budget alerts, for each coordinator of the account as {user}.", secret=True
    )
    admin_urls: tuple[str, ...] = setting((), "Targets for administrators.", secret=True)
    secrets_file: str = setting(
        "/etc/slurmwrap/secrets.toml",
        "File with those of the targets above that hold a password or token; slurmwrapd alone"
        " reads it.",
    )
    language: str = setting("en", "Language of messages.", choices=("en", "zh"))
    interval: Duration = setting(
        Duration(10), "Time between two runs of the outbox.", at_least=1, at_most=_HOUR
    )
    timeout: Duration = setting(
        Duration(30), "Longest wait for one delivery.", at_least=1, at_most=600
    )


class StagingSettings(Settings):
    """Node-local copies of hot data."""

    cache_dir: str = setting(
        "/tmp/slurmwrap-cache-{user}",
        "Folder on the node's local disk. {node} stands for the node's name; {user} for the"
        " user's, and without it every user gets a folder below.",
    )
    headroom: float = setting(
        0.2, "Share of the file system that staging leaves free.", at_least=0, at_most=0.9
    )
    workers: int = setting(16, "Copying threads per node, at most.", at_least=1, at_most=256)


class SubmitSettings(Settings):
    """What slurmwrap submit does where the user says nothing."""

    template: str = setting("single", "Template used without --template.")
    template_dirs: tuple[str, ...] = setting((), "Folders searched before the shipped templates.")
    sbatch_timeout: Duration = setting(
        Duration(60),
        "Longest wait for sbatch, which blocks when the queue is full.",
        at_least=1,
        at_most=_HOUR,
    )
    signal_before_limit: Duration = setting(
        Duration(120),
        "How long before the time limit the supervisor is told.",
        at_least=1,
        at_most=65535,
    )


class RunSettings(Settings):
    """The supervisor inside the job."""

    report_interval: Duration = setting(
        Duration(30),
        "Time between two messages of the supervisor to slurmwrapd.",
        at_least=1,
        at_most=_HOUR,
    )


class BudgetEntry(Settings):
    """One [[budget]] block."""

    account: str = setting("", "Account, with everything below it in Slurm's tree.")
    user: str = setting("", "User; alone or within the account.")
    period: str = setting("month", "What the budget is for.", choices=("month", "quarter", "year"))
    card_hours: Decimal | None = setting(None, "Card-hours in the period; give this or money.")
    money: Decimal | None = setting(None, "Money in the period, in the billing currency.")
    thresholds: tuple[int, ...] = setting(
        (80,), "Percentages at which an alert is sent, each once per period."
    )


class Config(Settings):
    """All settings of one process."""

    slurm: SlurmSettings = SlurmSettings()
    munge: MungeSettings = MungeSettings()
    daemon: DaemonSettings = DaemonSettings()
    collect: CollectSettings = CollectSettings()
    accounting: AccountingSettings = AccountingSettings()
    agents: AgentsSettings = AgentsSettings()
    rules: RulesSettings = RulesSettings()
    billing: BillingSettings = BillingSettings()
    budgets: BudgetSettings = BudgetSettings()
    notify: NotifySettings = NotifySettings()
    staging: StagingSettings = StagingSettings()
    submit: SubmitSettings = SubmitSettings()
    run: RunSettings = RunSettings()
    budget: tuple[BudgetEntry, ...] = ()


SECTIONS: dict[str, type[Settings]] = {
    name: type(item.default)
    for name, item in Config.fields.items()
    if isinstance(item.default, Settings)
}
"""Tables of the file, in its order. ``[[budget]]`` blocks are BudgetEntry."""


@dataclass(frozen=True)
class SettingRow:
    """One row of the settings table, for the docs page and `slurmwrap config list`."""

    section: str
    key: str
    form: str
    default: Any
    meaning: str
    choices: tuple[str, ...]
    at_least: float | None
    at_most: float | None
    secret: bool

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"


def describe_bounds(is_duration: bool, least: float | None, most: float | None) -> str:
    """Bounds in words: ``from 1 s to 5 min``, ``at least 1``; empty without any."""
    low, high = (
        None if bound is None else format_duration(int(bound)) if is_duration else f"{bound:g}"
        for bound in (least, most)
    )
    if low is not None and high is not None:
        return f"from {low} to {high}"
    if low is not None:
        return f"at least {low}"
    return f"at most {high}" if high is not None else ""


def setting_rows() -> list[SettingRow]:
    """Every setting, in file order."""
    tables: dict[str, type[Any]] = {**SECTIONS, "budget": BudgetEntry}
    return [row for section, table in tables.items() for row in rows_of_table(section, table)]


def rows_of_table(section: str, table: type[Any]) -> list[SettingRow]:
    """The settings of one table, in its order."""
    example = table()
    return [
        SettingRow(
            section=section,
            key=name,
            form=str(table.__annotations__[name]),
            default=getattr(example, name),
            **item.metadata,
        )
        for name, item in declared_fields(table).items()
    ]
