"""Reading the price file from disk; what it may hold is billing's to say."""

from __future__ import annotations

import tomllib
from pathlib import Path
from zoneinfo import ZoneInfo

from slurmwrap.billing.prices import PriceBook, make_price_book
from slurmwrap.errors import PriceError


def read_price_file(path: Path, *, zone: ZoneInfo, currency: str) -> PriceBook:
    """The price book in a TOML file.

    Args:
        zone: whose midnight begins the dates in it.
        currency: of its prices when it names none.

    Raises:
        PriceError: the file can't be read, is no TOML, or holds an entry of the wrong form.
        UnknownNameError: a key that is none.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise PriceError(
            f"can't read the price file {path}: {error.strerror}",
            hint="name another with --prices or billing.prices",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PriceError(f"{path} is not valid TOML: {error}") from error
    return make_price_book(document, zone=zone, currency=currency, where=str(path))
