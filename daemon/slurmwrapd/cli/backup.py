"""`slurmwrapd backup`: a consistent copy of the database while the service runs."""

from __future__ import annotations

from pathlib import Path

import click

from slurmwrap.commandline import loaded_settings


@click.command(name="backup")
@click.argument("target", type=click.Path(path_type=Path))
@click.pass_context
def command(context: click.Context, target: Path) -> None:
    """Copy the database to TARGET; the copy appears whole or not at all.

    Read TARGET with sqlite3, sqlite-utils or datasette: a long reader on the live file would
    keep the service from tidying up.
    """
    from slurmwrap.store.database import StoreDatabase  # heavy

    database = StoreDatabase.open_existing(Path(loaded_settings(context).config.daemon.database))
    try:
        database.back_up(target)
    finally:
        database.close()
    click.echo(str(target))
