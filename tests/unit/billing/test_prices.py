"""The price book refuses what it does not understand and finds the most specific entry."""

from __future__ import annotations

import re
import tomllib
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from slurmwrap.billing.prices import PriceBook, Usage, make_price_book
from slurmwrap.config.price_file import read_price_file
from slurmwrap.errors import PriceError, PriceTieError, UnknownNameError

SHANGHAI = ZoneInfo("Asia/Shanghai")
SHIPPED = Path(__file__).resolve().parents[3] / "etc/prices.toml"
NOVEMBER_15 = 1794672000  # midnight in Shanghai


def book_of(*entries: dict[str, object], **keys: object) -> PriceBook:
    return make_price_book({"price": list(entries), **keys}, zone=SHANGHAI, currency="CNY")


def usage(**attributes: str) -> Usage:
    names = {"cluster": "c", "partition": "gpu", "qos": "normal", "account": "chem"}
    return Usage(**{**names, "gpu_type": "a100", **attributes})


def price_at(book: PriceBook, moment: int, **attributes: str) -> Decimal | None:
    (span,) = book.spans(usage(**attributes), moment, moment + 1)
    return span.price()


def test_the_most_specific_entry_wins() -> None:
    """More selectors beat fewer, wherever they stand in the file."""
    book = book_of(
        {"per_card_hour": "1.00"},
        {"gpu_type": "a100", "account": ["chem", "bio"], "per_card_hour": "3.00"},
        {"gpu_type": "a100", "per_card_hour": "2.00"},
    )
    assert price_at(book, 0) == Decimal("3.00")
    assert price_at(book, 0, account="phys") == Decimal("2.00")
    assert price_at(book, 0, gpu_type="") == Decimal("1.00")


@pytest.mark.parametrize("selector", ["cluster", "partition", "qos", "account", "gpu_type"])
def test_every_selector_selects(selector: str) -> None:
    """A selector limits its entry to what it names."""
    book = book_of({selector: ["x", "y"], "per_card_hour": "5.00"})
    assert price_at(book, 0, **{selector: "y"}) == Decimal("5.00")
    assert price_at(book, 0, **{selector: "z"}) is None


def test_dates_are_midnights_and_the_end_is_exclusive() -> None:
    """The second before midnight of the zone costs the old price, midnight the new one."""
    book = book_of(
        {"per_card_hour": "1.00", "valid_until": date(2026, 11, 15)},
        {"per_card_hour": "2.00", "valid_from": "2026-11-15"},
    )
    assert price_at(book, NOVEMBER_15 - 1) == Decimal("1.00")
    assert price_at(book, NOVEMBER_15) == Decimal("2.00")
    spans = book.spans(usage(), NOVEMBER_15 - 10, NOVEMBER_15 + 10)
    assert [(span.start, span.end) for span in spans] == [
        (NOVEMBER_15 - 10, NOVEMBER_15),
        (NOVEMBER_15, NOVEMBER_15 + 10),
    ]


def test_a_tie_is_an_error_only_while_it_lasts() -> None:
    """Two entries of equal rank that are valid at different times are no tie."""
    book = book_of(
        {"gpu_type": "a100", "per_card_hour": "1.00", "valid_until": "2026-11-15"},
        {"account": "chem", "per_card_hour": "1.00"},
    )
    with pytest.raises(PriceTieError, match=r"1 \(gpu_type=a100\).* 2 \(account=chem\)"):
        price_at(book, NOVEMBER_15 - 1)
    assert price_at(book, NOVEMBER_15) == Decimal("1.00")
    assert price_at(book, 0, account="bio") == Decimal("1.00")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (35.0, "binary fraction"),
        (float("nan"), "binary fraction"),
        ("NaN", "no price"),
        ("-1.00", "no price"),
        ("1e3", "no price"),
        ("1,50", "no price"),
        ("0.1234567", "no price"),
        ("", "no price"),
        (35, "no price"),
        (True, "no price"),
        (None, "no price"),
    ],
)
def test_a_price_is_decimal_text(value: object, words: str) -> None:
    """Anything but digits in quotes is refused, with the form that is wanted."""
    with pytest.raises(PriceError, match=words) as caught:
        book_of({"per_card_hour": "1"}, {"per_card_hour": value})
    assert "[[price]] 2" in caught.value.message
    assert "in quotes" in str(caught.value.hint)


