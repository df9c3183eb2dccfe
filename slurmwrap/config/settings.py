"""The table of settings: every section, key, form, default and meaning, in one place.

Only the standard library is imported here, since every command reads its settings.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from slurmwrap.setting import Duration as Duration
from slurmwrap.setting import setting as setting

StringLists = dict[str, tuple[str, ...]]
"""A table whose values are lists of strings."""

IndexLists = dict[str, tuple[int, ...]]
"""A table whose values are lists of whole numbers."""


@dataclass(frozen=True)
class SlurmSettings:
    """How slurmwrap reaches Slurm."""

    cluster: str = setting("", "Name of the cluster; empty: asked from Slurm (ClusterName).")
    conf: str = setting("", "Path of slurm.conf for Slurm's commands; empty: Slurm's own default.")
    bin_dir: str = setting("", "Folder of squeue, sacct, sbatch, ...; empty: searched on PATH.")
    command_timeout: Duration = setting(Duration(60), "Longest wait for one Slurm command.")


@dataclass(frozen=True)
class MungeSettings:
    """How slurmwrap reaches MUNGE."""

    socket: str = setting("", "Socket of munged; empty: MUNGE's own default.")


@dataclass(frozen=True)
class DaemonSettings:
    """Where slurmwrapd listens, who it is and what it owns."""

    url: str = setting(
        "http://127.0.0.1:8642", "Address at which commands and agents find slurmwrapd."
    )
    bind: str = setting("127.0.0.1:8642", "Address and port that slurmwrapd serve listens on.")
    user: str = setting(
        "slurmwrap", "User that slurmwrapd serve runs as; requests are readable by it alone."
    )
    database: str = setting("/var/lib/slurmwrap/slurmwrap.db", "SQLite file, on a local disk.")
    request_timeout: Duration = setting(Duration(10), "Longest wait of a command for slurmwrapd.")


@dataclass(frozen=True)
class CollectSettings:
    """Asking slurmctld which jobs hold which cards."""

    interval: Duration = setting(Duration(30), "Time between two queries of the running jobs.")


@dataclass(frozen=True)
class AccountingSettings:
    """Reading slurmdbd's records."""

    interval: Duration = setting(Duration(300), "Time between two reads of slurmdbd's records.")
    overlap: Duration = setting(
        Duration(86400), "How far each read reaches back before the last one."
    )
    backfill: Duration = setting(
        Duration(62 * 86400), "How far the first read of a new database reaches back."
    )
    card_gres: tuple[str, ...] = setting(
        ("gpu",), "Generic resources that are cards: gpu, npu, dcu, mlu, ..."
    )


