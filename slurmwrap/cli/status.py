"""`slurmwrap status`: jobs with their use, cost and what the rules say."""

from __future__ import annotations

import re

import click

from slurmwrap.commandline import loaded_settings
from slurmwrap.errors import NotFoundError, UsageError

_JOB = re.compile(r"\d+(_\d+)?")


@click.command("status")
@click.argument("job", required=False, default="")
@click.option("--user", default="", help="Another user's jobs, for those who may see them.")
@click.option("--json", "as_json", is_flag=True, help="The daemon's answer as JSON.")
@click.pass_context
def command(context: click.Context, job: str, user: str, as_json: bool) -> None:
    """Show your jobs of the last day, or one JOB with every card.

    JOB is an id as Slurm writes it: 12, or 12_3 for a task of an array. A mark of the plot is a
    stretch of time, higher for more use; a dot stands for time that nobody measured.
    """
    # The client and its message types are heavy; --help does without.
    import msgspec

    from slurmwrap.api import Client, StatusAnswer, StatusQuestion
    from slurmwrap.cli.job_page import render_list, render_page
    from slurmwrap.cli.terminal import find_terminal, print_page

    if job and user:
        raise UsageError("give a JOB or --user, not both")
    if job and not _JOB.fullmatch(job):
        raise UsageError(f"{job!r} is no job id; write for example 12, or 12_3 for an array's task")
    client = Client(loaded_settings(context).config)
    answer = client.call("job_status", StatusQuestion(job=job, user=user), StatusAnswer)
    if job and not answer.jobs:
        raise NotFoundError(f"slurmwrapd knows no job {job} of yours")
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
        return
    terminal = find_terminal()
    if job:
        for number, run in enumerate(answer.jobs):
            print_page([""] * bool(number) + render_page(run, answer.now, terminal), terminal)
    elif answer.jobs:
        print_page(render_list(answer.jobs, answer.now, terminal), terminal)
    else:
        click.echo("no jobs within the last day", err=True)
    if answer.truncated:
        click.echo("there are more jobs than are shown; name one to see it", err=True)
