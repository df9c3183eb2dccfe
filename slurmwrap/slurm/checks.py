"""Finding what would silently ruin accounting or evidence, each with the next step."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from slurmwrap.api import HealthCheck
from slurmwrap.clock import Clock
from slurmwrap.config import Config
from slurmwrap.errors import SlurmwrapError
from slurmwrap.slurm.associations import read_associations
from slurmwrap.slurm.commands import CONFIGURATION_TIME, SlurmCommands
from slurmwrap.slurm.jobs import parse_jobs

OLDEST_VERSION = (22, 5)
MOST_SKEW_SECONDS = 5

_PROGRAMS = ("squeue", "scontrol", "scancel", "sacct", "sacctmgr", "sreport")

Check = Callable[[], HealthCheck]


def check_slurm(config: Config, commands: SlurmCommands, clock: Clock) -> tuple[HealthCheck, ...]:
    """One line per thing that was looked at; never raises for what Slurm says or does not say.

    Names: slurm-programs, slurmctld, slurmdbd, cluster-name, card-accounting, limits,
    confined-cards, privileges, slurm-clock, slurm-json. What can't be looked at because a
    daemon is away is left out: the daemon's own line says so.
    """
    lines = [_guard("slurm-programs", lambda: check_programs(commands))]
    if not lines[0].ok:
        return tuple(lines)
    before = clock.now()
    try:
        settings = commands.read_configuration()
    except SlurmwrapError as error:
        lines.append(_failed("slurmctld", error))
        settings = {}
    after = clock.now()
    if settings:
        lines.append(_passed("slurmctld", "answers"))
        lines.append(check_cards_tracked(settings, config.accounting.card_gres))
        lines.append(check_limits(settings))
        lines.append(check_confinement(settings))
        lines.append(check_clock(settings, before, after))
        lines.append(_guard("slurm-json", lambda: check_json(commands)))
    lines.append(_guard("slurmdbd", lambda: check_database(commands)))
    if settings and lines[-1].ok:
        lines.append(
            _guard("cluster-name", lambda: check_cluster(config.slurm.cluster, settings, commands))
        )
        lines.append(_guard("privileges", lambda: check_level(config.daemon.user, commands)))
    return tuple(lines)


def check_programs(commands: SlurmCommands) -> HealthCheck:
    """That the programs are there and of a version that we know.

    Raises:
        SlurmUnavailableError, SlurmCommandError.
    """
    name = "slurm-programs"
    for program in _PROGRAMS:
        commands.find_program(program)
    text = commands.run("scontrol", "--version").strip()
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if match is None:
        return _failing(name, f"`scontrol --version` prints {text[:80]!r}, which names no version")
    if (int(match[1]), int(match[2])) < OLDEST_VERSION:
        return _failing(
            name, f"Slurm {match[0]} is older than 22.05", "slurmwrap needs Slurm 22.05 or later"
        )
    return _passed(name, f"Slurm {match[0]}")


def check_cards_tracked(settings: Mapping[str, str], card_gres: tuple[str, ...]) -> HealthCheck:
    """That slurmdbd's records will say how many cards a run had (B23)."""
    name = "card-accounting"
    tracked = settings.get("AccountingStorageTRES", "").split(",")
    missing = [f"gres/{gres}" for gres in card_gres if f"gres/{gres}" not in tracked]
    if missing:
        return _failing(
            name,
            f"AccountingStorageTRES does not track {', '.join(missing)}: slurmdbd's records say"
            " nothing of cards, and every bill from them would be zero",
            f"add {','.join(missing)} to AccountingStorageTRES in slurm.conf and restart"
            " slurmctld; runs from before stay without cards",
        )
    return _passed(name, f"{', '.join(f'gres/{gres}' for gres in card_gres)} tracked")


def check_limits(settings: Mapping[str, str]) -> HealthCheck:
    """That limits on associations have an effect."""
    enforced = settings.get("AccountingStorageEnforce", "").lower().split(",")
    if {"limits", "safe", "all"} & set(enforced):
        return _passed("limits", "AccountingStorageEnforce has limits")
    return _failing(
        "limits",
        f"AccountingStorageEnforce is {','.join(enforced) or 'empty'}: Slurm does not enforce"
        " limits, so a budget can alert but not hold jobs back",
        "set AccountingStorageEnforce=associations,limits,qos in slurm.conf",
    )


