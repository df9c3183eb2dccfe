"""`slurmwrap run`: supervise a command inside a job."""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING

import click

from slurmwrap.cli.stage import ask_slurm, say, stage_here
from slurmwrap.commandline import loaded_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from slurmwrap.config import Config
    from slurmwrap.runtime.identity import JobIdentity
    from slurmwrap.runtime.node_staging import NodeCopy
    from slurmwrap.runtime.supervisor import PrepareStart, Reporter, RunPlan

_LAUNCHERS = ("none", "torchrun")
_WARNING_FRAME = "=" * 72


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--stage",
    "sources",
    multiple=True,
    metavar="SOURCE",
    type=click.Path(),
    help="Copy this file or folder to every node first; may be given several times.",
)
@click.option(
    "--watch",
    metavar="NAME[:MODE[:MIN_DELTA]]",
    help="The metric that shall improve; MODE is max (default) or min.",
)
@click.option(
    "--patience", type=click.IntRange(1), help="Evaluations without improvement that are allowed."
)
@click.option(
    "--launcher",
    type=click.Choice(_LAUNCHERS),
    default="none",
    show_default=True,
    help="none: run COMMAND once, on the first node. torchrun: one torchrun per node.",
)
@click.option(
    "--launcher-arg",
    "launcher_arguments",
    multiple=True,
    metavar="ARG",
    help="An argument for torchrun; may be given several times.",
)
@click.option(
    "--forward-signal",
    "forwarded",
    multiple=True,
    type=click.Choice(["USR1", "USR2"]),
    help="Pass this signal on to COMMAND, which must handle it or dies of it.",
)
@click.option(
    "--task",
    "as_task",
    is_flag=True,
    help="Inside srun: point SLURMWRAP_DATA to this node's copies, then become COMMAND.",
)
@click.argument("words", metavar="COMMAND [ARGS]...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    context: click.Context,
    sources: tuple[str, ...],
    watch: str | None,
    patience: int | None,
    launcher: str,
    launcher_arguments: tuple[str, ...],
    forwarded: tuple[str, ...],
    as_task: bool,
    words: tuple[str, ...],
) -> int:
    """Run COMMAND as this job's work: stage its data, watch it, end with its exit code."""
    from slurmwrap.display import clean_text  # only now: --help stays light
    from slurmwrap.errors import UsageError
    from slurmwrap.runtime.identity import read_identity
    from slurmwrap.runtime.supervisor import RunPlan
    from slurmwrap.runtime.watching import parse_watch

    if not words:
        raise UsageError("there is no command to run", hint="write it after --")
    if patience is not None and watch is None:
        raise UsageError("--patience needs --watch", hint="say which metric shall improve")
    if launcher_arguments and launcher == "none":
        raise UsageError("--launcher-arg needs --launcher torchrun")
    identity = read_identity(os.environ)
    if as_task:
        return _become_task(words, identity, launcher)
    plan = RunPlan(
        command=words,
        sources=sources,
        watch=None if watch is None else parse_watch(watch, patience),
        forwarded=frozenset(signal.Signals[f"SIG{name}"] for name in forwarded),
    )
    program = words[0] if launcher == "none" else launcher
    if os.sep not in program and shutil.which(program) is None:
        # Before staging: hours of copying for a word that was mistyped help nobody.
        say(f"{clean_text(program)}: command not found")
        if launcher == "torchrun":
            say("submit where PyTorch's environment is active, or give --param setup=FILE")
        return 127
    return _supervise(plan, identity, launcher, launcher_arguments, context)


def _become_task(words: tuple[str, ...], identity: JobIdentity, launcher: str) -> int:
    from slurmwrap.runtime.launch import set_defaults, torchrun_task
    from slurmwrap.runtime.node_staging import become_task
    from slurmwrap.runtime.processes import start_failure

    argv = list(words)
    if launcher == "torchrun":
        argv = torchrun_task(identity.cards_on_node, identity.node, identity.task_rank, words)
        set_defaults(os.environ, argv)
    try:
        become_task(argv, identity.node)
    except OSError as error:
        status, text = start_failure(error, argv[0])
        say(text)
        return status


def _supervise(
    plan: RunPlan,
    identity: JobIdentity,
    launcher: str,
    launcher_arguments: tuple[str, ...],
    context: click.Context,
) -> int:
    from slurmwrap.clock import SystemClock
    from slurmwrap.runtime.launch import first_failure
    from slurmwrap.runtime.slurm_questions import ask_node_names
    from slurmwrap.runtime.supervisor import Supervisor

    config = loaded_settings(context).config
    ask = ask_slurm(config)
    nodes = ask_node_names(ask, identity.node_list) if identity.spans_nodes else (identity.node,)

    prepare_start: PrepareStart = _start_as_typed
    if launcher == "torchrun":
        prepare_start = _prepare_torchrun(identity, nodes, launcher_arguments, config)
    supervisor = Supervisor(
        plan,
        identity,
        nodes,
        stage=_make_stage(config, identity, nodes, context),
        prepare_start=prepare_start,
        make_reporter=lambda metrics: _make_reporter(plan, identity, config, metrics),
        clock=SystemClock(),
        talk=say,
    )
    if identity.job_id is not None and not identity.is_step:
        _clean_up_beside(identity, config)
    status = supervisor.run()
    if launcher == "torchrun" and not supervisor.was_asked_to_end:
        return first_failure(status)
    return status


