"""The statement's lines as CSV (RFC 4180): one row per line, no total, unpriced ones as well.

Spreadsheets take a cell that begins with ``=``, ``+``, ``-`` or ``@`` for a formula; names that
others chose get an apostrophe before it.
"""

from __future__ import annotations

import csv
import io

from slurmwrap.billing.statement import Statement, StatementLine
from slurmwrap.display import clean_text
from slurmwrap.statements.figures import show_price

COLUMNS = (
    "period",
    "account",
    "user",
    "partition",
    "qos",
    "gpu_type",
    "jobs",
    "card_seconds",
    "card_hours",
    "unit_price",
    "amount",
    "currency",
)
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")


def render(statement: Statement) -> str:
    """Header and one row per line, each ended by CR LF. Unpriced rows lack price and amount."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for line in (*statement.lines, *statement.unpriced):
        writer.writerow(_row(statement, line))
    return text.getvalue()


def _row(statement: Statement, line: StatementLine) -> list[str]:
    names = (line.account, line.user, line.partition, line.qos, line.gpu_type)
    return [
        statement.period.name,
        *(_safe(name) for name in names),
        str(line.jobs),
        str(line.card_seconds),
        str(line.card_hours),
        "" if line.unit_price is None else show_price(line.unit_price),
        "" if line.amount is None else str(line.amount),
        statement.currency,
    ]


def _safe(name: str) -> str:
    """The name as text that no spreadsheet computes."""
    mark = "'" if name.startswith(_FORMULA_SIGNS) else ""
    return mark + clean_text(name)
