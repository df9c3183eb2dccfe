"""Job templates: where they are found, and the header that declares their parameters.

A template is a Jinja file ``NAME.sbatch.j2`` that opens with a comment in TOML::

    {# slurmwrap:
    description = "One node; the command runs once."

    [parameters.setup]
    type = "text"
    default = ""
    meaning = "File that bash reads before the command."
    #}
"""

from __future__ import annotations

import os.path
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from slurmwrap.errors import TemplateError, UnknownNameError, UsageError

SUFFIX = ".sbatch.j2"
USER_FOLDER = Path("~/.config/slurmwrap/templates")

ParameterValue = str | int | float | bool

_HEADER = re.compile(r"\{#\s*slurmwrap:(.*?)#\}", re.DOTALL)
_TYPES: dict[str, type[Any]] = {
    "text": str,
    "path": str,
    "whole": int,
    "number": float,
    "switch": bool,
}
_HEADER_KEYS = ("description", "parameters", "runs_on")
_PARAMETER_KEYS = ("type", "default", "meaning", "choices")
_RUNS_ON = ("first-node", "every-node")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Parameter(NamedTuple):
    """One declared parameter of a template."""

    name: str
    type: str
    """``text``, ``path`` (made absolute), ``whole``, ``number`` or ``switch``."""
    meaning: str
    default: ParameterValue | None = None
    """None: it must be given."""
    choices: tuple[ParameterValue, ...] = ()


class Template(NamedTuple):
    """A template as found: its header read, its body not yet rendered."""

    name: str
    path: Path
    description: str
    parameters: tuple[Parameter, ...]
    runs_on: str
    """``first-node``: the command runs once; ``every-node``: a launcher takes it to all."""
    source: str
    """The whole file: its header is a comment to Jinja too, so errors name the right lines."""
    notices: tuple[str, ...] = ()
    """What was put right while reading it."""


def template_folders(site_folders: tuple[str, ...], shipped: Path) -> list[Path]:
    """The folders searched, first to last: the user's, the site's, the shipped one."""
    folders = [USER_FOLDER.expanduser(), *(Path(folder).expanduser() for folder in site_folders)]
    return [*folders, shipped]


