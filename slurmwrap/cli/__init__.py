"""The command `slurmwrap`: one file per command, loaded when it is used."""

from __future__ import annotations

from slurmwrap.commandline import make_group, run_command_line

COMMANDS = {
    "submit": "Submit a job from a template.",
    "run": "Supervise a command inside a job (written into scripts by submit).",
    "stage": "Copy hot data to the node's local disk, or reuse what is there.",
    "status": "Show jobs: utilisation per card, card-hours, cost, what the rules say.",
    "budget": "Show what is left of the budgets that you use.",
    "bill": "Print the card-hour bill of a month.",
    "templates": "List the job templates and their parameters.",
    "config": "Show the settings in force and where they come from.",
}
"""Every command and its line in --help; its module is slurmwrap.cli.NAME."""

group = make_group(
    "slurmwrap",
    "GPU jobs on Slurm: submitted readably, watched honestly, billed to the second.",
    package=__name__,
    commands=COMMANDS,
)


def main() -> None:
    """Entry point of `slurmwrap`."""
    run_command_line(group, "slurmwrap")
