"""`slurmwrap submit`: options and a template become one readable script, and a job."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmwrap.commandline import loaded_settings

if TYPE_CHECKING:
    from slurmwrap.config import LoadedConfig
    from slurmwrap.submit.request import JobRequest, SubmitOptions
    from slurmwrap.submit.sbatch_options import Argument

# Settings that the supervisor reads too; those of other sections stay out of scripts.
_SECTIONS_OF_RUN = ("slurm", "munge", "daemon", "staging", "run")


@click.command(
    "submit",
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] --",
)
@click.option("--name", help="Job name; else taken from the command.")
@click.option("--account", help="Account that pays.")
@click.option("--partition", help="Partition.")
@click.option("--qos", help="Quality of service.")
@click.option("--time", "time_limit", metavar="TIME", help="Limit: minutes, H:MM:SS, D-HH:MM:SS.")
@click.option("--nodes", metavar="N", help="Nodes, or a range N-M.")
@click.option("--gpus", metavar="[TYPE:]N", help="Cards on each node: 2, a100:2.")
@click.option("--gpu-type", metavar="TYPE", help="Type of the cards; alone: one card of it.")
@click.option("--cpus", type=click.IntRange(min=1), help="CPUs per task.")
@click.option("--memory", metavar="SIZE", help="Memory on each node: 64G, 1536M.")
@click.option("--array", metavar="INDICES", help="Task array: 0-9, 1,3,5-7, 0-99%10.")
@click.option("--dependency", metavar="LIST", help="What to wait for: afterok:123.")
@click.option("--output", metavar="FILE", help="Log file, with sbatch's patterns: logs/%j.out.")
@click.option("--stage", multiple=True, metavar="SOURCE", help="Copy to the nodes; repeatable.")
@click.option("--template", metavar="NAME|PATH", help="Template; `slurmwrap templates` lists.")
@click.option("--param", multiple=True, metavar="KEY=VALUE", help="A parameter of the template.")
@click.option("--sbatch", multiple=True, metavar="KEY[=VALUE]", help="Any other sbatch option.")
@click.option(
    "--watch",
    metavar="METRIC[:max|min[:DELTA]]",
    help="Metric that shall improve, for the plateau rule.",
)
@click.option(
    "--patience",
    type=click.IntRange(min=1),
    help="Evaluations without improvement that are a plateau.",
)
@click.option("--dry-run", is_flag=True, help="Print the script; submit nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    """Submit COMMAND as a job, under slurmwrap's supervision.

    COMMAND and its arguments reach the job exactly as the shell hands them over here. The job's
    id is printed on stdout, everything else on stderr.
    """
    from slurmwrap.submit import paths, sbatch, script, templates
    from slurmwrap.submit.request import build_request

    loaded = loaded_settings(context)
    config = loaded.config
    options = _read_options(given)
    environment = sbatch.sbatch_environment(os.environ, config.slurm.conf)
    program = sbatch.find_sbatch(config.slurm.bin_dir, environment)
    template = templates.load_template(
        given["template"] or config.submit.template, _template_folders(loaded)
    )
    request = build_request(
        options,
        _known_options(options, program, environment, config.slurm.command_timeout),
        card_gres=config.accounting.card_gres[0],
        signal_lead_seconds=config.submit.signal_before_limit,
    )
    folder, user = Path.cwd(), _user_name()
    notices = [*template.notices, *_advise(request, template)]
    request, more = _check_against_cluster(request, loaded, folder, user, program is not None)
    notices += more
    text = script.render(
        request,
        template,
        templates.read_parameters(template, given["param"]),
        script.Rendering(
            user=user,
            rendered_at=int(time.time()),
            program=paths.find_program(),
            config_file=_named_config_file(context, loaded),
            exports=_settings_to_export(loaded),
        ),
    )
    for notice in notices:
        click.echo(f"slurmwrap: notice: {notice}", err=True)
    report: dict[str, Any] = {
        "job_id": None,
        "cluster": None,
        "name": request.name,
        "array": request.directive("array"),
        "template": template.name,
        "script": text,
        "output": None,
        "sbatch_stderr": None,
        "notices": notices,
    }
    if not given["dry_run"]:
        job = sbatch.submit(
            text,
            sbatch=program,
            environment=environment,
            timeout_seconds=config.submit.sbatch_timeout,
        )
        report |= {
            "job_id": job.job_id,
            "cluster": job.cluster or (_ask_cluster(loaded) if given["as_json"] else None),
            "output": paths.log_path(request, folder, user, job.job_id),
            "sbatch_stderr": job.stderr,
        }
    _print_report(report, given["as_json"])


def _read_options(given: dict[str, Any]) -> SubmitOptions:
    from slurmwrap.submit.request import SubmitOptions

    names = (
        "command name account partition qos nodes gpus gpu_type cpus memory array dependency"
        " output stage sbatch watch patience"
    )
    return SubmitOptions(time=given["time_limit"], **{name: given[name] for name in names.split()})


def _template_folders(loaded: LoadedConfig) -> list[Path]:
    from slurmwrap.resources import shipped_folder
    from slurmwrap.submit.templates import template_folders

    return template_folders(loaded.config.submit.template_dirs, shipped_folder("sbatch_templates"))


def _known_options(
    options: SubmitOptions, program: str | None, environment: dict[str, str], timeout_seconds: int
) -> dict[str, Argument]:
    """sbatch's options; it is asked only about one that 22.05 did not have."""
    from slurmwrap.submit import sbatch
    from slurmwrap.submit.sbatch_options import SHIPPED_OPTIONS, known_options

    names = {text.partition("=")[0].strip().removeprefix("--") for text in options.sbatch}
    if program is None or names <= SHIPPED_OPTIONS.keys():
        return known_options(None)
    return known_options(sbatch.read_help(program, environment, timeout_seconds))


