"""`slurmwrapd agent`: read the cards of this node and send what they say."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

import click

from slurmwrap.commandline import loaded_settings
from slurmwrap.errors import UsageError

if TYPE_CHECKING:
    from slurmwrap.api import Readings
    from slurmwrap.config import Config


@click.command("agent", short_help="Read the cards of this node and send what they say.")
@click.option(
    "--node",
    metavar="NAME",
    help="Slurm's name of this node; else $SLURMD_NODENAME, else the short host name.",
)
@click.option("--once", is_flag=True, help="Read each card three times, print it, and end.")
@click.option("--json", "as_json", is_flag=True, help="With --once: print the message as JSON.")
@click.pass_context
def command(context: click.Context, node: str | None, once: bool, as_json: bool) -> None:
    """Read each card of this node once a second and send one message per interval.

    Runs until SIGTERM. While slurmwrapd is away, messages wait in agents.spool_dir.
    """
    from slurmwrapd.agent.loop import node_name  # the driver's binding comes with it

    if as_json and not once:
        raise UsageError("--json prints one interval; it needs --once")
    config = loaded_settings(context).config
    name = node_name(node, os.environ, socket.gethostname())
    if once:
        _print_once(config, name, as_json=as_json)
    else:
        _run(config, name)


def _run(config: Config, node: str) -> None:
    import logging
    from pathlib import Path

    from slurmwrap.api import Client, Nothing
    from slurmwrap.gpu.nvml import NvmlReader
    from slurmwrapd.agent.loop import Agent, read_boot_id
    from slurmwrapd.agent.memory import CardMemory
    from slurmwrapd.agent.sender import Sender, spread_seconds
    from slurmwrapd.agent.spool import Spool
    from slurmwrapd.agent.stopping import StopRequest

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    # urllib3 warns of each of its own retries; the sender says it once.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    settings = config.agents
    stop = StopRequest()
    stop.install()
    spool = Spool(Path(settings.spool_dir), settings.spool_messages)
    boot_id = read_boot_id()
    memory = CardMemory(spool.folder, boot_id)
    client = Client(config)

    def send(message: Readings) -> None:
        client.call("push_readings", message, Nothing)

    sender = Sender(spool, send, delay_seconds=spread_seconds(node, settings.interval))
    reader = NvmlReader(
        explicit_minors=settings.cards.get(node, ()), remembered=memory.cards_of_this_boot
    )
    Agent(
        node=node,
        boot_id=boot_id,
        reader=reader,
        settings=settings,
        spool=spool,
        sender=sender,
        memory=memory,
        stop=stop,
    ).run()
    # A call asks munged and waits for the daemon, once more if it could not connect.
    sender.finish(2.0 * config.daemon.request_timeout + 5.0)
    spool.close()


def _print_once(config: Config, node: str, *, as_json: bool) -> None:
    import msgspec

    from slurmwrap.gpu.nvml import NvmlReader
    from slurmwrapd.agent.loop import read_boot_id, read_once

    reader = NvmlReader(explicit_minors=config.agents.cards.get(node, ()))
    message = read_once(reader, config.agents, node, read_boot_id())
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(message)))
    else:
        click.echo(_as_text(message))


def _as_text(message: Readings) -> str:
    from slurmwrap.units import format_size

    lines = [f"node {message.node}: {len(message.readings)} cards"]
    for reading in message.readings:
        words = [f"card {reading.index}", reading.gpu_name or "unknown model", reading.uuid or "-"]
        if reading.utilisation_mean is not None:
            words.append(f"{reading.utilisation_mean:.0f} %")
        else:
            words.append(f"utilisation {reading.status}")
        if reading.memory_used_bytes is not None and reading.memory_total_bytes is not None:
            used = format_size(reading.memory_used_bytes)
            words.append(f"{used} of {format_size(reading.memory_total_bytes)}")
        if reading.power_mean_watts is not None:
            words.append(f"{reading.power_mean_watts:.0f} W")
        if reading.processes is not None:
            words.append(f"{len(reading.processes)} processes")
        if reading.error:
            words.append(reading.error)
        lines.append("  " + ", ".join(words))
    return "\n".join(lines)
