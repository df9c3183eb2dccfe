"""Writing any text so that two readers get it back: Slurm's ``#SBATCH`` parser, and bash."""

from __future__ import annotations

import re
import shlex

from slurmwrap.errors import UsageError

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./?*!\[\]-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def find_control_character(text: str) -> str | None:
    """The first control character of a text, in Python's notation; None if it has none."""
    match = _CONTROL.search(text)
    return repr(match.group())[1:-1] if match else None


def quote_directive(option: str, value: str = "") -> str:
    r"""One option as Slurm's parser of ``#SBATCH`` lines reads it: ``--job-name="run#3"``.

    Source: sbatch 22.05.8, tried, and its ``_get_argument``. A ``#`` outside quotes starts a
    comment even inside a word, ``\`` escapes the next character even inside quotes, spaces end
    the word, nothing is expanded. So everything that is not plain stands in double quotes, with
    ``\`` before ``\`` and ``"``.

    Raises:
        UsageError: a control character, which the line can't hold.
    """
    if not value:
        return f"--{option}"
    found = find_control_character(value)
    if found is not None:
        raise UsageError(
            f"the value of --{option} holds the control character {found}: {value!r}",
            hint="names and paths that Slurm shall keep must be one line of text",
        )
    if _PLAIN.fullmatch(value):
        return f"--{option}={value}"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'--{option}="{escaped}"'


def quote_word(word: str) -> str:
    r"""A word that bash reads back exactly, on one line.

    shlex.quote, except that control characters are written ``$'a\nb'``: sbatch refuses a script
    with CR LF anywhere, and a line break inside an argument would tear the script apart.
    """
    if _CONTROL.search(word) is None:
        return shlex.quote(word)
    return "$'" + "".join(_ESCAPES.get(letter) or _escape(letter) for letter in word) + "'"


def _escape(letter: str) -> str:
    return f"\\x{ord(letter):02x}" if _CONTROL.match(letter) else letter


def quote_command(words: list[str] | tuple[str, ...]) -> str:
    """A command line for bash, each word exactly as given."""
    return " ".join(quote_word(word) for word in words)
