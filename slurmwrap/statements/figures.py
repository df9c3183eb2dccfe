"""Figures of a statement as text: moments in the period's zone, prices."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo


def show_moment(moment: int, timezone: str) -> str:
    """A moment in a zone, with its offset: ``2026-11-01T00:00:00+08:00``."""
    return datetime.fromtimestamp(moment, tz=ZoneInfo(timezone)).isoformat()


def show_price(price: Decimal) -> str:
    """A price with two decimals, or more where it has them."""
    exponent = price.normalize().as_tuple().exponent
    decimals = max(2, -exponent if isinstance(exponent, int) else 2)
    return f"{price:.{decimals}f}"
