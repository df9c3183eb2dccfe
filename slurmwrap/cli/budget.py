"""`slurmwrap budget`: what is left of the budgets that the asker's use counts against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from slurmwrap.cli.terminal import Terminal, find_terminal, local_time, print_page
from slurmwrap.commandline import loaded_settings
from slurmwrap.display import align_columns, one_line

if TYPE_CHECKING:
    from slurmwrap.api import BudgetStatus

BAR_CELLS = 20


@click.command("budget")
@click.option("--account", default="", help="Only the budgets of this account.")
@click.option("--json", "as_json", is_flag=True, help="The daemon's answer as JSON.")
@click.pass_context
def command(context: click.Context, account: str, as_json: bool) -> None:
    """Show the budgets that your jobs count against, and what is left of them.

    SETTLED is what ended runs have used, RUNNING what runs have used so far, COMMITTED what
    they may still use until their time limits. LEFT is the limit less settled and running.
    """
    # The client and its message types are heavy; --help does without.
    import msgspec

    from slurmwrap.api import BudgetAnswer, BudgetQuestion, Client

    client = Client(loaded_settings(context).config)
    answer = client.call("budgets", BudgetQuestion(account=account), BudgetAnswer)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
        return
    if not answer.budgets:
        of_account = f" of account {one_line(account)}" if account else ""
        click.echo(f"no budget{of_account} is set for you: nothing limits your use", err=True)
        return
    terminal = find_terminal()
    print_page(render_budgets(answer.budgets, answer.now, terminal), terminal)


def render_budgets(budgets: Sequence[BudgetStatus], now: int, terminal: Terminal) -> list[str]:
    """A table of budgets, and below it the alerts that were sent."""
    rows = [
        [
            "ACCOUNT",
            "USER",
            "PERIOD",
            "LIMIT",
            "SETTLED",
            "RUNNING",
            "COMMITTED",
            "LEFT",
            "",
            "USED",
            "",
        ]
    ]
    alerts: list[str] = []
    for budget in budgets:
        account, user = one_line(budget.account, 30) or "-", one_line(budget.user, 30) or "-"
        rows.append(
            [
                account,
                user,
                one_line(budget.period, 12),
                budget.limit,
                budget.settled,
                budget.in_flight,
                budget.committed,
                budget.left,
                one_line(budget.unit, 12),
                f"{budget.used_percent:.1f} %",
                draw_bar(budget.used_percent, has_blocks=terminal.has_blocks),
            ]
        )
        owner = "/".join(one_line(name, 30) for name in (budget.account, budget.user) if name)
        alerts += [
            f"alert at {percent} % of {owner} sent at {local_time(sent_at, now)}"
            for percent, sent_at in budget.alerts
        ]
    lines = align_columns(rows, right={3, 4, 5, 6, 7, 9})
    return [*lines, "", *alerts] if alerts else lines


def draw_bar(percent: float, *, has_blocks: bool = True) -> str:
    """A bar of 20 cells; beyond the limit it is full and ends in ``!``."""
    full, empty = ("█", "░") if has_blocks else ("#", ".")
    cells = max(0, min(BAR_CELLS, int(percent * BAR_CELLS / 100)))
    return full * cells + empty * (BAR_CELLS - cells) + ("!" if percent > 100 else "")
