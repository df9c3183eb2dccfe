"""The paths a job needs: where its log goes, what it stages, which slurmwrap it calls."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from slurmwrap.errors import SubmitError
from slurmwrap.submit.quoting import quote_word
from slurmwrap.submit.request import JobRequest

# %% is a percent sign; %5j pads. Source: sbatch(1), "filename pattern".
_PATTERN = re.compile(r"%(\d*)([%A-Za-z])")
_ONLY_SLURM_KNOWS = "AJjsNntb"


def find_program(argv0: str = "", executable: str = "") -> tuple[str, ...]:
    """The slurmwrap in use, as the script shall call it: by absolute path.

    Args:
        argv0: how this process was started; ``sys.argv[0]`` when empty.
        executable: the interpreter; ``sys.executable`` when empty.
    """
    started = Path(argv0 or sys.argv[0])
    interpreter = executable or sys.executable
    beside = Path(interpreter).parent / "slurmwrap"
    # Started as a module or from a test: the command installed beside the interpreter.
    for candidate in (started, beside):
        if candidate.name == "slurmwrap" and candidate.is_file() and os.access(candidate, os.X_OK):
            return (os.path.abspath(candidate),)
    # -P: the folder of the job may hold a module of the same name.
    return (interpreter, "-P", "-m", "slurmwrap")


def absolute_sources(request: JobRequest, folder: Path) -> tuple[str, ...]:
    """The staging sources by absolute path, since the job may start elsewhere."""
    return tuple(os.path.abspath(folder / Path(source).expanduser()) for source in request.stage)


def check_sources(request: JobRequest, folder: Path) -> None:
    """Make sure that what shall be staged is there.

    Raises:
        SubmitError: a source that is not there; the job would wait only to fail.
    """
    for source in absolute_sources(request, folder):
        if not os.path.exists(source):
            raise SubmitError(
                f"--stage: {source} does not exist here",
                hint="it must be visible on this machine and on the nodes under one path",
            )


def check_log_folders(request: JobRequest, folder: Path, user: str) -> list[str]:
    """Make sure that the folders of --output and --error are there and writable.

    slurmd does not make them: the job would fail with 0:53 and no log. Patterns that are known
    before the job exists (``%u``, ``%x``) are filled in.

    Returns:
        Notices about folders that can't be checked from here.

    Raises:
        SubmitError: a folder is missing, can't be written, or is named after the job's id.
    """
    notices = []
    for option in ("output", "error"):
        value = request.directive(option)
        if value is None:
            continue
        base = folder / (request.directive("chdir") or "")
        parent = os.path.dirname(os.path.join(base, value))
        patterns = {match[2] for match in _PATTERN.finditer(parent)}
        if "\\" in value:
            patterns = set()  # Slurm then fills in nothing.
            parent = parent.replace("\\", "")
        if patterns & set("jJA"):
            raise SubmitError(
                f"--{option}: the folder {parent} is named after the job's id,"
                " so it can't exist when the job starts",
                hint="use the pattern in the file's name: logs/%j.out",
            )
        if patterns & set(_ONLY_SLURM_KNOWS + "a"):
            notices.append(f"--{option}: Slurm will not make the folder {parent}; is it there?")
            continue
        _check_folder(option, Path(_fill(parent, {"u": user, "x": request.name, "%": "%"})))
    return notices


def _check_folder(option: str, folder: Path) -> None:
    if not folder.is_dir():
        raise SubmitError(
            f"--{option}: the folder {folder} does not exist; the job would fail without a log",
            hint=f"mkdir -p {quote_word(str(folder))}",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SubmitError(f"--{option}: you may not write into the folder {folder}")


def log_path(request: JobRequest, folder: Path, user: str, job_id: int) -> str:
    """Where the job's output will be; what only a task knows (``%a``, ``%N``) stays a pattern.

    Slurm's default is slurm-%j.out, for an array slurm-%A_%a.out.
    """
    array = request.directive("array") is not None
    value = request.directive("output") or ("slurm-%A_%a.out" if array else "slurm-%j.out")
    base = folder / (request.directive("chdir") or "")
    known = {"u": user, "x": request.name, "%": "%", "A": str(job_id)}
    if not array:
        known["j"] = str(job_id)
    filled = value.replace("\\", "") if "\\" in value else _fill(value, known)
    return os.path.join(base, filled)


def _fill(pattern: str, values: dict[str, str]) -> str:
    def replace(match: re.Match[str]) -> str:
        width, letter = match.groups()
        if letter not in values:
            return match.group()
        return values[letter].zfill(int(width)) if width else values[letter]

    return _PATTERN.sub(replace, pattern)