def check_confinement(settings: Mapping[str, str]) -> HealthCheck:
    """That a job can use no card but its own, as far as slurmctld can tell."""
    name = "confined-cards"
    constrained = settings.get("ConstrainDevices", "").lower()
    if constrained in ("no", "false"):
        return _failing(
            name,
            "cgroup.conf has ConstrainDevices=no: a job can use cards that were given to another,"
            " whose readings would then be wrong",
            "set ConstrainDevices=yes in cgroup.conf on every node",
        )
    if constrained:
        return _passed(name, "ConstrainDevices=yes")
    return _passed(name, "not visible to slurmctld (no cgroup.conf)")


def check_clock(settings: Mapping[str, str], before: int, after: int) -> HealthCheck:
    """That slurmctld's clock agrees with ours, asked between ``before`` and ``after``."""
    name = "slurm-clock"
    told = settings.get(CONFIGURATION_TIME, "")
    if not told.isdecimal():
        return _passed(name, "slurmctld's time is not visible")
    ahead = max(int(told) - after, 0) - max(before - int(told), 0)
    if abs(ahead) > MOST_SKEW_SECONDS:
        return _failing(
            name,
            f"slurmctld's clock is {abs(ahead)} s {'ahead of' if ahead > 0 else 'behind'} ours:"
            " readings would be counted for the wrong time",
            "synchronise both hosts (chrony, ntpd)",
        )
    return _passed(name, f"within {MOST_SKEW_SECONDS} s of slurmctld's")


def check_json(commands: SlurmCommands) -> HealthCheck:
    """That squeue can print JSON, from which cards are read.

    Raises:
        SlurmUnavailableError, SlurmCommandError, SlurmOutputError.
    """
    parse_jobs(commands.run("squeue", "--json", "--all", "--local"), (), ())
    return _passed("slurm-json", "`squeue --json` works")


def check_database(commands: SlurmCommands) -> HealthCheck:
    """That slurmdbd answers.

    Raises:
        SlurmUnavailableError, SlurmCommandError.
    """
    clusters = _known_clusters(commands)
    return _passed("slurmdbd", f"answers, knows {', '.join(clusters) or 'no cluster'}")


def check_cluster(
    configured: str, settings: Mapping[str, str], commands: SlurmCommands
) -> HealthCheck:
    """That all of us call the cluster the same.

    Raises:
        SlurmUnavailableError, SlurmCommandError.
    """
    name = "cluster-name"
    told = settings.get("ClusterName", "")
    if configured and configured != told:
        return _failing(
            name,
            f"slurm.cluster is {configured!r}, but slurmctld's ClusterName is {told!r}: live runs"
            " and their records would never be recognised as the same",
            "leave slurm.cluster empty, or make it ClusterName",
        )
    clusters = _known_clusters(commands)
    if told not in clusters:
        return _failing(
            name,
            f"slurmdbd knows {', '.join(clusters) or 'no cluster'}, but not {told!r}",
            f"sacctmgr add cluster {told}",
        )
    return _passed(name, told)


def check_level(user: str, commands: SlurmCommands) -> HealthCheck:
    """That slurmdbd lets the service's user act on other users' jobs.

    Raises:
        SlurmUnavailableError, SlurmCommandError, SlurmOutputError.
    """
    level = read_associations(commands).admin_levels.get(user)
    if level == "Administrator":
        return _passed("privileges", f"{user} is Administrator")
    found = "unknown to slurmdbd" if level is None else f"AdminLevel {level}"
    return _failing(
        "privileges",
        f"{user} is {found}; it must be Administrator to see all jobs, cancel and say why",
        f"sacctmgr add user {user} account=root adminlevel=Administrator"
        if level is None
        else f"sacctmgr modify user {user} set adminlevel=Administrator",
    )


def _known_clusters(commands: SlurmCommands) -> list[str]:
    text = commands.run(
        "sacctmgr", "--noheader", "--parsable2", "--readonly", "show", "cluster", "format=Cluster"
    )
    return text.split()


def _guard(name: str, check: Check) -> HealthCheck:
    try:
        return check()
    except SlurmwrapError as error:
        return _failed(name, error)


def _failed(name: str, error: SlurmwrapError) -> HealthCheck:
    return _failing(name, error.message, error.hint or "")


def _failing(name: str, detail: str, hint: str = "") -> HealthCheck:
    return HealthCheck(name=name, ok=False, detail=detail, hint=hint)


def _passed(name: str, detail: str) -> HealthCheck:
    return HealthCheck(name=name, ok=True, detail=detail)
