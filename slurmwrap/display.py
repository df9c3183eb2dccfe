"""Text from outside made safe and even to print: control characters, widths, cut cells.

Job names, accounts and reasons are written by others. Shown raw, they can move the cursor,
forge lines of a report or turn its columns.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from functools import lru_cache

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
# Marks that turn the direction of the text around them; other format characters are harmless
# and needed by some scripts.
_DIRECTION_MARKS = frozenset(
    "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


def clean_text(text: str) -> str:
    """The text with every character that is not for printing replaced by U+FFFD.

    Those are control characters (newline and tab among them), separators of lines, halves of
    surrogate pairs (bytes that were no UTF-8) and marks of direction.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(REPLACEMENT if _is_unsafe(character) else character for character in text)


def _is_unsafe(character: str) -> bool:
    return character in _DIRECTION_MARKS or unicodedata.category(character) in _UNSAFE_CATEGORIES


@lru_cache(maxsize=4096)
def text_width(text: str) -> int:
    """Columns that the text takes in a terminal: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def cut_text(text: str, width: int) -> str:
    """The text in at most ``width`` columns; an ellipsis stands for what was cut off."""
    if text_width(text) <= width:
        return text
    kept: list[str] = []
    used = 0
    for character in text:
        used += _character_width(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + "…"


def pad_text(text: str, width: int, *, right: bool = False) -> str:
    """The text filled up with spaces to ``width`` columns, at its left end when ``right``."""
    spaces = " " * max(0, width - text_width(text))
    return spaces + text if right else text + spaces


def one_line(text: str, width: int = 120) -> str:
    """The text cleaned and cut: fit for a table's cell, a mail's subject or a log line."""
    # Names can be megabytes long: only what can be shown is looked at.
    return cut_text(clean_text(text[: width + 1]), width)


def align_columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """One line per row with columns two spaces apart; those in ``right`` end in line."""
    if not rows:
        return []
    widths = [max(text_width(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            pad_text(cell, widths[column], right=column in right) for column, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]
