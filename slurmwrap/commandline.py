"""What both programs' command lines share: lazy commands, settings, and how errors end them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmwrap import __version__
from slurmwrap.errors import SlurmwrapError, UnknownNameError

if TYPE_CHECKING:
    from slurmwrap.config import LoadedConfig


SECRET_READERS = frozenset({"slurmwrapd serve"})
"""Commands that read the secrets file: they send messages."""


class LazyGroup(click.Group):
    """A group whose commands are imported when called, so that --help stays light.

    ``lazy_commands`` maps each command to its line in --help; the command is the attribute
    ``command`` of the module ``lazy_package.NAME``.
    """

    def __init__(
        self, *, lazy_package: str, lazy_commands: Mapping[str, str], **attributes: Any
    ) -> None:
        super().__init__(**attributes)
        self._package = lazy_package
        self._lines = lazy_commands

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lines)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lines:
            raise UnknownNameError("command", cmd_name, self._lines)
        module = importlib.import_module(f"{self._package}.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._lines.items()))


def make_group(
    program: str, meaning: str, *, package: str, commands: Mapping[str, str]
) -> click.Group:
    """The top-level group of a program, with --version, --help and --config."""
    group = LazyGroup(
        name=program,
        help=meaning,
        lazy_package=package,
        lazy_commands=commands,
        callback=_remember_config_file,
        context_settings={"help_option_names": ["-h", "--help"]},
        params=[
            click.Option(
                ["--config", "config_file"],
                type=click.Path(path_type=Path),
                help="Configuration file; else $SLURMWRAP_CONFIG,"
                " else /etc/slurmwrap/slurmwrap.toml.",
            )
        ],
    )
    return click.version_option(__version__, prog_name=program)(group)


@click.pass_context
def _remember_config_file(context: click.Context, config_file: Path | None) -> None:
    context.obj = config_file


def loaded_settings(context: click.Context) -> LoadedConfig:
    """The settings in force for this call, with their origins."""
    from slurmwrap.config import load_config  # not every command needs settings

    with_secrets = context.command_path in SECRET_READERS
    return load_config(context.find_root().obj, with_secrets=with_secrets)


def run_command_line(command: click.Command, program: str) -> None:
    """Run a click command; our errors end it with their own exit code, never a traceback.

    A command's return value that is a number becomes the exit status.
    """
    try:
        status = command.main(prog_name=program, standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        click.echo("Aborted.", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except SlurmwrapError as error:
        click.echo(f"{program}: error: {error.message}", err=True)
        if error.hint:
            click.echo(f"  hint: {error.hint}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader (head, less) has gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    sys.exit(status if isinstance(status, int) else 0)
