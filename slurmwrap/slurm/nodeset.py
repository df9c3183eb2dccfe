"""Expanding Slurm's host list expressions: ``gpu[1-2,05-07]`` → the names, in Slurm's order."""

from __future__ import annotations

import itertools
import re

LARGEST_RANGE = 65536
"""Names of one expression at most; Slurm has the same bound (MAX_RANGE in hostlist.c)."""

_SPAN = re.compile(r"([0-9]+)(?:-([0-9]+))?")


def expand_nodes(expression: str) -> tuple[str, ...]:
    """Every node name of a host list expression, in its order, repetitions kept.

    Several brackets count like nested loops, the last one fastest:
    ``rack[1-2]n[1-2]`` → rack1n1 rack1n2 rack2n1 rack2n2. A leading zero keeps the width.

    Raises:
        ValueError: brackets that don't close, a range that is no range, or more than
            LARGEST_RANGE names.
    """
    names: list[str] = []
    for part in _split_outside_brackets(expression):
        names.extend(_expand_part(part, expression))
        if len(names) > LARGEST_RANGE:
            raise ValueError(f"{expression[:80]!r} names more than {LARGEST_RANGE} nodes")
    return tuple(names)


def _split_outside_brackets(expression: str) -> list[str]:
    parts = [""]
    is_inside = False
    for character in expression:
        if character == "[" and not is_inside:
            is_inside = True
        elif character == "]" and is_inside:
            is_inside = False
        elif character in "[]":
            raise ValueError(f"{expression[:80]!r}: brackets don't match")
        elif character == "," and not is_inside:
            parts.append("")
            continue
        parts[-1] += character
    if is_inside:
        raise ValueError(f"{expression[:80]!r}: a bracket is not closed")
    return [part for part in parts if part]


def _expand_part(part: str, expression: str) -> list[str]:
    """The names of one part: texts and bracket lists in turn."""
    choices: list[list[str]] = []
    count = 1
    for position, piece in enumerate(re.split(r"\[([^\]]*)\]", part)):
        is_bracket = position % 2 == 1
        options = _expand_ranges(piece, expression) if is_bracket else [piece]
        count *= len(options)
        if count > LARGEST_RANGE:
            raise ValueError(f"{expression[:80]!r} names more than {LARGEST_RANGE} nodes")
        choices.append(options)
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _expand_ranges(ranges: str, expression: str) -> list[str]:
    names: list[str] = []
    for span in ranges.split(","):
        match = _SPAN.fullmatch(span)
        if match is None:
            raise ValueError(f"{expression[:80]!r}: {span[:80]!r} is no range of numbers")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first) or int(last) - int(first) >= LARGEST_RANGE:
            raise ValueError(f"{expression[:80]!r}: {span[:80]!r} is no range of numbers")
        width = len(first)
        names.extend(f"{number:0{width}d}" for number in range(int(first), int(last) + 1))
    return names
