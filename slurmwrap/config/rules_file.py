"""rules.toml: which rules there are, how far each may go, who is exempt, and the breaker."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from slurmwrap.config.loader import build_settings, read_toml
from slurmwrap.config.settings import SettingRow, rows_of_table
from slurmwrap.errors import ConfigError, UnknownNameError
from slurmwrap.rules.breaker import BreakerSettings
from slurmwrap.rules.ruleset import ConfiguredRule, Exemptions, Rule, RuleSet

ENTRY_POINT_GROUP = "slurmwrap.rules"

_OTHER_TABLES: dict[str, type[Any]] = {"exemptions": Exemptions, "breaker": BreakerSettings}


def load_rules(path: Path, rules: Mapping[str, Rule] | None = None) -> RuleSet:
    """The rules of a site, each with its settings.

    A rule without a table in the file works with its defaults: it observes.

    Args:
        path: the rules file.
        rules: the rules by id; those that are installed when None.

    Raises:
        ConfigError: a file or rule that can't be read, or a value of the wrong form.
        UnknownNameError: a table that is no rule, or a key that is no setting of it.
    """
    document = read_toml(
        path, "rules file", "name another with rules.file, or copy the etc/rules.toml we ship"
    )
    return parse_rules(document, str(path), rules)


def parse_rules(
    document: Mapping[str, Any], where: str, rules: Mapping[str, Rule] | None = None
) -> RuleSet:
    """As load_rules, from a document that was read already; ``where`` names it in errors."""
    known = find_rules() if rules is None else rules
    tables = [*known, *_OTHER_TABLES]
    for name, table in document.items():
        if name not in tables:
            raise UnknownNameError("rule", name, tables, hint=f"in {where}")
        if not isinstance(table, dict):
            raise ConfigError(f"{where}: {name} must be a table: [{name}]")
    others = {
        name: build_settings(settings_type, name, document.get(name, {}), where)
        for name, settings_type in _OTHER_TABLES.items()
    }
    return RuleSet(
        rules=tuple(
            ConfiguredRule(
                rule=rule,
                settings=build_settings(
                    rule.settings_type, rule_id, document.get(rule_id, {}), where
                ),
            )
            for rule_id, rule in known.items()
        ),
        **others,
    )


def find_rules() -> dict[str, Rule]:
    """The installed rules by id, ours and a site's own, in order of their ids.

    Raises:
        ConfigError: a rule that can't be imported, or whose id is not its entry point's name.
    """
    found: dict[str, Rule] = {}
    for entry in sorted(metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda e: e.name):
        try:
            rule: Rule = entry.load()()
        except Exception as error:  # a site's own code may fail in any way
            raise ConfigError(
                f"rule {entry.name!r} ({entry.value}) can't be loaded:"
                f" {type(error).__name__}: {error}"
            ) from error
        if entry.name in found:
            raise ConfigError(f"two installed packages offer a rule {entry.name!r}")
        if rule.id != entry.name or entry.name in _OTHER_TABLES:
            raise ConfigError(
                f"rule {entry.name!r} ({entry.value}) calls itself {rule.id!r}",
                hint="the entry point's name, the id and the table in rules.toml are one word",
            )
        found[entry.name] = rule
    return found


def rule_setting_rows(rules: Mapping[str, Rule] | None = None) -> list[SettingRow]:
    """Every setting of rules.toml, table by table, for the docs pages."""
    known = find_rules() if rules is None else rules
    tables = {name: rule.settings_type for name, rule in known.items()} | _OTHER_TABLES
    return [row for name, table in tables.items() for row in rows_of_table(name, table)]
