"""Writes docs/settings.md and docs/errors.md from the code's own tables: `./dev docs`."""

from __future__ import annotations

import inspect
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from slurmwrap.config.rules_file import rule_setting_rows
from slurmwrap.config.settings import (
    SECTIONS,
    BudgetEntry,
    SettingRow,
    describe_bounds,
    setting_rows,
)
from slurmwrap.errors import SlurmwrapError, error_kinds

FOLDER = Path(__file__).resolve().parent

_FORMS = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "Duration": "duration",
    "Decimal | None": "amount in quotes",
    "tuple[str, ...]": "list of texts",
    "tuple[int, ...]": "list of whole numbers",
    "StringLists": "table of lists of texts",
    "IndexLists": "table of lists of whole numbers",
}

_SETTINGS_HEAD = """\
# Settings

<!-- Written by `./dev docs` from slurmwrap/config/settings.py. -->

slurmwrap and slurmwrapd read one TOML file: the one named by `--config`, else by
`$SLURMWRAP_CONFIG`, else `/etc/slurmwrap/slurmwrap.toml` when it exists. Each setting can be
overridden by an environment variable `SLURMWRAP_SECTION_KEY`, for example
`SLURMWRAP_DAEMON_URL`; lists are then separated by commas. An unknown section or setting is an
error that lists the known ones. `slurmwrap config` shows every value in force and where it
comes from. A variable of a known section that names no setting is an error too.

Targets of `[notify]` that hold a password or token stand in a second file, `notify.secrets_file`,
which slurmwrapd alone reads: [security](security.md).

Durations are written with their unit: `"40s"`, `"90min"`, `"2h"`, `"1d12h"`. A bare number is
refused. Amounts of money and card-hours are written in quotes, so that no digit is lost.
"""

_RULES_HEAD = """\
# Settings of rules

Their own file, `rules.toml`, named by `rules.file` and read by slurmwrapd at its start and at
SIGHUP. What they mean in practice: [rules](rules/README.md). Durations and unknown names are
treated as above; the environment overrides nothing here.
"""

_ERRORS_HEAD = """\
# Errors and exit codes

<!-- Written by `./dev docs` from slurmwrap/errors.py. -->

Every command ends with one of these exit codes. An error is one line on standard error that
names the thing, what was expected and what was found; where there is something to do next, a
second line says it. Codes from 128 are signals, as in the shell: 130 is Ctrl-C, 141 a reader
that closed the pipe.

`slurmwrap run` is the exception: it ends with the code of the command it supervises.

| code | kind | when |
|---|---|---|
| 0 | | success |
"""


def render_settings() -> str:
    """The settings page: slurmwrap.toml, then rules.toml."""
    classes: dict[str, type[Any]] = {**SECTIONS, "budget": BudgetEntry}
    parts = [_SETTINGS_HEAD]
    for section, rows in _by_section(setting_rows()).items():
        title = f"[[{section}]]" if section == "budget" else f"[{section}]"
        parts.append(_render_section(title, _first_paragraph(classes[section]), rows))
    parts.append(_RULES_HEAD)
    for section, rows in _by_section(rule_setting_rows()).items():
        parts.append(_render_section(f"[{section}]", "", rows))
    return "\n".join(parts)


def _by_section(rows: list[SettingRow]) -> dict[str, list[SettingRow]]:
    sections: dict[str, list[SettingRow]] = {}
    for row in rows:
        sections.setdefault(row.section, []).append(row)
    return sections


def _render_section(title: str, meaning: str, rows: list[SettingRow]) -> str:
    lines = [f"## {title}", ""]
    if meaning:
        lines += [meaning, ""]
    lines += ["| setting | form | default | meaning |", "|---|---|---|---|"]
    lines += [_render_row(row) for row in rows]
    return "\n".join(lines) + "\n"


def render_errors() -> str:
    """The page of errors and exit codes."""
    lines = [
        f"| {kind.exit_code} | `{kind.__name__}` | {_escape(_describe_kind(kind))} |"
        for kind in error_kinds()
    ]
    return _ERRORS_HEAD + "\n".join(lines) + "\n"


def render_value(value: Any, form: str) -> str:
    """A setting's value as it is written in the file; empty for a value that must be given."""
    if value is None:
        return ""
    if form == "Duration":
        return f'"{_write_duration(value)}"'
    if isinstance(value, Decimal):
        return f'"{value}"'
    if isinstance(value, dict):
        return "{}"
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def _write_duration(seconds: int) -> str:
    text = ""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            text += f"{count}{unit}"
    return text


def _render_row(row: SettingRow) -> str:
    form = _FORMS[row.form]
    if row.choices:
        form = " or ".join(f"`{choice}`" for choice in row.choices)
    bounds = describe_bounds(row.form == "Duration", row.at_least, row.at_most)
    if bounds:
        form += f", {bounds}"
    default = render_value(row.default, row.form)
    shown = f"`{default}`" if default else ""
    return f"| `{row.name}` | {form} | {shown} | {_escape(row.meaning)} |"


def _describe_kind(kind: type[SlurmwrapError]) -> str:
    if kind is SlurmwrapError:
        return "Anything else that went wrong, an unexpected failure included."
    return _first_paragraph(kind)


def _first_paragraph(documented: type[Any]) -> str:
    text = inspect.getdoc(documented) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`")


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    for name, text in (("settings.md", render_settings()), ("errors.md", render_errors())):
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
