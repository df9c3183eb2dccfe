"""The forms that sbatch takes for times, memory, arrays, dependencies and cards.

Each check returns the text that goes into the script, or raises UsageError naming the option,
what was given and what to write; so a mistake costs a second, not a wait in the queue.
"""

from __future__ import annotations

import math
import re

from slurmwrap.errors import UnknownNameError, UsageError
from slurmwrap.units import parse_duration, parse_slurm_time

_MEMORY = re.compile(r"\d+(?:[KMGT]B?)?", re.IGNORECASE | re.ASCII)
_FRACTION = re.compile(r"(\d+\.\d+)\s*([KMGT])(?:i?B)?", re.IGNORECASE | re.ASCII)
_BINARY = re.compile(r"(\d+)\s*([KMGT])i?B?", re.IGNORECASE | re.ASCII)
_SMALLER = {"T": "G", "G": "M", "M": "K"}
_ARRAY_PART = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)
_NODES = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_CARDS = re.compile(r"(?:(\w[\w.+-]*):)?(\d+)", re.ASCII)
_GPU_TYPE = re.compile(r"\w[\w.+-]*", re.ASCII)
_DEPENDENCY_TYPES = (
    "after",
    "afterany",
    "afterburstbuffer",
    "aftercorr",
    "afternotok",
    "afterok",
    "singleton",
)
_DEPENDENCY_JOB = re.compile(r"\d+(?:_(?:\d+|\*))?(?:\+\d+)?", re.ASCII)


def check_time(text: str) -> str:
    """A time limit in one of sbatch's forms."""
    try:
        if not text.isascii():
            raise ValueError(f"{text!r} is not a Slurm time; write minutes, H:MM:SS or D-HH:MM:SS")
        parse_slurm_time(text)
    except ValueError as error:
        raise UsageError(f"--time: {error}", hint=_suggest_time(text)) from error
    return text.strip()


def time_limit_seconds(text: str) -> int | None:
    """Seconds of a checked time limit; None when there is no limit (0 asks for none)."""
    return parse_slurm_time(text) or None


def _suggest_time(text: str) -> str | None:
    """What the writer of ``2h`` meant, as Slurm writes it."""
    try:
        minutes, seconds = divmod(parse_duration(text), 60)
    except ValueError:
        return "for example --time 30 (minutes), --time 2:00:00 or --time 1-12"
    days, minutes = divmod(minutes, 24 * 60)
    clock = f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"
    return f"write --time {f'{days}-' if days else ''}{clock}"


def check_memory(text: str) -> str:
    """Memory per node: whole megabytes, or a whole number with K, M, G or T."""
    word = text.strip()
    if _MEMORY.fullmatch(word):
        return word
    raise UsageError(
        f"--memory: {text!r} is not a memory size that sbatch takes:"
        " a whole number of megabytes, or with K, M, G or T",
        hint=_suggest_memory(word),
    )


def _suggest_memory(word: str) -> str:
    fraction = _FRACTION.fullmatch(word)
    if fraction is not None and fraction[2].upper() in _SMALLER:
        unit = fraction[2].upper()
        return f"write --memory {math.ceil(float(fraction[1]) * 1024)}{_SMALLER[unit]}"
    binary = _BINARY.fullmatch(word)
    if binary is not None:
        return f"write --memory {binary[1]}{binary[2].upper()}; sbatch's units are powers of 1024"
    return "for example --memory 64G or --memory 1536M"


def check_array(text: str) -> str:
    """Array indices: ``0-9``, ``1,3,5-7``, ``0-15:4``, each with ``%N`` at once at most."""
    word = text.strip()
    indices, separator, at_once = word.partition("%")
    hint = "for example --array 0-9, --array 1,3,5-7, --array 0-15:4 or --array 0-99%10"
    if separator and (not at_once.isdecimal() or not at_once.isascii() or int(at_once) == 0):
        raise UsageError(
            f"--array: {text!r}: after % stands how many tasks may run at once, at least 1",
            hint=hint,
        )
    for part in indices.split(","):
        match = _ARRAY_PART.fullmatch(part)
        if match is None:
            raise UsageError(f"--array: {text!r} is not a list of task indices", hint=hint)
        first, last, step = match.groups()
        if last is not None and int(last) < int(first):
            raise UsageError(
                f"--array: {text!r}: the range {part} runs backwards",
                hint=f"write {last}-{first}",
            )
        if step is not None and int(step) == 0:
            raise UsageError(f"--array: {text!r}: the step of {part} is 0", hint=hint)
    return word


def check_dependency(text: str) -> str:
    """Dependencies: ``afterok:123``, several joined by ``,`` (all) or ``?`` (any)."""
    word = text.strip()
    if "," in word and "?" in word:
        raise UsageError(
            f"--dependency: {text!r} mixes ',' (all of them) and '?' (any of them)",
            hint="Slurm takes one of the two",
        )
    for part in re.split("[,?]", word):
        kind, *jobs = part.split(":")
        if kind not in _DEPENDENCY_TYPES:
            if kind.isdecimal():
                raise UsageError(
                    f"--dependency: {part!r} names a job but not what to wait for",
                    hint=f"write --dependency afterok:{kind} (its success)"
                    f" or afterany:{kind} (its end)",
                )
            raise UnknownNameError("dependency type", kind, _DEPENDENCY_TYPES)
        if (kind == "singleton") == bool(jobs):
            wrong = "takes no job ids" if jobs else "needs a job id"
            raise UsageError(f"--dependency: {part!r}: {kind} {wrong}")
        for job in jobs:
            if not _DEPENDENCY_JOB.fullmatch(job):
                raise UsageError(
                    f"--dependency: {part!r}: {job!r} is not a job id",
                    hint="for example --dependency afterok:123 or afterok:123_4",
                )
    return word


def check_nodes(text: str) -> str:
    """A number of nodes, or a range ``2-4``."""
    word = text.strip()
    match = _NODES.fullmatch(word)
    if match is None or int(match[1]) < 1:
        raise UsageError(
            f"--nodes: {text!r} is not a number of nodes", hint="for example --nodes 2 or 2-4"
        )
    if match[2] is not None and int(match[2]) < int(match[1]):
        raise UsageError(f"--nodes: {text!r} runs backwards", hint=f"write {match[2]}-{match[1]}")
    return word


def check_cards(gpus: str | None, gpu_type: str | None) -> tuple[int, str]:
    """Cards per node and their type (empty: any), from ``--gpus`` and ``--gpu-type``.

    ``--gpu-type`` alone asks for one card of that type.
    """
    if gpu_type is not None and not _GPU_TYPE.fullmatch(gpu_type):
        raise UsageError(f"--gpu-type: {gpu_type!r} is not a GPU type", hint="for example a100")
    if gpus is None:
        return (1, gpu_type) if gpu_type else (0, "")
    match = _CARDS.fullmatch(gpus.strip())
    if match is None:
        raise UsageError(
            f"--gpus: {gpus!r} is not a number of cards per node",
            hint="for example --gpus 2 or --gpus a100:2",
        )
    named, count = match[1], int(match[2])
    if named and gpu_type and named != gpu_type:
        raise UsageError(f"--gpus {gpus} and --gpu-type {gpu_type} name two GPU types")
    return count, (named or gpu_type or "") if count else ""
