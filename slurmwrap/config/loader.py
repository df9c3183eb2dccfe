"""Reading settings: option > environment SLURMWRAP_SECTION_KEY > file > default.

Nothing is accepted that the table of settings does not know, and every value remembers
where it came from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, get_type_hints

from slurmwrap.config.settings import (
    SECTIONS,
    BudgetEntry,
    Config,
    Duration,
    IndexLists,
    NotifySettings,
    StringLists,
    describe_bounds,
    rows_of_table,
)
from slurmwrap.errors import ConfigError, UnknownNameError
from slurmwrap.setting import declared_fields
from slurmwrap.units import parse_duration

SITE_FILE = Path("/etc/slurmwrap/slurmwrap.toml")
FILE_VARIABLE = "SLURMWRAP_CONFIG"
_PREFIX = "SLURMWRAP_"


class LoadedConfig(NamedTuple):
    """The settings, the file they came from, and the origin of each."""

    config: Config
    file: Path | None
    origins: Mapping[str, str]
    """``section.key`` → ``default``, ``file PATH`` or ``environment NAME``."""


class Layer(NamedTuple):
    """One file that was read."""

    file: str
    document: Mapping[str, Any]


def load_config(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    with_secrets: bool = False,
) -> LoadedConfig:
    """The settings in force for this process.

    Args:
        path: the file to read; else ``$SLURMWRAP_CONFIG``, else the site's file if there is
            one. A file that was asked for by name must exist.
        environment: variables to take overrides from; the process's own when None.
        with_secrets: read the secrets file too, as the service does. What it says beats the file.

    Raises:
        ConfigError: a file that can't be read, or a value of the wrong form; secrets that
            others can read.
        UnknownNameError: a section or key that is no setting.
    """
    variables = os.environ if environment is None else environment
    chosen = _choose_file(path, variables)
    document = read_toml(chosen) if chosen is not None else {}
    known_sections = [*SECTIONS, "budget"]
    for section in document:
        if section not in known_sections:
            raise UnknownNameError("section", section, known_sections, hint=f"in {chosen}")
    layers = [Layer(str(chosen or "environment"), document)]
    if with_secrets:
        layers += _read_secrets(layers, variables)
    _refuse_misspelt_variables(variables)
    origins: dict[str, str] = {}
    sections = {
        section: _build_section(section, layers, variables, origins) for section in SECTIONS
    }
    blocks = document.get("budget", [])
    if not isinstance(blocks, list):
        raise ConfigError(f"{chosen}: budgets are written as [[budget]] blocks")
    budget = tuple(
        _build_budget(block, number, str(chosen)) for number, block in enumerate(blocks, 1)
    )
    config = Config(**sections, budget=budget)
    if "billing.timezone" in origins:
        _check_zone(config.billing.timezone)
    return LoadedConfig(config=config, file=chosen, origins=origins)


def _build_section(
    section: str,
    layers: Sequence[Layer],
    variables: Mapping[str, str],
    origins: dict[str, str],
) -> Any:
    """One table from the files and the environment, the later ones first; notes the origins."""
    merged: dict[str, Any] = {}
    found: dict[str, str] = {}
    for layer in layers:
        values = layer.document.get(section, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{layer.file}: [{section}] must be a table")
        merged.update(values)
        found.update(dict.fromkeys(values, f"file {layer.file}"))
    for key, name in _environment_names(section, variables).items():
        merged[key] = variables[name]
        found[key] = f"environment {name}"
    origins.update({f"{section}.{key}": origin for key, origin in found.items()})
    return build_settings(SECTIONS[section], section, merged, layers[0].file, found)


def _choose_file(path: Path | None, variables: Mapping[str, str]) -> Path | None:
    if path is not None:
        return path
    named = variables.get(FILE_VARIABLE)
    if named:
        return Path(named)
    return SITE_FILE if SITE_FILE.exists() else None


def read_toml(
    path: Path,
    what: str = "configuration file",
    hint: str = f"name another with --config or {FILE_VARIABLE}",
) -> dict[str, Any]:
    """The document in a TOML file; ``what`` it is and the ``hint`` go into the error.

    Raises:
        ConfigError: it can't be read, or is not TOML in UTF-8.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"can't read {what} {path}: {error.strerror}", hint=hint) from error
    return parse_toml(content, path)


