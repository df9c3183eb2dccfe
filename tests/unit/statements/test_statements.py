"""A statement says the same in every form, and no name in it can do harm."""

from __future__ import annotations

import csv as csv_reader
import io
import json as plain_json
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from slurmwrap.billing.period import parse_month
from slurmwrap.billing.statement import Statement, StatementLine
from slurmwrap.display import text_width
from slurmwrap.statements import csv, json, text

PERIOD = parse_month("2026-11", ZoneInfo("Asia/Shanghai"))


def line(account: str, card_seconds: int, price: str | None, amount: str | None) -> StatementLine:
    return StatementLine(
        account=account,
        user="alice",
        partition="gpu",
        qos="normal",
        gpu_type="a100",
        jobs=3,
        card_seconds=card_seconds,
        unit_price=None if price is None else Decimal(price),
        amount=None if amount is None else Decimal(amount),
    )


def statement(*names: str) -> Statement:
    lines = tuple(line(name, 3600, "35", "35.00") for name in names)
    return Statement(
        period=PERIOD,
        currency="CNY",
        lines=lines,
        unpriced=(line("free", 45, None, None),),
        card_seconds=3600 * len(names) + 45,
        amount=Decimal("35.00") * len(names),
        rejected_records=2,
        in_flight_card_seconds=45,
        notes=("something to know",),
    )


def test_the_json_document() -> None:
    """The keys and forms are fixed: amounts and hours are text, card-seconds numbers."""
    document = plain_json.loads(json.encode(statement("chem")))
    assert document == {
        "period": {
            "start": "2026-11-01T00:00:00+08:00",
            "end": "2026-12-01T00:00:00+08:00",
            "timezone": "Asia/Shanghai",
        },
        "currency": "CNY",
        "lines": [
            {
                "account": "chem",
                "user": "alice",
                "partition": "gpu",
                "qos": "normal",
                "gpu_type": "a100",
                "jobs": 3,
                "card_seconds": 3600,
                "card_hours": "1.0000",
                "unit_price": "35.00",
                "amount": "35.00",
            }
        ],
        "totals": {"card_seconds": 3645, "card_hours": "1.0125", "amount": "35.00"},
        "unpriced": [
            {
                "account": "free",
                "user": "alice",
                "partition": "gpu",
                "qos": "normal",
                "gpu_type": "a100",
                "jobs": 3,
                "card_seconds": 45,
                "card_hours": "0.0125",
                "unit_price": None,
            }
        ],
        "rejected_records": 2,
        "in_flight": {"card_seconds": 45},
        "notes": ["something to know"],
    }


def test_what_is_written_is_read_back_equal() -> None:
    """A statement survives its JSON form whole."""
    original = statement("chem", "测试")
    assert json.decode(json.encode(original)) == original


@pytest.mark.parametrize("content", ["{}", "[]", '"x"', "null", "{", '{"period": {"start": 1}}'])
def test_what_is_no_statement(content: str) -> None:
    """Other JSON is refused with the reader's own error."""
    with pytest.raises(ValueError, match=r"."):
        json.decode(content)


@pytest.mark.parametrize("page_bytes", [1, 400, 1000, 100_000])
def test_pages_are_the_whole(page_bytes: int) -> None:
    """Pages of any size put together are the statement; none is over its size by more than
    one line."""
    original = statement(*(f"account-{number}" for number in range(20)))
    pages: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page, offset = json.encode_page(original, offset, page_bytes=page_bytes)
        pages.append(page)
    assert json.merge_pages(pages) == original
    assert (len(pages) == 1) == (page_bytes == 100_000)


def test_pages_of_two_statements_are_no_statement() -> None:
    """A bill that changed between two pages is not put together from both."""
    first, offset = json.encode_page(statement("a", "b"), 0, page_bytes=1)
    second, _ = json.encode_page(statement("a", "b", "c"), offset or 0)
    with pytest.raises(ValueError, match="changed"):
        json.merge_pages([first, second])
    with pytest.raises(ValueError, match="missing"):
        json.merge_pages([first])


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", "\tx", "\rx"])
def test_csv_names_are_no_formulas(name: str) -> None:
    """A name that a spreadsheet would compute is text with an apostrophe before it."""
    rows = list(csv_reader.DictReader(io.StringIO(csv.render(statement(name)), newline="")))
    assert rows[0]["account"].startswith("'")
    assert rows[0]["amount"] == "35.00"


def test_csv_rows() -> None:
    """RFC 4180: CR LF, quotes where needed; unpriced rows have no price and no amount."""
    rendered = csv.render(statement('a,"b"'))
    assert rendered.endswith("\r\n")
    rows = list(csv_reader.DictReader(io.StringIO(rendered, newline="")))
    assert [row["account"] for row in rows] == ['a,"b"', "free"]
    assert [(row["unit_price"], row["amount"]) for row in rows] == [("35.00", "35.00"), ("", "")]
    assert {row["period"] for row in rows} == {"2026-11"}
    assert [int(row["card_seconds"]) for row in rows] == [3600, 45]


def test_text_is_even_and_at_most_100_columns() -> None:
    """Long and wide names are cut, figures never; the amounts end in one column."""
    rendered = text.render(statement("chem", "超长的账户名称" * 12, "x" * 200))
    lines = rendered.splitlines()
    assert max(text_width(row) for row in lines) <= 100
    amounts = [row for row in lines if row.endswith("35.00")]
    assert len({text_width(row) for row in amounts}) == 1
    assert "…" in rendered


def test_text_says_what_is_missing() -> None:
    """Unpriced, unfinished and unread use stand under the table."""
    rendered = text.render(statement("chem"))
    assert "WITHOUT A PRICE" in rendered
    assert "0.0125 card-hours have no price" in rendered
    assert "0.0125 card-hours are of jobs that had not ended" in rendered
    assert "2 record(s) could not be read" in rendered
    assert "something to know" in rendered


@pytest.mark.parametrize("form", [text.render, csv.render, json.encode])
def test_no_form_prints_control_characters(form) -> None:  # type: ignore[no-untyped-def]
    """A name can't move the cursor, forge a line or turn the writing direction."""
    rendered = form(statement("a\x1b[2Jb\u202ec\nd"))
    assert not {"\x1b", "\u202e"} & set(rendered)
    assert "\nd" not in rendered
