"""Text from strangers made fit to show: one line, no control characters, known width."""

from __future__ import annotations

import unicodedata

REPLACEMENT = "?"

# Control, format (bidirectional overrides, zero-width), surrogate, private use and unassigned
# characters, and the two Unicode line ends: each could move a cursor, forge a header or hide text.
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def one_line(text: str, limit: int = 120) -> str:
    """``text`` as one line of at most ``limit`` characters, every unsafe character a ``?``.

    Undecodable bytes (surrogates), escape sequences, tabs and newlines become ``?``; what is
    cut off is marked with ``…``.
    """
    safe = "".join(
        REPLACEMENT if unicodedata.category(letter) in _UNSAFE_CATEGORIES else letter
        for letter in text[: limit + 1]
    )
    return safe if len(text) <= limit else safe[: limit - 1] + "…"


def display_width(text: str) -> int:
    """Columns that ``text`` takes on a terminal: Chinese characters take two, accents none."""
    return sum(
        0
        if unicodedata.combining(letter)
        else 2
        if unicodedata.east_asian_width(letter) in ("W", "F")
        else 1
        for letter in text
    )


def pad(text: str, width: int, *, right: bool = False) -> str:
    """``text`` filled with spaces to ``width`` columns; ``right`` puts them before it."""
    spaces = " " * max(0, width - display_width(text))
    return spaces + text if right else text + spaces
