"""From what the user typed to what the job asks of Slurm: checked, complete, values only."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from typing import NamedTuple

from slurmwrap.errors import UsageError
from slurmwrap.submit import forms
from slurmwrap.submit.quoting import find_control_character
from slurmwrap.submit.sbatch_options import SHIPPED_OPTIONS, Argument, parse_passthrough
from slurmwrap.watch import parse_watch

LONGEST_SIGNAL_LEAD_SECONDS = 65535
"""sbatch refuses more in --signal."""


class SubmitOptions(NamedTuple):
    """The options of one `slurmwrap submit`, as typed. None: not given."""

    command: tuple[str, ...]
    name: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    time: str | None = None
    nodes: str | None = None
    gpus: str | None = None
    gpu_type: str | None = None
    cpus: int | None = None
    memory: str | None = None
    array: str | None = None
    dependency: str | None = None
    output: str | None = None
    stage: tuple[str, ...] = ()
    sbatch: tuple[str, ...] = ()
    watch: str | None = None
    patience: int | None = None


class JobRequest(NamedTuple):
    """What a script shall say and run; every value is plain text, quoted only when written."""

    name: str
    directives: tuple[tuple[str, str], ...]
    """sbatch's options in the order of the script; flags have the value ""."""
    command: tuple[str, ...]
    stage: tuple[str, ...]
    watch: str | None
    patience: int | None
    nodes: int
    """The smallest number of nodes asked for."""
    cards_per_node: int | None
    """None: asked for through --sbatch, in a way we don't count."""
    gpu_type: str

    def directive(self, option: str) -> str | None:
        """The value of an sbatch option in the script, or None when it is not there."""
        return dict(self.directives).get(option)


# sbatch's name of each option that has a name of its own here.
_OWN_NAMES = {
    "job-name": "--name",
    "account": "--account",
    "partition": "--partition",
    "qos": "--qos",
    "nodes": "--nodes",
    "gres": "--gpus",
    "cpus-per-task": "--cpus",
    "mem": "--memory",
    "time": "--time",
    "array": "--array",
    "dependency": "--dependency",
    "output": "--output",
}
_CARD_OPTIONS = ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")
# Forms that are checked however the option was given.
_CHECKS: dict[str, Callable[[str], str]] = {
    "time": forms.check_time,
    "time-min": forms.check_time,
    "mem": forms.check_memory,
    "array": forms.check_array,
    "dependency": forms.check_dependency,
    "nodes": forms.check_nodes,
}
_INTERPRETERS = ("python", "bash", "sh", "torchrun", "srun", "Rscript", "julia", "apptainer")


def build_request(
    options: SubmitOptions,
    known: Mapping[str, Argument] = SHIPPED_OPTIONS,
    *,
    card_gres: str = "gpu",
    signal_lead_seconds: int = 120,
) -> JobRequest:
    """What the job asks for.

    Args:
        known: sbatch's options, from ``known_options``.
        card_gres: the generic resource that is a card at this site.
        signal_lead_seconds: how long before its time limit the supervisor is told.

    Raises:
        UsageError: a value of the wrong form, or options that contradict each other.
        UnknownNameError: an sbatch option, dependency type or mode that nobody knows.
    """
    if not options.command:
        raise UsageError(
            "no command to run in the job",
            hint="write it after --, for example: slurmwrap submit --gpus 1 -- python train.py",
        )
    passed = parse_passthrough(options.sbatch, known)
    cards, gpu_type = forms.check_cards(options.gpus, options.gpu_type)
    own = _own_values(options, cards, gpu_type, card_gres)
    _refuse_doubles(own, passed)
    values = {"job-name": default_name(options.command), **own, **passed}
    for option, value in values.items():
        _check_text(option, value, known)
        if option in _CHECKS:
            values[option] = _CHECKS[option](value)
    _add_supervision(values, signal_lead_seconds)
    if options.watch is not None:
        parse_watch(options.watch)
    if options.patience is not None and options.watch is None:
        raise UsageError(
            "--patience was given without --watch", hint="say which metric: --watch val_acc:max"
        )
    return JobRequest(
        name=values["job-name"],
        directives=tuple(values.items()),
        command=options.command,
        stage=options.stage,
        watch=options.watch,
        patience=options.patience,
        nodes=int(values.get("nodes", "1").partition("-")[0]),
        cards_per_node=None if any(option in passed for option in _CARD_OPTIONS) else cards,
        gpu_type=gpu_type,
    )


