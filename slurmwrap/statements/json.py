"""The statement as a JSON document, and back; whole, or in pages for messages of bounded size.

Amounts, prices and hours are decimal text, card-seconds are whole numbers, keys keep their
order: the same statement is the same text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from slurmwrap.billing.period import PERIOD_KINDS, Period, period_at
from slurmwrap.billing.statement import Statement, StatementLine
from slurmwrap.display import clean_text
from slurmwrap.statements.figures import show_moment, show_price

_NAMES = ("account", "user", "partition", "qos", "gpu_type")
# A message holds 512 KiB with its envelope.
PAGE_BYTES = 384 * 1024


def encode(statement: Statement) -> str:
    """The whole statement as one document, for people and programs."""
    return json.dumps(_document(statement), ensure_ascii=False, indent=2)


def decode(text: str | bytes) -> Statement:
    """The statement in a document that ``encode`` wrote.

    Raises:
        ValueError: it is no such document.
    """
    try:
        return _read_document(json.loads(text))
    except (KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"this is no statement: {error!r}") from error


def encode_page(
    statement: Statement, offset: int = 0, *, page_bytes: int = PAGE_BYTES
) -> tuple[str, int | None]:
    """A document with the lines from ``offset`` on, as many as fit, and where the next begins.

    Priced lines come first, then the unpriced ones; totals are always those of the whole.
    """
    document = _document(statement)
    priced, unpriced = document["lines"], document["unpriced"]
    everything = priced + unpriced
    taken = size = 0
    for line in everything[offset:]:
        size += len(json.dumps(line, ensure_ascii=False).encode()) + 2
        if taken and size > page_bytes:
            break
        taken += 1
    end = offset + taken
    document["lines"] = priced[offset:end]
    document["unpriced"] = unpriced[max(0, offset - len(priced)) : max(0, end - len(priced))]
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text, end if end < len(everything) else None


def merge_pages(pages: Iterable[str | bytes]) -> Statement:
    """The statement whose pages these are, in order.

    Raises:
        ValueError: they are no pages of one statement, since it changed in between.
    """
    documents = [json.loads(page) for page in pages]
    if not documents:
        raise ValueError("a statement has at least one page")
    whole = {**documents[0], "lines": [], "unpriced": []}
    for document in documents:
        rest = {**document, "lines": [], "unpriced": []}
        if rest != whole:
            raise ValueError("the statement changed between two pages")
    for document in documents:
        whole["lines"].extend(document["lines"])
        whole["unpriced"].extend(document["unpriced"])
    statement = decode(json.dumps(whole))
    listed = sum(line.card_seconds for line in (*statement.lines, *statement.unpriced))
    if listed != statement.card_seconds:
        raise ValueError("pages of the statement are missing, or it changed between two of them")
    return statement


def _document(statement: Statement) -> dict[str, Any]:
    period = statement.period
    return {
        "period": {
            "start": show_moment(period.start, period.timezone),
            "end": show_moment(period.end, period.timezone),
            "timezone": period.timezone,
        },
        "currency": statement.currency,
        "lines": [{**_line(line), "amount": str(line.amount)} for line in statement.lines],
        "totals": {
            "card_seconds": statement.card_seconds,
            "card_hours": str(statement.card_hours),
            "amount": str(statement.amount),
        },
        "unpriced": [_line(line) for line in statement.unpriced],
        "rejected_records": statement.rejected_records,
        "in_flight": {"card_seconds": statement.in_flight_card_seconds},
        "notes": list(statement.notes),
    }


def _line(line: StatementLine) -> dict[str, Any]:
    return {
        **{name: clean_text(getattr(line, name)) for name in _NAMES},
        "jobs": line.jobs,
        "card_seconds": line.card_seconds,
        "card_hours": str(line.card_hours),
        "unit_price": None if line.unit_price is None else show_price(line.unit_price),
    }


def _read_document(document: Mapping[str, Any]) -> Statement:
    totals = document["totals"]
    return Statement(
        period=_read_period(document["period"]),
        currency=document["currency"],
        lines=tuple(_read_line(line) for line in document["lines"]),
        unpriced=tuple(_read_line(line) for line in document["unpriced"]),
        card_seconds=int(totals["card_seconds"]),
        amount=Decimal(totals["amount"]),
        rejected_records=int(document["rejected_records"]),
        in_flight_card_seconds=int(document["in_flight"]["card_seconds"]),
        notes=tuple(document["notes"]),
    )


def _read_line(line: Mapping[str, Any]) -> StatementLine:
    price = line["unit_price"]
    amount = line.get("amount")
    return StatementLine(
        **{name: line[name] for name in _NAMES},
        jobs=int(line["jobs"]),
        card_seconds=int(line["card_seconds"]),
        unit_price=None if price is None else Decimal(price),
        amount=None if amount is None else Decimal(amount),
    )


def _read_period(period: Mapping[str, str]) -> Period:
    zone = ZoneInfo(period["timezone"])
    start = int(datetime.fromisoformat(period["start"]).timestamp())
    end = int(datetime.fromisoformat(period["end"]).timestamp())
    for kind in PERIOD_KINDS:
        candidate = period_at(start, kind, zone)
        if (candidate.start, candidate.end) == (start, end):
            return candidate
    name = f"{period['start']}/{period['end']}"
    return Period(name=name, start=start, end=end, timezone=zone.key)
