"""The command `slurmwrap`: one file per command, loaded when it is used."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click

from slurmwrap import __version__
from slurmwrap.errors import SlurmwrapError, UnknownNameError

COMMANDS = {
    "submit": "Submit a job from a template.",
    "run": "Supervise a command inside a job (written into scripts by submit).",
    "stage": "Copy hot data to the node's local disk, or reuse what is there.",
    "status": "Show jobs: utilisation per card, card-hours, cost, what the rules say.",
    "budget": "Show what is left of the budgets that you use.",
    "bill": "Print the card-hour bill of a month.",
    "templates": "List the job templates and their parameters.",
    "config": "Show the settings in force and where they come from.",
}
"""Every command and its line in --help; its module is slurmwrap.cli.NAME."""


class LazyGroup(click.Group):
    """Commands are imported when called, so that --help stays light."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            raise UnknownNameError("command", cmd_name, COMMANDS)
        module = importlib.import_module(f"slurmwrap.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="slurmwrap")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="Configuration file; else $SLURMWRAP_CONFIG, else /etc/slurmwrap/slurmwrap.toml.",
)
@click.pass_context
def group(context: click.Context, config_file: Path | None) -> None:
    """GPU jobs on Slurm: submitted readably, watched honestly, billed to the second."""
    context.obj = config_file


def run_command_line(command: click.Command, program: str) -> None:
    """Run a click command; our errors end it with their own exit code, never a traceback."""
    try:
        status = command.main(prog_name=program, standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("Aborted.", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except SlurmwrapError as error:
        report_error(error, program)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader (head, less) has gone; Python would complain again at exit.
        sys.stdout = None
        sys.exit(141)
    sys.exit(status if isinstance(status, int) else 0)


def report_error(error: SlurmwrapError, program: str) -> None:
    """Print what went wrong and the next step on stderr."""
    click.echo(f"{program}: error: {error.message}", err=True)
    if error.hint:
        click.echo(f"  hint: {error.hint}", err=True)


def settings_of(context: click.Context) -> Any:
    """The settings for this call, read when a command first asks for them."""
    from slurmwrap.config import load_config  # not every command needs settings

    return load_config(context.find_root().obj).config


def main() -> None:
    """Entry point of `slurmwrap`."""
    run_command_line(group, "slurmwrap")
