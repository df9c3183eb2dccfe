"""`slurmwrapd serve`: the service of a cluster."""

from __future__ import annotations

import logging

import click

from slurmwrap.commandline import loaded_settings


@click.command(name="serve")
@click.option("--once", is_flag=True, help="Run every task once and exit; 70 if one failed.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What is written to stderr.",
)
@click.pass_context
def command(context: click.Context, once: bool, log_level: str) -> int:
    """Collect, watch, account, alert and answer, until told to stop.

    Stays in the foreground. SIGTERM finishes what is under way, a second one stops at once;
    SIGHUP reads settings, rules and prices again, and keeps the old ones if the new are wrong.
    """
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for noisy in ("apscheduler", "apprise", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    from slurmwrapd.serve import run_once, serve  # heavy: scheduler, server, store
    from slurmwrapd.service import Service

    config = loaded_settings(context).config
    if not once:
        serve(config, lambda: loaded_settings(context).config)
        return 0
    service = Service.start(config)
    try:
        return 0 if run_once(service) else 70
    finally:
        service.store.close()
