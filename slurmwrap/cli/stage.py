"""`slurmwrap stage`: copy hot data to the node's local disk, or reuse what is there."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from slurmwrap.commandline import loaded_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmwrap.config import Config
    from slurmwrap.runtime.identity import JobIdentity
    from slurmwrap.staging.stage_in import StagedData


@click.group()
def command() -> None:
    """Copy hot data to the node's local disk, or reuse what is there."""


@command.command("in")
@click.argument("source", type=click.Path())
@click.option("--cache", metavar="DIR", help="The node's cache; {node} and {user} are filled in.")
@click.option("--workers", type=click.IntRange(1, 256), help="Threads that scan and copy.")
@click.option(
    "--headroom",
    type=click.FloatRange(0, 1, max_open=True),
    help="Share of the file system that stays free.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the event as JSON before the path.")
@click.pass_context
def stage_in(
    context: click.Context,
    source: str,
    cache: str | None,
    workers: int | None,
    headroom: float | None,
    as_json: bool,
) -> None:
    """Copy SOURCE, a file or folder, to this node, or find the copy that is there.

    The last line on stdout is the path of the copy.
    """
    from slurmwrap.errors import StagingError  # only now: --help stays light
    from slurmwrap.runtime.identity import read_identity
    from slurmwrap.runtime.node_staging import failure_event

    config = loaded_settings(context).config
    identity = read_identity(os.environ)
    try:
        staged = stage_here(
            source, config, identity, cache=cache, workers=workers, headroom=headroom
        )
    except StagingError as error:
        if as_json:
            click.echo(failure_event(identity.node, source, error))
        raise
    say(staged.describe())
    if as_json:
        click.echo(staged.to_event())
    click.echo(staged.path)


def stage_here(
    source: str,
    config: Config,
    identity: JobIdentity,
    *,
    cache: str | None = None,
    workers: int | None = None,
    headroom: float | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> StagedData:
    """Stage one source on this node as the settings say, where no option says otherwise.

    Raises:
        NotFoundError, NoRoomError, StagingError: see Stager.stage_in.
    """
    from slurmwrap.runtime.slurm_questions import live_job_ids
    from slurmwrap.staging.cache import NodeCache
    from slurmwrap.staging.leases import current_holder
    from slurmwrap.staging.stage_in import Stager

    settings = config.staging
    node_cache = NodeCache(settings.cache_dir if cache is None else cache, node=identity.node)
    stager = Stager(
        node_cache,
        workers=settings.workers if workers is None else workers,
        headroom=settings.headroom if headroom is None else headroom,
        holder=current_holder(identity.job_id),
        live_jobs=lambda: live_job_ids(ask_slurm(config)),
        talk=say,
        is_cancelled=is_cancelled,
    )
    return stager.stage_in(os.fsencode(source))


def ask_slurm(config: Config) -> Callable[..., str]:
    """How to ask Slurm; the parts that can are loaded when it is really asked."""

    def ask(program: str, *arguments: str) -> str:
        from slurmwrap.slurm.commands import SlurmCommands

        return SlurmCommands(config.slurm).run(program, *arguments)

    return ask


def say(line: str, **options: Any) -> None:
    """A line for the job's log."""
    click.echo(f"slurmwrap: {line}", err=True, **options)
    sys.stderr.flush()
