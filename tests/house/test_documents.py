"""Every command, option, setting, rule and error has its place in docs/ and etc/."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import ModuleType
from zoneinfo import ZoneInfo

import click
import pytest

from slurmwrap.cli import COMMANDS
from slurmwrap.cli import group as user_group
from slurmwrap.config import Config, load_config
from slurmwrap.config.price_file import read_price_file
from slurmwrap.config.rules_file import find_rules, rule_setting_rows
from slurmwrap.config.settings import setting_rows
from slurmwrap.errors import SlurmwrapError, error_kinds
from slurmwrapd.cli import COMMANDS as SERVICE_COMMANDS
from slurmwrapd.cli import group as service_group

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SITE_FILE = ROOT / "etc/slurmwrap.toml"
CHANGES = "written anew by: ./dev docs"

PAGES = [
    *((user_group, name, DOCS / f"commands/{name}.md") for name in COMMANDS),
    *((service_group, name, DOCS / f"commands/slurmwrapd-{name}.md") for name in SERVICE_COMMANDS),
]


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def options_of(command: click.Command, context: click.Context) -> set[str]:
    """The long names of a command's options and those of its subcommands."""
    names: set[str] = set()
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option) and not parameter.hidden:
            names.add(max((*parameter.opts, *parameter.secondary_opts), key=len))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            names |= {name} | options_of(child, click.Context(child, parent=context))
    return names - {"--help"}


@pytest.mark.parametrize(("group", "name", "page"), PAGES, ids=[page.stem for *_, page in PAGES])
def test_every_command_has_its_page_with_all_its_options(
    group: click.Group, name: str, page: Path
) -> None:
    """A command or option that nobody described does not ship."""
    assert page.is_file(), f"write {page.relative_to(ROOT)}"
    text = page.read_text(encoding="utf-8")
    context = click.Context(group)
    command = group.get_command(context, name)
    assert command is not None
    missing = [
        option
        for option in sorted(options_of(command, click.Context(command, parent=context)))
        if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text)
    ]
    assert missing == []
    assert command.help, f"{name} says nothing in --help"


def test_no_page_describes_a_command_that_is_gone() -> None:
    """A page without its command misleads."""
    pages = {path.name for path in (DOCS / "commands").glob("*.md")}
    assert pages == {page.name for _, _, page in PAGES}


def test_settings_page_is_the_table_of_settings() -> None:
    """docs/settings.md says what the loader does."""
    written = (DOCS / "settings.md").read_text(encoding="utf-8")
    assert written == load_generator().render_settings(), CHANGES


def test_errors_page_is_the_tree_of_errors() -> None:
    """docs/errors.md lists every kind with its code."""
    written = (DOCS / "errors.md").read_text(encoding="utf-8")
    assert written == load_generator().render_errors(), CHANGES


def test_exit_codes_are_unique_and_leave_signals_alone() -> None:
    """A script can tell every kind of error apart."""
    codes = [kind.exit_code for kind in error_kinds()]
    assert len(codes) == len(set(codes))
    assert all(1 <= code < 126 for code in codes)
    assert SlurmwrapError in error_kinds()


def test_every_rule_has_its_page_and_its_block() -> None:
    """A rule's id is its page and its block in etc/rules.toml."""
    rules = {entry.name for entry in metadata.entry_points(group="slurmwrap.rules")}
    pages = {path.stem for path in (DOCS / "rules").glob("*.md")} - {"README"}
    assert rules <= pages, f"write docs/rules/ for {sorted(rules - pages)}"
    assert pages <= rules, f"no such rule: {sorted(pages - rules)}"
    text = (ROOT / "etc/rules.toml").read_text(encoding="utf-8")
    assert [rule for rule in sorted(rules) if rule not in text] == []


@pytest.mark.parametrize("rule", sorted(find_rules()))
def test_a_rules_page_names_each_of_its_settings(rule: str) -> None:
    """Who reads of a rule learns what can be set."""
    text = (DOCS / f"rules/{rule}.md").read_text(encoding="utf-8")
    rows = [row for row in rule_setting_rows() if row.section == rule]
    assert rows
    assert [row.key for row in rows if f"`{row.key}`" not in text] == []


def test_the_price_file_as_shipped_is_valid() -> None:
    """etc/prices.toml can be billed with as it is."""
    read_price_file(ROOT / "etc/prices.toml", zone=ZoneInfo("Asia/Shanghai"), currency="CNY")


def test_the_site_file_as_shipped_changes_nothing() -> None:
    """etc/slurmwrap.toml is valid, and gives the defaults."""
    assert load_config(SITE_FILE, {}).config == Config()


def test_the_site_file_shows_every_setting_with_its_default() -> None:
    """Removing the # of any line is a valid file that still changes nothing."""
    render = load_generator().render_value
    section = ""
    shown: dict[str, str] = {}
    for line in SITE_FILE.read_text(encoding="utf-8").splitlines():
        if header := re.fullmatch(r"#?\[+(\w+)\]+", line):
            section = header[1]
        elif assignment := re.fullmatch(r"#?(\w+) = (.*)", line):
            shown[f"{section}.{assignment[1]}"] = assignment[2]
    rows = setting_rows()
    assert list(shown) == [row.name for row in rows]
    for row in rows:
        tomllib.loads(f"{row.key} = {shown[row.name]}")
        if row.default is not None:
            assert shown[row.name] == render(row.default, row.form), row.name


@pytest.mark.parametrize("path", sorted(ROOT.glob("etc/*.toml")), ids=lambda path: str(path.name))
def test_sample_configuration_is_valid_toml(path: Path) -> None:
    """Every sample can be read as shipped."""
    tomllib.loads(path.read_text(encoding="utf-8"))


def test_links_between_documents_lead_somewhere() -> None:
    """A relative link in a document names a file that exists."""
    broken = []
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("benchmarks/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []
