"""What the reader's terminal can show: its width, its letters, the local time."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import click


@dataclass(frozen=True)
class Terminal:
    """Where a page is going to."""

    columns: int
    """0: no limit, since the reader is a file or another program."""
    has_blocks: bool
    """Whether its encoding has the block characters and the ellipsis."""
    encoding: str = "utf-8"


def find_terminal() -> Terminal:
    """The terminal behind standard output, as it is now."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "▁█·…░".encode(encoding)
        has_blocks = True
    except (UnicodeEncodeError, LookupError):
        has_blocks = False
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    return Terminal(columns=columns, has_blocks=has_blocks, encoding=encoding)


def print_page(lines: Iterable[str], terminal: Terminal) -> None:
    """Print lines; letters that the terminal does not have become question marks."""
    for line in lines:
        text = line if terminal.has_blocks else line.replace("…", "...").replace("·", "?")
        click.echo(text.encode(terminal.encoding, "replace").decode(terminal.encoding, "replace"))


def local_time(at: int, now: int) -> str:
    """A moment in the reader's zone: ``18:05:09`` on the same day, else with its date."""
    moment = datetime.fromtimestamp(at, UTC).astimezone()
    today = datetime.fromtimestamp(now, UTC).astimezone().date()
    return moment.strftime("%H:%M:%S" if moment.date() == today else "%Y-%m-%d %H:%M:%S")


def local_date_time(at: int) -> str:
    """A moment in the reader's zone with date and offset: ``2026-11-30 18:05:09 +0800``."""
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
