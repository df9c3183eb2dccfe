"""Which long options sbatch has, and whether each takes a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from slurmwrap.errors import UnknownNameError, UsageError


class Argument(Enum):
    """What stands after an option."""

    VALUE = "value"
    FLAG = "flag"
    OPTIONAL = "optional"
    UNKNOWN = "unknown"
    """Known from the help text only, which does not say reliably."""


# Found by giving each option to sbatch 22.05.8, alone and with a value. Its --help leaves some
# out (open-mode, test-only, mem-bind, ...) and shows others without the value they need.
_VALUE_OPTIONS = """
    account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment
    constraint container core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline
    delay-boot dependency distribution error exclude export export-file extra extra-node-info gid
    gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input
    job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu
    mem-per-gpu mincpus network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu
    ntasks-per-node ntasks-per-socket open-mode output partition power prefer priority profile qos
    reservation signal sockets-per-node switches thread-spec threads-per-core time time-min tmp
    uid wait-all-nodes wckey wrap
"""
_FLAG_OPTIONS = """
    contiguous help hold ignore-pbs no-requeue overcommit oversubscribe parsable quiet reboot
    requeue spread-job test-only usage use-min-nodes verbose version wait
"""
_OPTIONAL_OPTIONS = "exclusive get-user-env nice no-kill propagate"

SHIPPED_OPTIONS: dict[str, Argument] = {
    **dict.fromkeys(_VALUE_OPTIONS.split(), Argument.VALUE),
    **dict.fromkeys(_FLAG_OPTIONS.split(), Argument.FLAG),
    **dict.fromkeys(_OPTIONAL_OPTIONS.split(), Argument.OPTIONAL),
}
"""The options of sbatch 22.05, the oldest Slurm we serve."""

REFUSED_OPTIONS: dict[str, str] = {
    "help": "run `sbatch --help` instead",
    "usage": "run `sbatch --usage` instead",
    "version": "run `sbatch --version` instead",
    "wrap": "write the command after -- instead",
    "parsable": "use `slurmwrap submit --json`",
    "quiet": "use `slurmwrap submit --json`",
    "verbose": "use `slurmwrap submit --dry-run` to see what would be submitted",
    "test-only": "use `slurmwrap submit --dry-run`; sbatch's own test uses up a job id",
    "wait": "submit, then follow the job with `slurmwrap status`",
    "export-file": "put the variables into the environment before you submit",
    "ignore-pbs": "scripts from slurmwrap have no #PBS lines",
}
"""Options that make no sense in a script of ours, and what to do instead."""

_HELP_OPTION = re.compile(r"^\s*(?:-\w,?\s+)?--([a-z][a-z0-9-]*)", re.MULTILINE)


def parse_help(text: str) -> set[str]:
    """The long options that a text of ``sbatch --help`` lists."""
    return set(_HELP_OPTION.findall(text))


def known_options(help_text: str | None) -> dict[str, Argument]:
    """The options that may be passed on: those of 22.05, and what the installed sbatch lists.

    An option of 22.05 that a newer Slurm has dropped stays known here: its --help does not list
    everything it takes, so absence proves nothing, and sbatch itself will say.

    Args:
        help_text: the output of ``sbatch --help``; None where sbatch is not installed.
    """
    options = dict(SHIPPED_OPTIONS)
    for name in parse_help(help_text or ""):
        options.setdefault(name, Argument.UNKNOWN)
    return options


def parse_passthrough(texts: tuple[str, ...], known: Mapping[str, Argument]) -> dict[str, str]:
    """The ``--sbatch KEY=VALUE`` and ``--sbatch FLAG`` of one call; flags have the value "".

    Raises:
        UnknownNameError: sbatch has no such option.
        UsageError: an option given twice, without its value, with one it does not take, or one
            that slurmwrap must set itself.
    """
    passed: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        name = name.strip().removeprefix("--")
        if name not in known:
            offered = [option for option in known if option not in REFUSED_OPTIONS]
            raise UnknownNameError(
                "sbatch option",
                name,
                offered,
                hint="write long names without dashes, for example --sbatch mail-type=END",
            )
        if name in REFUSED_OPTIONS:
            raise UsageError(
                f"--sbatch {name} can't be passed on to sbatch", hint=REFUSED_OPTIONS[name]
            )
        if name in passed:
            raise UsageError(f"--sbatch {name} was given twice", hint="give it once")
        argument = known[name]
        if argument is Argument.FLAG and separator:
            raise UsageError(
                f"sbatch's --{name} takes no value, got {value!r}", hint=f"write --sbatch {name}"
            )
        if argument is Argument.VALUE and not value:
            raise UsageError(
                f"sbatch's --{name} needs a value", hint=f"write --sbatch {name}=VALUE"
            )
        passed[name] = value
    return passed
