"""Text from outside can't disturb a report, and columns stay even with wide characters."""

from __future__ import annotations

import pytest

from slurmwrap.display import clean_text, cut_text, pad_text, text_width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train-7", "train-7"),
        ("a b", "a b"),
        ("测试", "测试"),
        ("a\nb\tc\rd", "a\ufffdb\ufffdc\ufffdd"),
        ("\x1b[31mred", "\ufffd[31mred"),
        ("x\u202egpj.exe", "x\ufffdgpj.exe"),
        ("a\udcffb", "a\ufffdb"),
        ("\u2028", "\ufffd"),
    ],
)
def test_control_characters_are_replaced(text: str, shown: str) -> None:
    """Nothing that moves a cursor, breaks a line or turns the direction is printed."""
    assert clean_text(text) == shown


def test_wide_characters_take_two_columns() -> None:
    """A Chinese account name keeps the table even: two columns per character."""
    assert text_width("测试") == 4
    assert pad_text("测试", 6) == "测试  "
    assert pad_text("7", 3, right=True) == "  7"


def test_cut_text_keeps_the_width() -> None:
    """A cut name ends in an ellipsis and never takes more columns than it was given."""
    assert cut_text("abcdef", 4) == "abc…"
    assert cut_text("测试账户", 6) == "测试…"
    assert text_width(cut_text("测试账户", 6)) <= 6
    assert cut_text("abc", 3) == "abc"