@dataclass(frozen=True)
class AgentsSettings:
    """The node agents."""

    users: tuple[str, ...] = setting(("slurmwrap-agent",), "Users that may push readings.")
    interval: Duration = setting(Duration(30), "Length of one reading; one message per interval.")
    read_every: float = setting(1.0, "Seconds between two reads of a card.")
    call_timeout: Duration = setting(
        Duration(5), "Longest wait for the driver to answer for one card."
    )
    spool_dir: str = setting(
        "/var/spool/slurmwrap-agent", "Folder for messages while slurmwrapd is away."
    )
    spool_messages: int = setting(
        2880, "Messages kept at most; the oldest are dropped first, and counted."
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


@dataclass(frozen=True)
class RulesSettings:
    """Where the rules are, and how the watch runs."""

    file: str = setting("/etc/slurmwrap/rules.toml", "The rules file.")
    interval: Duration = setting(Duration(60), "Time between two evaluations.")


@dataclass(frozen=True)
class BillingSettings:
    """Periods, money and prices."""

    timezone: str = setting("Asia/Shanghai", "Zone in which a billing month begins and ends.")
    currency: str = setting("CNY", "ISO 4217 code of the currency of all prices.")
    prices: str = setting("/etc/slurmwrap/prices.toml", "The price file.")


@dataclass(frozen=True)
class BudgetSettings:
    """Checking budgets."""

    interval: Duration = setting(Duration(300), "Time between two checks of the budgets.")


@dataclass(frozen=True)
class NotifySettings:
    """Where warnings and alerts go. URLs are Apprise's; {user} stands for the user's name."""

    user_urls: tuple[str, ...] = setting(
        (),
        "Targets for a job's owner, e.g. mailto://smtp.example.org?from=slurmwrap@example.org&to={user}@example.org",
    )
    account_urls: tuple[str, ...] = setting(
        (), "Targets for budget alerts, for each coordinator of the account as {user}."
    )
    admin_urls: tuple[str, ...] = setting((), "Targets for administrators.")
    language: str = setting("en", "Language of messages.", choices=("en", "zh"))
    interval: Duration = setting(Duration(10), "Time between two runs of the outbox.")
    timeout: Duration = setting(Duration(30), "Longest wait for one delivery.")


@dataclass(frozen=True)
class StagingSettings:
    """Node-local copies of hot data."""

    cache_dir: str = setting(
        "/tmp/slurmwrap-cache-{user}",
        "Folder on the node's local disk. {node} stands for the node's name; {user} for the"
        " user's, and without it every user gets a folder below.",
    )
    headroom: float = setting(0.2, "Share of the file system that staging leaves free.")
    workers: int = setting(8, "Copying threads per node.")


@dataclass(frozen=True)
class SubmitSettings:
    """What slurmwrap submit does where the user says nothing."""

    template: str = setting("single", "Template used without --template.")
    template_dirs: tuple[str, ...] = setting((), "Folders searched before the shipped templates.")
    sbatch_timeout: Duration = setting(
        Duration(60), "Longest wait for sbatch, which blocks when the queue is full."
    )
    signal_before_limit: Duration = setting(
        Duration(120), "How long before the time limit the supervisor is told."
    )


@dataclass(frozen=True)
class RunSettings:
    """The supervisor inside the job."""

    report_interval: Duration = setting(
        Duration(30), "Time between two messages of the supervisor to slurmwrapd."
    )


@dataclass(frozen=True)
class BudgetEntry:
    """One [[budget]] block."""

    account: str = setting("", "Account, with everything below it in Slurm's tree.")
    user: str = setting("", "User; alone or within the account.")
    period: str = setting("month", "What the budget is for.", choices=("month", "quarter", "year"))
    card_hours: Decimal | None = setting(None, "Card-hours in the period; give this or money.")
    money: Decimal | None = setting(None, "Money in the period, in the billing currency.")
    thresholds: tuple[int, ...] = setting(
        (80,), "Percentages at which an alert is sent, each once per period."
    )


@dataclass(frozen=True)
class Config:
    """All settings of one process."""

    slurm: SlurmSettings = SlurmSettings()
    munge: MungeSettings = MungeSettings()
    daemon: DaemonSettings = DaemonSettings()
    collect: CollectSettings = CollectSettings()
    accounting: AccountingSettings = AccountingSettings()
    agents: AgentsSettings = field(default_factory=AgentsSettings)
    rules: RulesSettings = RulesSettings()
    billing: BillingSettings = BillingSettings()
    budgets: BudgetSettings = BudgetSettings()
    notify: NotifySettings = NotifySettings()
    staging: StagingSettings = StagingSettings()
    submit: SubmitSettings = SubmitSettings()
    run: RunSettings = RunSettings()
    budget: tuple[BudgetEntry, ...] = ()


SECTIONS: dict[str, type[Any]] = {
    "slurm": SlurmSettings,
    "munge": MungeSettings,
    "daemon": DaemonSettings,
    "collect": CollectSettings,
    "accounting": AccountingSettings,
    "agents": AgentsSettings,
    "rules": RulesSettings,
    "billing": BillingSettings,
    "budgets": BudgetSettings,
    "notify": NotifySettings,
    "staging": StagingSettings,
    "submit": SubmitSettings,
    "run": RunSettings,
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

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"


def setting_rows() -> list[SettingRow]:
    """Every setting, in file order."""
    rows: list[SettingRow] = []
    tables: dict[str, type[Any]] = {**SECTIONS, "budget": BudgetEntry}
    for section, settings_class in tables.items():
        example = settings_class()
        for item in dataclasses.fields(settings_class):
            rows.append(
                SettingRow(
                    section=section,
                    key=item.name,
                    form=str(item.type),
                    default=getattr(example, item.name),
                    meaning=item.metadata["meaning"],
                    choices=item.metadata["choices"],
                )
            )
    return rows