def default_name(command: tuple[str, ...]) -> str:
    """A job name from the command: ``train.py`` of ``python train.py``."""
    words = [word for word in command if not word.startswith("-")]
    chosen = os.path.basename(words[0]) if words else ""
    # `bash -c TEXT` has no script: only a word that may be a file names the job.
    if len(words) > 1 and chosen.startswith(_INTERPRETERS) and not command[1].startswith("-c"):
        chosen = os.path.basename(words[1]) or chosen
    if find_control_character(chosen) is not None or not chosen:
        return "job"
    return chosen[:100]


def _own_values(
    options: SubmitOptions, cards: int, gpu_type: str, card_gres: str
) -> dict[str, str]:
    """The options that have names of their own here, under sbatch's names, in script order."""
    gres = ":".join(part for part in (card_gres, gpu_type, str(cards)) if part) if cards else None
    values = {
        "job-name": options.name,
        "account": options.account,
        "partition": options.partition,
        "qos": options.qos,
        "nodes": options.nodes,
        "gres": gres,
        "cpus-per-task": None if options.cpus is None else str(options.cpus),
        "mem": options.memory,
        "time": options.time,
        "array": options.array,
        "dependency": options.dependency,
        "output": options.output,
    }
    return {option: value for option, value in values.items() if value is not None}


def _refuse_doubles(own: Mapping[str, str], passed: Mapping[str, str]) -> None:
    for option in passed:
        if option in own:
            raise UsageError(
                f"{_OWN_NAMES[option]} and --sbatch {option} were both given", hint="give one"
            )
        if option in _CARD_OPTIONS and "gres" in own:
            raise UsageError(
                f"--gpus and --sbatch {option} both ask for cards",
                hint="--gpus counts cards per node; give one of the two",
            )


def _check_text(option: str, value: str, known: Mapping[str, Argument]) -> None:
    shown = _OWN_NAMES.get(option, f"--sbatch {option}")
    found = find_control_character(value)
    if found is not None:
        raise UsageError(
            f"{shown}: {value!r} holds the control character {found}",
            hint="names and paths that Slurm shall keep are one line of text",
        )
    if not value.strip() and known.get(option) is Argument.VALUE:
        raise UsageError(f"{shown}: the value is empty", hint=f"leave {shown} out, or give a value")


def _add_supervision(values: dict[str, str], signal_lead_seconds: int) -> None:
    """What keeps a supervised job whole, unless the user said otherwise.

    A requeued run appends to its log instead of truncating it; requeueing is said, not left to
    the site; the supervisor alone is told before the limit (``B:``: the batch process, which
    `exec` has made the supervisor); a job whose dependency can't come true any more ends
    instead of waiting for ever.
    """
    if "dependency" in values:
        values.setdefault("kill-on-invalid-dep", "yes")
    values.setdefault("open-mode", "append")
    if "no-requeue" not in values:
        values.setdefault("requeue", "")
    elif "requeue" in values:
        raise UsageError("--sbatch requeue and --sbatch no-requeue contradict each other")
    limit = forms.time_limit_seconds(values["time"]) if "time" in values else None
    lead = signal_lead_seconds if limit is None else min(signal_lead_seconds, limit // 2)
    values.setdefault("signal", f"B:USR1@{min(lead, LONGEST_SIGNAL_LEAD_SECONDS)}")
