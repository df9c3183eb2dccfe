"""Handing a script to sbatch: in which environment, for how long, and what its answer means."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from slurmwrap.errors import SlurmUnavailableError, SubmitError

_SCRUBBED_PREFIXES = ("SBATCH_", "SLURM_", "SRUN_", "SALLOC_")
# How Slurm is reached and who the user is; not what a job asks for.
_KEPT = frozenset(
    {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_SACK_KEY", "SLURM_SACK_SOCKET"}
)
# What a supervisor tells its own job; a job submitted from inside it has its own.
_OF_THE_OUTER_JOB = re.compile(r"SLURMWRAP_(?:METRICS|RESUME|DATA(?:_\d+|_BY_NODE)?)")

_ANSWER = re.compile(r"(\d+)(?:;(.*))?")

_HINTS: tuple[tuple[str, str], ...] = (
    ("invalid partition", "`sinfo -s` lists the partitions"),
    (
        "invalid account",
        "`sacctmgr show assoc user=$USER format=account,partition,qos` lists what you may use",
    ),
    (
        "invalid qos",
        "`sacctmgr show assoc user=$USER format=account,partition,qos` lists what you may use",
    ),
    (
        "requested node configuration is not available",
        "no node has that much; `sinfo -o '%P %N %G %c %m'` lists cards, CPUs and MB per node",
    ),
    (
        "invalid generic resource",
        "`sinfo -o '%P %N %G'` lists the cards of each node",
    ),
    (
        "requested time limit is invalid",
        "longer than the partition allows; `sinfo -o '%P %l'` lists the limits",
    ),
    (
        "invalid job array",
        "indices must be below MaxArraySize; `scontrol show config | grep MaxArraySize` shows it",
    ),
    ("dependency problem", "the job it waits for does not exist or can't satisfy it any more"),
    (
        "accounting/qos policy",
        "a limit of your account or QOS is reached; `sacctmgr show assoc user=$USER` shows them",
    ),
    ("unable to contact slurm controller", "slurmctld does not answer; try again later"),
    ("could not establish a configuration source", "set slurm.conf in slurmwrap.toml"),
    ("unrecognized option", "this Slurm is too old or too new for that option"),
)


class SubmittedJob(NamedTuple):
    """What sbatch answered."""

    job_id: int
    cluster: str
    """Empty on a cluster that is not named in the answer."""
    stderr: str
    """Warnings that sbatch printed although it took the job."""


def sbatch_environment(environment: Mapping[str, str], slurm_conf: str = "") -> dict[str, str]:
    """The caller's environment without what would change the job behind the script's back.

    ``SBATCH_*`` beats the script's #SBATCH lines, and ``SLURM_*`` and ``SRUN_*`` of an outer job
    break srun inside the new one (both seen on 22.05.8).
    """
    kept = {
        name: value
        for name, value in environment.items()
        if name in _KEPT
        or not (name.startswith(_SCRUBBED_PREFIXES) or _OF_THE_OUTER_JOB.fullmatch(name))
    }
    if slurm_conf:
        kept["SLURM_CONF"] = slurm_conf
    return kept


def find_sbatch(bin_dir: str, environment: Mapping[str, str]) -> str | None:
    """Path of sbatch, or None where it is not installed."""
    # As shutil.which, which loads three compression libraries.
    for folder in (bin_dir or environment.get("PATH", os.defpath)).split(os.pathsep):
        path = os.path.join(folder, "sbatch")
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def read_help(sbatch: str, environment: Mapping[str, str], timeout_seconds: int) -> str | None:
    """``sbatch --help``, or None when it does not say (without slurm.conf it can't)."""
    import subprocess  # a dry run starts nothing

    try:
        answer = subprocess.run(
            [sbatch, "--help"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_seconds,
            env=dict(environment),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.decode("utf-8", "replace") if answer.returncode == 0 else None


def submit(
    script: str, *, sbatch: str | None, environment: Mapping[str, str], timeout_seconds: int
) -> SubmittedJob:
    """Give the script to sbatch on its standard input, in the current folder.

    The command line holds nothing but --parsable: whatever the job asks for stands in the
    script, where it can be read and where no environment variable is above it.

    Args:
        sbatch: path of sbatch, from ``find_sbatch``.
        environment: from ``sbatch_environment``.
        timeout_seconds: sbatch retries for minutes when the queue is full.

    Raises:
        SlurmUnavailableError: there is no sbatch.
        SubmitError: it refused the job, did not answer in time, or its answer has no job id.
    """
    import subprocess  # a dry run starts nothing

    if sbatch is None:
        raise SlurmUnavailableError(
            "sbatch was not found: this machine can't submit jobs",
            hint="set slurm.bin_dir, log in to a submission node, or look with --dry-run",
        )
    try:
        answer = subprocess.run(
            [sbatch, "--parsable"],
            input=os.fsencode(script),
            capture_output=True,
            timeout=timeout_seconds,
            env=dict(environment),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SubmitError(
            f"sbatch did not answer within {timeout_seconds} s and was stopped"
            + _said(error.stderr),
            hint="the queue may be full (MaxJobCount) or slurmctld busy; look with"
            " `squeue --me` whether the job is there before you try again",
        ) from error
    except OSError as error:
        raise SlurmUnavailableError(f"can't run {sbatch}: {error.strerror}") from error
    stderr = answer.stderr.decode("utf-8", "replace").strip()
    stdout = answer.stdout.decode("utf-8", "replace").strip()
    if answer.returncode != 0:
        raise SubmitError(
            f"sbatch refused the job (exit {answer.returncode}): {stderr or 'it said nothing'}",
            hint=find_hint(stderr),
        )
    match = _ANSWER.fullmatch(stdout.splitlines()[-1].strip() if stdout else "")
    if match is None:
        raise SubmitError(
            f"sbatch took the job, but its answer has no job id: {stdout!r}; {stderr}",
            hint="look for the job with `squeue --me`",
        )
    return SubmittedJob(job_id=int(match[1]), cluster=match[2] or "", stderr=stderr)


def find_hint(stderr: str) -> str:
    """What to do next about sbatch's words."""
    words = stderr.lower()
    for pattern, hint in _HINTS:
        if pattern in words:
            return hint
    return "`slurmwrap submit --dry-run` prints the script that sbatch got"


def _said(stderr: bytes | str | None) -> str:
    text = stderr.decode("utf-8", "replace") if isinstance(stderr, bytes) else stderr or ""
    return f"; it said: {text.strip()}" if text.strip() else ""
