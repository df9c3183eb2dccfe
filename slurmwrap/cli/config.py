"""`slurmwrap config`: the settings in force, and where each comes from."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from slurmwrap.commandline import loaded_settings

if TYPE_CHECKING:
    from slurmwrap.config import LoadedConfig


@click.group("config", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Show the settings in force and where they come from; without a word it lists them."""
    if context.invoked_subcommand is None:
        _list(loaded_settings(context), as_json)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def list_settings(context: click.Context, as_json: bool) -> None:
    """List every setting: its value and its origin (default, file or environment)."""
    _list(loaded_settings(context), as_json)


@command.command("check")
@click.pass_context
def check_settings(context: click.Context) -> None:
    """Read the settings; say which file was read, and whether all of it is valid."""
    loaded = loaded_settings(context)
    where = str(loaded.file) if loaded.file is not None else "no file, the defaults"
    changed = sum(origin != "default" for origin in loaded.origins.values())
    click.echo(f"valid: {where}; settings that are not the default: {changed}")


def _list(loaded: LoadedConfig, as_json: bool) -> None:
    rows = _rows(loaded)
    budgets = [_plain(entry.values()) for entry in loaded.config.budget]
    if as_json:
        document = {
            "file": str(loaded.file) if loaded.file is not None else None,
            "settings": rows,
            "budgets": budgets,
        }
        click.echo(json.dumps(document, indent=2))
        return
    widest = max(len(row["name"]) for row in rows)
    for row in rows:
        value = json.dumps(row["value"], ensure_ascii=False)
        click.echo(f"{row['name']:<{widest}} = {value}  ({row['origin']})")
    for entry in budgets:
        words = ", ".join(
            f"{key} = {json.dumps(value, ensure_ascii=False)}"
            for key, value in entry.items()
            if value not in (None, "")
        )
        click.echo(f"[[budget]] {words}  (file {loaded.file})")


def _rows(loaded: LoadedConfig) -> list[dict[str, Any]]:
    """Name, value and origin of every setting, in the order of the file."""
    from slurmwrap.config.settings import setting_rows
    from slurmwrap.notify.delivery import mask_url

    rows = []
    for row in setting_rows():
        if row.section == "budget":
            continue
        value = getattr(getattr(loaded.config, row.section), row.key)
        if row.secret:
            value = [mask_url(url) for url in value]
        rows.append(
            {
                "name": row.name,
                "value": _plain(value, is_duration=row.form == "Duration"),
                "origin": loaded.origins.get(row.name, "default"),
            }
        )
    return rows


def _plain(value: Any, *, is_duration: bool = False) -> Any:
    """The value as it would be written in the file: amounts and durations are text."""
    if is_duration:
        return _write_duration(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _write_duration(seconds: int) -> str:
    """Seconds as the file has them, in the largest unit that fits: ``30s``, ``2h``, ``62d``."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