def find_templates(folders: list[Path]) -> dict[str, Path]:
    """The file of each template's name; a folder that comes first wins."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob(f"*{SUFFIX}")) if os.path.isdir(folder) else []:
            found.setdefault(path.name.removesuffix(SUFFIX), path)
    return dict(sorted(found.items()))


def load_template(name: str, folders: list[Path]) -> Template:
    """The template of a name, or of a path when the name holds a slash.

    Raises:
        UnknownNameError: no folder has it.
        TemplateError: it can't be read, or its header is not as it should be.
    """
    if "/" in name:
        return read_template(Path(name).expanduser())
    path = _direct_hit(name, folders)
    if path is None:
        raise UnknownNameError(
            "template",
            name,
            find_templates(folders),
            hint="`slurmwrap templates` lists them; a path must hold a slash: ./mine.sbatch.j2",
        )
    return read_template(path)


def _direct_hit(name: str, folders: list[Path]) -> Path | None:
    candidates = (folder / f"{name}{SUFFIX}" for folder in folders)
    # A folder that can't be entered (another's HOME, after sudo) is none: Path.is_file raises.
    return next((path for path in candidates if os.path.isfile(path)), None)


def read_template(path: Path) -> Template:
    """A template file, with its line ends made Unix's."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise TemplateError(f"can't read template {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TemplateError(f"template {path} is not UTF-8: {error}") from error
    notices = []
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        notices.append(f"template {path} has DOS line ends, which sbatch refuses; read without")
    header = _HEADER.match(text)
    if header is None:
        raise TemplateError(
            f"template {path} does not open with its header",
            hint="its first line is `{# slurmwrap:`, then TOML, then `#}`; see docs/templates.md",
        )
    document = _read_header(path, header[1])
    return Template(
        name=path.name.removesuffix(SUFFIX),
        path=path,
        description=document["description"],
        parameters=tuple(
            _read_parameter(path, name, table)
            for name, table in document.get("parameters", {}).items()
        ),
        runs_on=document.get("runs_on", "first-node"),
        source=text,
        notices=tuple(notices),
    )


def _read_header(path: Path, text: str) -> dict[str, Any]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TemplateError(f"the header of template {path} is not valid TOML: {error}") from error
    for key in document:
        if key not in _HEADER_KEYS:
            raise UnknownNameError("header key", key, _HEADER_KEYS, hint=f"in template {path}")
    if not isinstance(document.get("description"), str):
        raise TemplateError(f'the header of template {path} lacks description = "…"')
    if document.get("runs_on", "first-node") not in _RUNS_ON:
        raise UnknownNameError(
            "value of runs_on", str(document["runs_on"]), _RUNS_ON, hint=f"in template {path}"
        )
    if not isinstance(document.get("parameters", {}), dict):
        raise TemplateError(f"template {path}: parameters are written [parameters.NAME]")
    return document


def _read_parameter(path: Path, name: str, table: Any) -> Parameter:
    where = f"template {path}: parameter {name!r}"
    if not _NAME.fullmatch(name):
        raise TemplateError(f"{where}: names are lower-case letters, digits and _")
    if not isinstance(table, dict):
        raise TemplateError(f"{where} must be a table [parameters.{name}]")
    for key in table:
        if key not in _PARAMETER_KEYS:
            raise UnknownNameError("key of a parameter", key, _PARAMETER_KEYS, hint=where)
    if not isinstance(table.get("meaning"), str):
        raise TemplateError(f'{where} lacks meaning = "…"')
    kind = table.get("type", "text")
    if kind not in _TYPES:
        raise UnknownNameError("type of a parameter", str(kind), _TYPES, hint=where)
    values = [*table.get("choices", []), *([table["default"]] if "default" in table else [])]
    for value in values:
        if not _has_type(value, kind):
            raise TemplateError(f"{where}: {value!r} is not of its type {kind!r}")
    choices = tuple(table.get("choices", ()))
    if choices and "default" in table and table["default"] not in choices:
        raise TemplateError(f"{where}: its default {table['default']!r} is none of its choices")
    return Parameter(
        name=name,
        type=kind,
        meaning=table["meaning"],
        default=table.get("default"),
        choices=choices,
    )


def _has_type(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "switch"
    if kind == "number":
        return isinstance(value, int | float)
    return isinstance(value, _TYPES[kind])


def read_parameters(template: Template, texts: tuple[str, ...]) -> dict[str, ParameterValue]:
    """The value of every parameter, from ``--param KEY=VALUE`` and the defaults.

    Raises:
        UnknownNameError: the template declares no such parameter, or not that choice.
        UsageError: a value of the wrong form, a parameter given twice or not at all.
    """
    declared = {parameter.name: parameter for parameter in template.parameters}
    given: dict[str, ParameterValue] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if name not in declared:
            raise UnknownNameError(
                f"parameter of template {template.name}",
                name,
                declared,
                hint=f"`slurmwrap templates show {template.name}` explains them",
            )
        if not separator:
            raise UsageError(f"--param {name} has no value", hint=f"write --param {name}=VALUE")
        if name in given:
            raise UsageError(f"--param {name} was given twice", hint="give it once")
        given[name] = _parse_parameter(declared[name], value)
    missing = [
        name for name, item in declared.items() if name not in given and item.default is None
    ]
    if missing:
        raise UsageError(
            f"template {template.name} needs --param {missing[0]}=VALUE:"
            f" {declared[missing[0]].meaning}"
        )
    return {**_defaults(declared), **given}


def _defaults(declared: Mapping[str, Parameter]) -> dict[str, ParameterValue]:
    return {name: item.default for name, item in declared.items() if item.default is not None}


def _parse_parameter(parameter: Parameter, text: str) -> ParameterValue:
    value: ParameterValue
    try:
        if parameter.type == "switch":
            value = {"true": True, "false": False}[text.lower()]
        elif parameter.type == "path" and text:
            # The job may run in another folder than the one it is submitted from.
            value = os.path.abspath(Path(text).expanduser())
        else:
            value = _TYPES[parameter.type](text)
    except (ValueError, KeyError):
        expected = {"switch": "true or false", "whole": "a whole number"}.get(
            parameter.type, f"a {parameter.type}"
        )
        raise UsageError(f"--param {parameter.name}: {text!r} is not {expected}") from None
    if parameter.choices and value not in parameter.choices:
        raise UnknownNameError(
            f"value of parameter {parameter.name}", text, [str(item) for item in parameter.choices]
        )
    return value