def test_free_of_charge_is_a_price() -> None:
    """0.00 is a price: such use is not unpriced."""
    assert price_at(book_of({"per_card_hour": "0.00"}), 0) == Decimal("0.00")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"gpu_type": ""}, "a name or a list of names"),
        ({"gpu_type": []}, "a name or a list of names"),
        ({"account": [1]}, "a name or a list of names"),
        ({"account": 7}, "a name or a list of names"),
        ({"valid_from": "2026-13-01"}, "must be a date"),
        ({"valid_from": datetime(2026, 11, 1, 12)}, "must be a date"),  # noqa: DTZ001
        ({"valid_until": 20261101}, "must be a date"),
        ({"valid_from": "2026-11-01", "valid_until": "2026-11-01"}, "is not before"),
        ({"name": 1}, "must be text"),
    ],
)
def test_entries_of_the_wrong_form(entry: dict[str, object], words: str) -> None:
    """An entry that says something else than it may is refused by its number."""
    with pytest.raises(PriceError, match=words) as caught:
        book_of({"per_card_hour": "1.00", **entry})
    assert "[[price]] 1" in caught.value.message


@pytest.mark.parametrize(
    ("document", "unknown"),
    [
        ({"prices": []}, "prices"),
        ({"price": [{"per_card_hour": "1", "gpu": "a100"}]}, "gpu"),
        ({"price": [{"per_card_hour": "1", "valid_til": "2026-01-01"}]}, "valid_til"),
    ],
)
def test_unknown_keys_are_refused(document: dict[str, object], unknown: str) -> None:
    """A key that nobody reads would be a price that nobody pays."""
    with pytest.raises(UnknownNameError, match=f"'{unknown}'"):
        make_price_book(document, zone=SHANGHAI, currency="CNY")


@pytest.mark.parametrize("code", ["cny", "¥", "", "CNYX", 1])
def test_a_currency_is_a_code(code: object) -> None:
    """The currency of a price file is a code of ISO 4217's form."""
    with pytest.raises(PriceError, match="currency"):
        book_of(currency=code)


@pytest.mark.parametrize(
    "document", [{"price": {}}, {"price": ["x"]}, {"price": [{"gpu_type": "a100"}]}]
)
def test_documents_of_the_wrong_form(document: dict[str, object]) -> None:
    """What is no list of tables, or has no price, is refused."""
    with pytest.raises(PriceError):
        make_price_book(document, zone=SHANGHAI, currency="CNY")


def test_the_shipped_price_file() -> None:
    """etc/prices.toml is valid as shipped and prices the cards it names."""
    book = read_price_file(SHIPPED, zone=SHANGHAI, currency="EUR")
    assert book.currency == "CNY"
    assert price_at(book, NOVEMBER_15, gpu_type="h800") == Decimal("35.00")
    assert price_at(book, NOVEMBER_15, gpu_type="a100") == Decimal("10.50")
    assert price_at(book, 1767196799, gpu_type="a100") == Decimal("12.00")
    assert price_at(book, NOVEMBER_15, gpu_type="a100", partition="spot") == Decimal("4.20")
    assert price_at(book, NOVEMBER_15, gpu_type="l40s") is None


def test_the_examples_in_the_shipped_price_file() -> None:
    """The examples that are commented out are valid, and no tie, when their marks are removed."""
    text = re.sub(r"(?m)^# (\[\[price\]\]|\w+ = .*)$", r"\1", SHIPPED.read_text())
    document = tomllib.loads(text)
    book = make_price_book(document, zone=SHANGHAI, currency="CNY")
    assert len(book.entries) == 9
    assert price_at(book, NOVEMBER_15, account="chem") == Decimal("9.00")
    assert price_at(book, NOVEMBER_15, account="chem", partition="spot") == Decimal("4.20")
    assert price_at(book, NOVEMBER_15, account="chem", qos="urgent") == Decimal("60.00")
    assert price_at(book, NOVEMBER_15, account="teaching") == Decimal("0.00")


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    """A price file that is missing or no TOML is an error that names it."""
    with pytest.raises(PriceError, match="nowhere"):
        read_price_file(tmp_path / "nowhere.toml", zone=SHANGHAI, currency="CNY")
    for content in (b"[[price]\n", b"\xff\xfe"):
        broken = tmp_path / "broken.toml"
        broken.write_bytes(content)
        with pytest.raises(PriceError, match="not valid TOML"):
            read_price_file(broken, zone=SHANGHAI, currency="CNY")
