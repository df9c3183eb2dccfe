"""`slurmwrapd check`: finds what would silently ruin accounting or evidence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmwrap.commandline import loaded_settings
from slurmwrap.errors import ConfigError, SlurmwrapError, UnhealthyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmwrap.api import HealthCheck
    from slurmwrap.config import Config, LoadedConfig


@click.command(name="check")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Check files, MUNGE, Slurm and the running service; exit 70 if anything is wrong."""
    import msgspec  # heavy

    checks = run_checks(loaded_settings(context))
    if as_json:
        sys.stdout.write(msgspec.json.encode(checks).decode() + "\n")
    else:
        for check in checks:
            click.echo(f"{'ok  ' if check.ok else 'FAIL'} {check.name}: {check.detail}")
            if check.hint and not check.ok:
                click.echo(f"     {check.hint}")
    wrong = [check.name for check in checks if not check.ok]
    if wrong:
        raise UnhealthyError(f"{len(wrong)} of {len(checks)} checks failed: {', '.join(wrong)}")


def run_checks(loaded: LoadedConfig) -> list[HealthCheck]:
    """Every check that can be made from here, the service's own view included."""
    from slurmwrap.api import Client, HealthAnswer, HealthCheck, Nothing
    from slurmwrap.clock import SystemClock
    from slurmwrap.slurm.checks import check_slurm
    from slurmwrap.slurm.commands import SlurmCommands

    config = loaded.config
    checks = [
        _attempt("rules file", lambda: _check_rules(config)),
        _attempt("price file", lambda: _check_prices(config)),
        _attempt("secrets", lambda: _check_secrets(loaded)),
        _attempt("notify targets", lambda: _check_targets(loaded.file)),
        _attempt("munge", lambda: _check_munge(config)),
        *check_slurm(config, SlurmCommands(config.slurm), SystemClock()),
    ]
    try:
        health = Client(config).call("health", Nothing(), HealthAnswer)
    except SlurmwrapError as error:
        checks.append(
            HealthCheck(name="service", ok=False, detail=error.message, hint=error.hint or "")
        )
    else:
        words = "ready" if health.ready else "not ready"
        checks.append(HealthCheck(name="service", ok=health.ready, detail=words))
        checks.extend(health.checks)
    return checks


def _attempt(name: str, check: Callable[[], str]) -> HealthCheck:
    from slurmwrap.api import HealthCheck

    try:
        return HealthCheck(name=name, ok=True, detail=check())
    except SlurmwrapError as error:
        return HealthCheck(name=name, ok=False, detail=error.message, hint=error.hint or "")


def _check_rules(config: Config) -> str:
    from slurmwrap.config.rules_file import load_rules

    rules = load_rules(Path(config.rules.file))
    words = ", ".join(f"{item.rule.id} ({item.settings.mode})" for item in rules.rules)
    return f"{config.rules.file}: {words}"


def _check_prices(config: Config) -> str:
    from zoneinfo import ZoneInfo

    from slurmwrap.config.price_file import read_price_file

    path = Path(config.billing.prices)
    zone = ZoneInfo(config.billing.timezone)
    book = read_price_file(path, zone=zone, currency=config.billing.currency)
    return f"{path}: {len(book.entries)} entries in {book.currency}"


def _check_secrets(loaded: LoadedConfig) -> str:
    """Whether a file that every user may read holds a password or token."""
    from slurmwrap.config.secrets import holds_secret, is_readable_by_all
    from slurmwrap.config.settings import setting_rows

    if loaded.file is None:
        return "no settings file is read"
    if not is_readable_by_all(loaded.file):
        return f"{loaded.file} is not readable by everybody"
    found = [
        row.name
        for row in setting_rows()
        if row.secret
        and loaded.origins.get(row.name) == f"file {loaded.file}"
        and any(holds_secret(url) for url in getattr(loaded.config.notify, row.key))
    ]
    if found:
        raise ConfigError(
            f"everybody can read {loaded.file}, and {', '.join(found)} may hold a password or"
            " token in it",
            hint=f"move those targets to {loaded.config.notify.secrets_file} (root:slurmwrap,"
            " mode 0640), and change the passwords",
        )
    return f"{loaded.file} holds none"


def _check_targets(settings_file: Path | None) -> str:
    from slurmwrap.config import load_config
    from slurmwrap.notify.delivery import check_target, mask_url
    from slurmwrap.notify.targets import expand_targets

    notify = load_config(settings_file, with_secrets=True).config.notify
    targets = expand_targets([*notify.user_urls, *notify.account_urls, *notify.admin_urls], "user")
    for target in targets:
        check_target(target)
    if not notify.user_urls:
        return "notify.user_urls is empty: nobody can be warned, so nothing will be cancelled"
    return ", ".join(mask_url(target) for target in targets)


def _check_munge(config: Config) -> str:
    import os

    from slurmwrap.munge import Munge

    munge = Munge(config.munge.socket)
    credential = munge.decode(munge.encode(b"check", reader_uid=os.getuid()))
    return f"encodes and decodes; this host's address in credentials is {credential.address}"
