"""`slurmwrap templates`: which job templates there are, and what their parameters mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmwrap.commandline import loaded_settings

if TYPE_CHECKING:
    from slurmwrap.submit.templates import Template


@click.group("templates", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List the job templates and their parameters; without a word it lists them."""
    if context.invoked_subcommand is None:
        _list(context, as_json)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def list_templates(context: click.Context, as_json: bool) -> None:
    """List the templates; where two share a name, the one that submit would take."""
    _list(context, as_json)


@command.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def show_template(context: click.Context, name: str, as_json: bool) -> None:
    """Show what the template NAME (or a path) does, its parameters and its text."""
    from slurmwrap.submit.templates import load_template

    template = load_template(name, _folders(context))
    if as_json:
        click.echo(json.dumps({**_describe(template), "source": template.source}, indent=2))
        return
    click.echo(f"{template.name}: {template.description}")
    click.echo(f"  file: {template.path}")
    for parameter in template.parameters:
        click.echo(f"\n  --param {parameter.name}={parameter.type.upper()}")
        click.echo(f"      {parameter.meaning}")
        if parameter.choices:
            click.echo(f"      one of: {', '.join(str(item) for item in parameter.choices)}")
        default = "must be given" if parameter.default is None else f"default {parameter.default!r}"
        click.echo(f"      {default}")
    click.echo(f"\n{template.source}", nl=not template.source.endswith("\n"))


def _list(context: click.Context, as_json: bool) -> None:
    from slurmwrap.errors import PartialResultError, TemplateError, UnknownNameError
    from slurmwrap.submit.templates import find_templates, read_template

    templates, broken = [], []
    for path in find_templates(_folders(context)).values():
        try:
            templates.append(read_template(path))
        except (TemplateError, UnknownNameError) as error:
            # One broken file of a user must not hide the others.
            broken.append(error.message)
    if as_json:
        click.echo(json.dumps([_describe(template) for template in templates], indent=2))
    else:
        width = max((len(template.name) for template in templates), default=0)
        for template in templates:
            click.echo(f"{template.name:<{width}}  {template.description}")
            for parameter in template.parameters:
                click.echo(f"{'':<{width}}    --param {parameter.name}: {parameter.meaning}")
    if broken:
        raise PartialResultError(
            f"{len(broken)} template(s) can't be used: {'; '.join(broken)}",
            hint="mend the file or remove it",
        )


def _folders(context: click.Context) -> list[Path]:
    from slurmwrap.resources import shipped_folder
    from slurmwrap.submit.templates import template_folders

    site_folders = loaded_settings(context).config.submit.template_dirs
    return template_folders(site_folders, shipped_folder("sbatch_templates"))


def _describe(template: Template) -> dict[str, Any]:
    return {
        "name": template.name,
        "path": str(template.path),
        "description": template.description,
        "runs_on": template.runs_on,
        "parameters": [
            {
                "name": parameter.name,
                "type": parameter.type,
                "meaning": parameter.meaning,
                "default": parameter.default,
                "required": parameter.default is None,
                "choices": list(parameter.choices),
            }
            for parameter in template.parameters
        ],
    }
