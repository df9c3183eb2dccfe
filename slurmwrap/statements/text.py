"""The statement as a table for people, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Sequence

from slurmwrap.billing.statement import Statement, StatementLine
from slurmwrap.display import clean_text, cut_text, pad_text, text_width
from slurmwrap.statements.figures import show_moment, show_price
from slurmwrap.units import card_hours

WIDTH = 100
_HEADINGS = ("account", "user", "partition", "qos", "card", "jobs", "card-hours", "price", "amount")
_NAME_COLUMNS = 5
_GAP = "  "
_NARROWEST_NAME = 8


def render(statement: Statement) -> str:
    """Period, priced lines, unpriced lines, totals, and what must be said beside them."""
    period = statement.period
    start, end = (show_moment(at, period.timezone) for at in (period.start, period.end))
    parts = [
        f"Card-hours {period.name}, amounts in {statement.currency}",
        f"from {start} up to {end} ({period.timezone})",
        "",
    ]
    rows = [_cells(line) for line in statement.lines]
    if statement.unpriced:
        rows.append(["WITHOUT A PRICE", *[""] * 8])
        rows.extend(_cells(line) for line in statement.unpriced)
    total = ["total", *[""] * 5, str(statement.card_hours), "", str(statement.amount)]
    parts.extend(_table(rows, total))
    parts.extend(_remarks(statement))
    return "\n".join(parts) + "\n"


def _cells(line: StatementLine) -> list[str]:
    names = (line.account, line.user, line.partition, line.qos, line.gpu_type)
    return [
        *(clean_text(name) or "-" for name in names),
        str(line.jobs),
        str(line.card_hours),
        "-" if line.unit_price is None else show_price(line.unit_price),
        "-" if line.amount is None else str(line.amount),
    ]


def _table(rows: Sequence[list[str]], total: list[str]) -> list[str]:
    spanning = [row for row in rows if not row[-1]]
    widths = [
        max(
            text_width(row[column])
            for row in (list(_HEADINGS), *(row for row in rows if row not in spanning), total)
        )
        for column in range(len(_HEADINGS))
    ]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > WIDTH:
        widest = max(range(_NAME_COLUMNS), key=lambda column: widths[column])
        if widths[widest] <= _NARROWEST_NAME:
            break  # figures are never cut
        widths[widest] -= 1
    rule = "-" * (sum(widths) + len(_GAP) * (len(widths) - 1))
    return [
        _join(_HEADINGS, widths),
        rule,
        *(row[0] if row in spanning else _join(row, widths) for row in rows),
        rule,
        _join(total, widths),
    ]


def _join(cells: Sequence[str], widths: Sequence[int]) -> str:
    shown = [
        pad_text(cut_text(cell, width), width, right=column >= _NAME_COLUMNS)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return _GAP.join(shown).rstrip()


def _remarks(statement: Statement) -> list[str]:
    remarks = []
    if statement.unpriced:
        hours = card_hours(statement.unpriced_card_seconds)
        remarks.append(f"{hours} card-hours have no price and are not in the amount.")
    if statement.in_flight_card_seconds:
        hours = card_hours(statement.in_flight_card_seconds)
        remarks.append(f"{hours} card-hours are of jobs that had not ended: they will grow.")
    if statement.rejected_records:
        remarks.append(
            f"{statement.rejected_records} record(s) could not be read and are missing here."
        )
    remarks.extend(clean_text(note) for note in statement.notes)
    return ["", *remarks] if remarks else []
