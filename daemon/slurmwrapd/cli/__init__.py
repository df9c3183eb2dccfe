"""The command `slurmwrapd`: one file per command, loaded when it is used."""

from __future__ import annotations

from slurmwrap.commandline import make_group, run_command_line

COMMANDS = {
    "serve": "Collect, watch, account, alert and answer (one per cluster).",
    "agent": "Read the cards of this node and send what they say (one per node).",
    "check": "Verify the things that silently ruin accounting or evidence.",
    "backup": "Write a consistent copy of the database while the service runs.",
    "upgrade": "Bring a database of an older version up to date.",
}
"""Every command and its line in --help; its module is slurmwrapd.cli.NAME."""

group = make_group(
    "slurmwrapd",
    "The slurmwrap service: readings, rules, card-hours, budgets.",
    package=__name__,
    commands=COMMANDS,
)


def main() -> None:
    """Entry point of `slurmwrapd`."""
    run_command_line(group, "slurmwrapd")