def _check_against_cluster(
    request: JobRequest, loaded: LoadedConfig, folder: Path, user: str, slurm_is_here: bool
) -> tuple[JobRequest, list[str]]:
    """Check paths and GPU types; where Slurm is not installed, what is missing is a notice."""
    from slurmwrap.errors import SlurmwrapError
    from slurmwrap.submit import paths

    notices: list[str] = []
    try:
        notices += paths.check_log_folders(request, folder, user)
        paths.check_sources(request, folder)
        if request.gpu_type and slurm_is_here:
            notices += _check_gpu_type(request.gpu_type, loaded)
    except SlurmwrapError as error:
        if slurm_is_here:
            raise
        notices.append(error.message)
    sources = paths.absolute_sources(request, folder)
    return request._replace(stage=sources), notices


def _check_gpu_type(gpu_type: str, loaded: LoadedConfig) -> list[str]:
    from slurmwrap.errors import SlurmCommandError, SlurmUnavailableError
    from slurmwrap.slurm.commands import SlurmCommands
    from slurmwrap.submit.cards import SINFO_ARGUMENTS, check_gpu_type, parse_gpu_types

    try:
        output = SlurmCommands(loaded.config.slurm).run("sinfo", *SINFO_ARGUMENTS)
    except (SlurmUnavailableError, SlurmCommandError) as error:
        return [f"the GPU type {gpu_type!r} could not be checked: {error.message}"]
    check_gpu_type(gpu_type, parse_gpu_types(output, loaded.config.accounting.card_gres))
    return []


def _ask_cluster(loaded: LoadedConfig) -> str | None:
    """The cluster's name; sbatch says it only where there are several."""
    from slurmwrap.errors import SlurmwrapError
    from slurmwrap.slurm.commands import SlurmCommands

    try:
        return SlurmCommands(loaded.config.slurm).cluster_name()
    except SlurmwrapError:
        return None  # the job is in the queue: this must not look like a failure


def _advise(request: JobRequest, template: Any) -> list[str]:
    launchers = ("srun", "mpirun", "mpiexec", "torchrun")
    if (
        request.nodes > 1
        and template.runs_on == "first-node"
        and os.path.basename(request.command[0]) not in launchers
    ):
        return [
            f"template {template.name!r} runs the command on the first of {request.nodes} nodes"
            " only; --template ddp starts torchrun on all of them"
        ]
    return []


def _named_config_file(context: click.Context, loaded: LoadedConfig) -> str | None:
    """The configuration file, when the user named one: the nodes could have another."""
    from slurmwrap.config.loader import FILE_VARIABLE

    named = context.find_root().obj is not None or bool(os.environ.get(FILE_VARIABLE))
    return os.path.abspath(loaded.file) if named and loaded.file is not None else None


def _settings_to_export(loaded: LoadedConfig) -> dict[str, str]:
    """Settings of the supervisor that come from the environment, which may not reach the job."""
    exports = {}
    for setting, origin in loaded.origins.items():
        kind, _, variable = origin.partition(" ")
        if kind == "environment" and setting.partition(".")[0] in _SECTIONS_OF_RUN:
            exports[variable] = os.environ[variable]
    return exports


def _user_name() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _print_report(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        import json

        click.echo(json.dumps(report, indent=2))
    elif report["job_id"] is None:
        # Bytes: a path or argument may hold some that are no UTF-8.
        sys.stdout.buffer.write(os.fsencode(report["script"]))
        sys.stdout.flush()
    else:
        job_id = report["job_id"]
        if report["sbatch_stderr"]:
            click.echo(report["sbatch_stderr"], err=True)
        click.echo(f"Submitted job {job_id} ({report['name']}).", err=True)
        click.echo(f"  log:   {report['output']}", err=True)
        click.echo(f"  next:  slurmwrap status {job_id}", err=True)
        click.echo(job_id)