def _clean_up_beside(identity: JobIdentity, config: Config) -> None:
    """Remove what killed jobs left here, while this one begins: Slurm may be slow to answer."""
    import threading  # only now: --help stays light

    from slurmwrap.runtime.job_folder import clean_up
    from slurmwrap.runtime.slurm_questions import live_job_ids

    def work() -> None:
        conf = os.environ.get("SLURM_CONF", "")
        for name in clean_up(identity, conf, lambda: live_job_ids(ask_slurm(config))):
            say(f"removed {name}, which a job that was killed had left")

    threading.Thread(target=work, name="janitor", daemon=True).start()


def _start_as_typed(
    command: Sequence[str], environment: dict[str, str]
) -> tuple[list[str], dict[str, str]]:
    return list(command), environment


def _prepare_torchrun(
    identity: JobIdentity,
    nodes: tuple[str, ...],
    launcher_arguments: tuple[str, ...],
    config: Config,
) -> PrepareStart:
    from slurmwrap.errors import UsageError
    from slurmwrap.runtime.launch import (
        choose_port,
        find_master_address,
        step_environment,
        torchrun_step,
    )
    from slurmwrap.runtime.slurm_questions import ask_node_address

    job_id = identity.job_id
    if job_id is None:
        raise UsageError("--launcher torchrun works inside a Slurm job only")
    ask = ask_slurm(config)
    # Now, before anything is copied: without an address the job can't work.
    address = find_master_address(nodes[0], lambda node: ask_node_address(ask, node))
    srun = find_srun(config)

    def prepare(
        command: Sequence[str], environment: dict[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        step = torchrun_step(
            srun,
            nodes=len(nodes),
            address=address,
            port=choose_port(job_id),
            job_id=job_id,
            launcher_arguments=launcher_arguments,
            command=command,
        )
        return step, step_environment(environment)

    return prepare


def find_srun(config: Config) -> str:
    """Path of srun, where the settings say that Slurm's programs are."""
    from slurmwrap.slurm.commands import SlurmCommands

    return SlurmCommands(config.slurm).find_program("srun")


def _make_stage(
    config: Config, identity: JobIdentity, nodes: tuple[str, ...], context: click.Context
) -> Callable[[str, Callable[[], bool]], dict[str, NodeCopy]]:
    from slurmwrap.runtime.node_staging import NodeCopy, stage_on_nodes

    config_file = context.find_root().obj

    def stage(source: str, is_cancelled: Callable[[], bool]) -> dict[str, NodeCopy]:
        if len(nodes) > 1:
            return stage_on_nodes(
                source,
                nodes,
                srun=find_srun(config),
                config_file=config_file,
                is_cancelled=is_cancelled,
            )
        staged = stage_here(source, config, identity, is_cancelled=is_cancelled)
        say(staged.describe())
        copy = NodeCopy(identity.node, os.fsdecode(staged.path), staged.is_hit, staged.describe())
        return {identity.node: copy}

    return stage


def _make_reporter(plan: RunPlan, identity: JobIdentity, config: Config, metrics: Path) -> Reporter:
    from slurmwrap.api import Client, RunEvents, RunWarnings
    from slurmwrap.clock import SystemClock
    from slurmwrap.display import clean_text
    from slurmwrap.model import RunKey
    from slurmwrap.runtime.metrics_tail import MetricsTail
    from slurmwrap.runtime.publisher import Publisher
    from slurmwrap.runtime.slurm_questions import ask_start
    from slurmwrap.runtime.supervisor import SilentReporter

    job_id = identity.job_id
    if job_id is None or (identity.is_step and identity.task_rank != 0):
        return SilentReporter()
    client = Client(config)
    known_start: list[int] = [] if identity.start is None else [identity.start]

    def find_run() -> RunKey:
        if not known_start:
            start = ask_start(ask_slurm(config), job_id)
            if start is not None:
                known_start.append(start)
        cluster = identity.cluster or config.slurm.cluster
        return RunKey(cluster=cluster, job_id=job_id, start=known_start[0] if known_start else 0)

    def send(events: RunEvents) -> RunWarnings:
        return client.call("push_run_events", events, RunWarnings)

    def warn(text: str) -> None:
        say(
            f"{_WARNING_FRAME}\nslurmwrap: WARNING: {clean_text(text)}\nslurmwrap: {_WARNING_FRAME}"
        )

    return Publisher(
        send,
        find_run,
        MetricsTail(metrics, SystemClock()),
        plan.watch,
        interval_seconds=config.run.report_interval,
        talk=say,
        warn=warn,
    )
