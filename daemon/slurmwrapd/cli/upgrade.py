"""`slurmwrapd upgrade`: brings an older database up to date."""

from __future__ import annotations

import time
from pathlib import Path

import click

from slurmwrap.commandline import loaded_settings


@click.command(name="upgrade")
@click.pass_context
def command(context: click.Context) -> None:
    """Bring an older database up to date, after a backup beside it. Stop the service first."""
    from slurmwrap.store.database import StoreDatabase  # heavy
    from slurmwrapd.serve import only_instance

    path = Path(loaded_settings(context).config.daemon.database)
    with only_instance(path):
        database = StoreDatabase.open_existing(path, any_schema=True)
        try:
            backup = path.with_name(f"{path.name}.before-upgrade-{int(time.time())}")
            database.back_up(backup)
        finally:
            database.close()
        click.echo(f"backup: {backup}", err=True)
        StoreDatabase.open(path, upgrade=True).close()
    click.echo(f"{path} is up to date")
