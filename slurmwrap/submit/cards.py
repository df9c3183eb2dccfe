"""Which GPU types the cluster has, so that a mistyped one is refused before the queue."""

from __future__ import annotations

import re
from collections.abc import Iterable

from slurmwrap.errors import UnknownNameError

SINFO_ARGUMENTS = ("--noheader", "--all", "--format=%G")
"""One line per distinct gres string, however many nodes: cheap on any cluster."""


def parse_gpu_types(sinfo_output: str, card_gres: Iterable[str] = ("gpu",)) -> set[str]:
    """GPU types in sinfo's gres column: ``gpu:a100:4(S:0-1),lustre:1`` has a100."""
    names = set(card_gres)
    types = set()
    for entry in re.split(r"[,\s]+", re.sub(r"\([^)]*\)", "", sinfo_output)):
        parts = entry.split(":")
        if len(parts) == 3 and parts[0] in names:
            types.add(parts[1])
    return types


def check_gpu_type(gpu_type: str, known: set[str]) -> None:
    """Refuse a type that no node has.

    Raises:
        UnknownNameError: with the types that nodes have.
    """
    if gpu_type and gpu_type not in known:
        raise UnknownNameError(
            "GPU type",
            gpu_type,
            known,
            hint="`sinfo -o '%P %N %G'` lists the cards of each node"
            if known
            else "this cluster's cards have no types: ask for a number, --gpus 2",
        )