def parse_toml(content: bytes, path: Path) -> dict[str, Any]:
    """The document in the content of a TOML file.

    Raises:
        ConfigError: it is not TOML in UTF-8.
    """
    import tomllib  # without a file there is nothing to parse

    try:
        return tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _read_secrets(layers: Sequence[Layer], variables: Mapping[str, str]) -> list[Layer]:
    """The secrets file as one more layer; nothing when the default one is not there."""
    from slurmwrap.config.secrets import read_private_file  # the service alone

    origins: dict[str, str] = {}
    settings = _build_section("notify", layers, variables, origins)
    path = Path(settings.secrets_file)
    if "notify.secrets_file" not in origins and not path.exists():
        return []
    secrets = parse_toml(read_private_file(path), path)
    allowed = [row.name for row in rows_of_table("notify", NotifySettings) if row.secret]
    for section, values in secrets.items():
        keys = values if isinstance(values, dict) else [""]
        for key in keys:
            if f"{section}.{key}" not in allowed:
                name = f"{section}.{key}".rstrip(".")
                raise UnknownNameError("secret", name, allowed, hint=f"in {path}")
    return [Layer(str(path), secrets)]


def _refuse_misspelt_variables(variables: Mapping[str, str]) -> None:
    """A variable of a known section that is no setting; other programs' are left alone."""
    for variable in variables:
        if not variable.startswith(_PREFIX):
            continue
        for section, table in SECTIONS.items():
            start = f"{_PREFIX}{section.upper()}_"
            known = [start + key.upper() for key in declared_fields(table)]
            if variable.startswith(start) and variable not in known:
                raise UnknownNameError(
                    "variable", variable, known, hint="unset it, or write it as it is known"
                )


