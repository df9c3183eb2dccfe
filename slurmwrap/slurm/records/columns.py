"""Which of sacct's columns the accounting needs, and where a dump has them.

Column names are those of ``sacct --helpformat``; sacct prints them in the header line of its
parsable output (``-P``), without the ``%width`` of ``--format``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from slurmwrap.errors import SacctFormatError
from slurmwrap.slurm.records import values

SUGGESTED_FIELDS = (
    "JobIDRaw,Cluster,User,Account,Partition,QOS,State,Submit,Start,End,ElapsedRaw,Suspended,"
    "AllocTRES"
)
"""What a dump for a bill should hold."""

_MANDATORY = (
    ("JobIDRaw", "JobID"),
    ("Account",),
    ("Start",),
    ("ElapsedRaw", "Elapsed"),
    ("AllocTRES",),
)
# Columns whose text users choose: they can hold the delimiter and newlines.
_FREE_TEXT = frozenset(
    {
        "admincomment",
        "comment",
        "constraints",
        "container",
        "extra",
        "jobname",
        "stderr",
        "stdin",
        "stdout",
        "submitline",
        "systemcomment",
        "wckey",
        "workdir",
    }
)
_CHECKS: dict[str, Callable[[str], bool]] = {
    "jobidraw": values.is_raw_id,
    "jobid": values.is_shown_id,
    "start": values.is_time,
    "end": values.is_time,
    "submit": values.is_time,
    "eligible": values.is_time,
    "elapsedraw": values.is_count,
    "elapsed": values.is_duration,
    "suspended": values.is_duration,
    "state": values.is_state,
    "alloctres": values.is_tres,
    "reqtres": values.is_tres,
    "exitcode": values.is_exit_code,
    "derivedexitcode": values.is_exit_code,
    "alloccpus": values.is_count,
    "allocnodes": values.is_count,
    "cputimeraw": values.is_count,
    "ncpus": values.is_count,
    "nnodes": values.is_count,
    "reqcpus": values.is_count,
    "reqnodes": values.is_count,
    "uid": values.is_count,
    "gid": values.is_count,
}


@dataclass(frozen=True)
class Layout:
    """The columns of one dump: how many there are and where each one is."""

    names: tuple[str, ...]
    """As the dump writes them."""
    positions: dict[str, int]
    """By lower-case name; the first when a name comes twice."""
    free_text: tuple[int, ...]
    """Positions of columns that can hold the delimiter and newlines."""
    checks: tuple[tuple[int, Callable[[str], bool]], ...] = field(repr=False)
    """Positions of columns with a known form, and the test of that form."""

    @property
    def width(self) -> int:
        return len(self.names)

    def position(self, *names: str) -> int | None:
        """Where the first of ``names`` that the dump has is."""
        for name in names:
            if name.lower() in self.positions:
                return self.positions[name.lower()]
        return None

    def fits(self, fields: Sequence[str]) -> bool:
        """Whether every column holds what it can hold: its own form, and newlines only in
        text that users choose."""
        if len(fields) != len(self.names):
            return False
        if not all(check(fields[position]) for position, check in self.checks):
            return False
        return not any(
            "\n" in text for position, text in enumerate(fields) if position not in self.free_text
        )

    def begins_record(self, fields: Sequence[str]) -> bool:
        """Whether a line that may be cut short has a job id where the job id should be."""
        complete = fields if len(fields) >= len(self.names) else fields[:-1]
        position = self.position("JobIDRaw", "JobID")
        if position is None or position >= len(complete):
            return False
        return values.is_shown_id(complete[position])


def make_layout(names: Sequence[str], *, where: str, delimiter: str) -> Layout:
    """The layout of a dump whose columns are ``names``.

    Raises:
        SacctFormatError: a column that the accounting needs is missing; names all that are.
    """
    shown = tuple(name.strip().partition("%")[0] for name in names)
    positions: dict[str, int] = {}
    for position, name in enumerate(shown):
        if name:
            positions.setdefault(name.lower(), position)
    missing = [
        " or ".join(choice)
        for choice in _MANDATORY
        if not any(name.lower() in positions for name in choice)
    ]
    if missing:
        raise _missing_columns(missing, shown, where=where, delimiter=delimiter)
    return Layout(
        names=shown,
        positions=positions,
        free_text=tuple(
            position for position, name in enumerate(shown) if name.lower() in _FREE_TEXT
        ),
        checks=tuple(
            (position, _CHECKS[name.lower()])
            for position, name in enumerate(shown)
            if name.lower() in _CHECKS
        ),
    )


def _missing_columns(
    missing: list[str], names: Sequence[str], *, where: str, delimiter: str
) -> SacctFormatError:
    needed = ", ".join(" or ".join(choice) for choice in _MANDATORY)
    found = ", ".join(repr(name) if not name.isidentifier() else name for name in names[:40])
    message = f"{where} lacks {', '.join(missing)}; needed are {needed}; found: {found[:400]}"
    hint = f"make the dump with: sacct -P -D -X -a --format={SUGGESTED_FIELDS}"
    first = names[0] if names else ""
    other = next((mark for mark in "|,;\t" if mark != delimiter and mark in first), None)
    if len(names) == 1 and other is not None:
        hint = f"the columns seem to be separated by {other!r}: name it with --delimiter"
    elif values.is_shown_id(first) or (len(names) > 3 and any(map(values.is_tres_list, names))):
        hint = "the first line looks like data: name the columns with --sacct-fields"
    elif "AllocTRES" in missing and any(name.lower() == "reqtres" for name in names):
        hint += " (ReqTRES is what was asked for, not what was held)"
    return SacctFormatError(message, hint=hint)