def _environment_names(section: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Per key, the variable that overrides it."""
    names = {key: f"{_PREFIX}{section}_{key}".upper() for key in declared_fields(SECTIONS[section])}
    return {key: name for key, name in names.items() if name in variables}


def build_settings(
    settings_class: type[Any],
    section: str,
    values: Mapping[str, Any],
    where: str,
    origins: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """One table of a file as a record whose fields are declared with ``setting()``.

    Args:
        where: the file, for errors.
        origins: per key, where its value was found if not there.

    Raises:
        ConfigError: a value of the wrong form, or one that does not fit the others.
        UnknownNameError: a key that is no setting, or a word that is none of the choices.
    """
    known = declared_fields(settings_class)
    # Reading the annotations takes longer than all else here, and most tables are empty.
    hints = get_type_hints(settings_class) if values else {}
    parsed: dict[str, Any] = {}
    for key, value in values.items():
        place = origins.get(key, where).removeprefix("file ")
        name = f"{section}.{key}"
        if key not in known:
            names = [f"{section}.{other}" for other in known]
            raise UnknownNameError("setting", name, names, hint=f"in {place}")
        rules = known[key].metadata
        try:
            parsed[key] = parse_value(hints[key], value)
        except ValueError as error:
            # A secret must not get into a log by way of its own error.
            words = "must be a list of URLs in quotes" if rules["secret"] else error
            raise ConfigError(f"{place}: {name}: {words}") from None
        problem = find_bounds_problem(hints[key], parsed[key], rules)
        if problem:
            raise ConfigError(f"{place}: {name}: {value!r} {problem}")
        if rules["choices"] and parsed[key] not in rules["choices"]:
            raise UnknownNameError(
                f"value of {name}", str(value), rules["choices"], hint=f"in {place}"
            )
    try:
        return settings_class(**parsed)
    except ValueError as error:
        raise ConfigError(f"{where}: [{section}] {error}") from error


def find_bounds_problem(form: Any, value: Any, rules: Mapping[str, Any]) -> str:
    """What is wrong with a number that its setting's bounds don't hold; empty when nothing is."""
    least, most = rules["at_least"], rules["at_most"]
    if (least is None or value >= least) and (most is None or value <= most):
        return ""
    return f"is out of bounds: it must be {describe_bounds(form is Duration, least, most)}"


def _build_budget(block: Any, number: int, where: str) -> BudgetEntry:
    if not isinstance(block, dict):
        raise ConfigError(f"{where}: [[budget]] block {number} must be a table")
    entry: BudgetEntry = build_settings(
        BudgetEntry, "budget", block, f"{where}, [[budget]] block {number}"
    )
    if not entry.account and not entry.user:
        raise ConfigError(f"{where}: [[budget]] block {number} names neither account nor user")
    if (entry.card_hours is None) == (entry.money is None):
        raise ConfigError(f"{where}: [[budget]] block {number} needs either card_hours or money")
    amount = entry.card_hours if entry.card_hours is not None else entry.money
    if amount is None or not amount.is_finite() or amount <= 0:
        raise ConfigError(f"{where}: [[budget]] block {number}: {amount} is not a positive amount")
    if not entry.thresholds or any(percent <= 0 for percent in entry.thresholds):
        raise ConfigError(
            f"{where}: [[budget]] block {number}: thresholds are positive percentages"
        )
    return entry


def _check_zone(name: str) -> None:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # most commands need no zone

    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ConfigError(
            f"billing.timezone: {name!r} is not a time zone; write for example Asia/Shanghai"
        ) from error


def parse_value(form: Any, value: Any) -> Any:
    """A setting's value in the form its annotation names; text is read as in the environment.

    Raises:
        ValueError: the value has another form.
    """
    parser = _PARSERS.get(form)
    if parser is None:
        raise AssertionError(f"no parser for settings of form {form!r}")
    return parser(value)


def _parse_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} must be text in quotes")
    return value


def _parse_whole(value: Any) -> int:
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} must be a whole number")
    return value


def _parse_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} must be a number")
    number = float(value)
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError(f"{value!r} must be a finite number")
    return number


def _parse_switch(value: Any) -> bool:
    words = {"true": True, "false": False}
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} must be true or false")
    return value


def _parse_duration_value(value: Any) -> Duration:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} must be a duration in quotes, for example 30s, 90min or 2h")
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError(f"{value!r} must be longer than zero")
    return Duration(seconds)


def _parse_amount(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | str):
        # A TOML float has already lost the digits that were typed.
        raise ValueError(f'{value!r} must be a whole number or an amount in quotes: "35.00"')
    try:
        return Decimal(value)
    except InvalidOperation:
        raise ValueError(f"{value!r} is not an amount") from None


def _parse_list(item: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def parse(value: Any) -> tuple[Any, ...]:
        parts = (
            [part.strip() for part in value.split(",") if part.strip()]
            if isinstance(value, str)
            else value
        )
        if not isinstance(parts, list):
            raise ValueError(f"{value!r} must be a list")
        return tuple(item(part) for part in parts)

    return parse


def _parse_table(item: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    def parse(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{value!r} must be a table")
        return {key: item(part) for key, part in value.items()}

    return parse


_PARSERS: dict[Any, Callable[[Any], Any]] = {
    str: _parse_text,
    int: _parse_whole,
    float: _parse_number,
    bool: _parse_switch,
    Duration: _parse_duration_value,
    Decimal | None: _parse_amount,
    tuple[str, ...]: _parse_list(_parse_text),
    tuple[int, ...]: _parse_list(_parse_whole),
    StringLists: _parse_table(_parse_list(_parse_text)),
    IndexLists: _parse_table(_parse_list(_parse_whole)),
}
