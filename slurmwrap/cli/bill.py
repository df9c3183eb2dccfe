"""`slurmwrap bill`: the card-hours and cost of a month, from slurmwrapd or from a sacct dump."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from slurmwrap.commandline import loaded_settings
from slurmwrap.errors import (
    DaemonUnavailableError,
    NotFoundError,
    PartialResultError,
    SacctFormatError,
    UsageError,
)

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from slurmwrap.billing.statement import Statement
    from slurmwrap.config import LoadedConfig
    from slurmwrap.model import AccountingRecord
    from slurmwrap.slurm.records import RecordReader

_FORMATS = ("text", "csv", "json")
_REASONS_SHOWN = 5
_PAGE_ATTEMPTS = 3
_ESCAPE = re.compile(r"\\(?:t|x[0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class BillOptions:
    """What the command line asks for."""

    month: str
    sacct: str | None
    sacct_fields: str | None
    delimiter: str | None
    prices: Path | None
    timezone: str | None
    cluster: str | None
    account: str
    user: str
    output_format: str

    def options_of_dumps(self) -> list[str]:
        """The given options that mean something only together with --sacct."""
        given = {
            "--sacct-fields": self.sacct_fields,
            "--delimiter": self.delimiter,
            "--prices": self.prices,
            "--timezone": self.timezone,
            "--cluster": self.cluster,
        }
        return [name for name, value in given.items() if value is not None]


@click.command(
    "bill",
    help="Print the card-hours of a month and what they cost.\n\n"
    "Without --sacct, slurmwrapd is asked. With it, nothing is needed but a dump made with"
    " `sacct -P -D -X -a`, whose first line names its columns, and the prices.",
)
@click.option("--month", required=True, metavar="YYYY-MM", help="The month, e.g. 2026-11.")
@click.option("--sacct", metavar="FILE", help="Bill this dump; - is standard input.")
@click.option(
    "--sacct-fields", metavar="A,B,...", help="Columns of a dump without a line that names them."
)
@click.option(
    "--delimiter", metavar="TEXT", help=r"Between the dump's columns; \t and \x1f work.  [|]"
)
@click.option(
    "--prices",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Price file for the dump; without it everything is unpriced.",
)
@click.option(
    "--timezone",
    metavar="ZONE",
    help="Zone of times in the dump that have no offset; also of the month where"
    " billing.timezone is not set.",
)
@click.option("--cluster", metavar="NAME", help="Only this cluster of the dump.")
@click.option("--account", default="", metavar="NAME", help="Only this account.")
@click.option("--user", default="", metavar="NAME", help="Only this user.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(_FORMATS),
    default="text",
    show_default=True,
    help="Form of the bill.",
)
@click.option("--json", "output_format", flag_value="json", help="The same as --format json.")
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    """Entry point of `slurmwrap bill`."""
    options = BillOptions(**given)
    settings = loaded_settings(context)
    if options.sacct is None:
        lost = options.options_of_dumps()
        if lost:
            raise UsageError(
                f"{', '.join(lost)} without --sacct FILE",
                hint="slurmwrapd bills with its own prices and billing.timezone",
            )
        statement = _ask_daemon(options, settings)
        _print(statement, options.output_format)
        _warn_of_unpriced(statement, priced_by="slurmwrapd's price file")
        if statement.rejected_records:
            raise PartialResultError(
                f"slurmwrapd could not read {statement.rejected_records} record(s) of this month",
                hint="slurmwrapd's log names them",
            )
        return
    _bill_dump(options, settings)


def _ask_daemon(options: BillOptions, settings: LoadedConfig) -> Statement:
    # Only the way over HTTP pays for its client.
    from zoneinfo import ZoneInfo

    from slurmwrap.api import BillAnswer, BillQuestion, Client
    from slurmwrap.billing.period import parse_month
    from slurmwrap.statements.json import merge_pages

    parse_month(options.month, ZoneInfo(settings.config.billing.timezone))
    client = Client(settings.config)
    for _ in range(_PAGE_ATTEMPTS):
        pages: list[bytes] = []
        offset: int | None = 0
        while offset is not None:
            question = BillQuestion(
                month=options.month, account=options.account, user=options.user, offset=offset
            )
            answer = client.call("bill", question, BillAnswer)
            pages.append(bytes(answer.statement))
            offset = answer.next_offset
        try:
            return merge_pages(pages)
        except ValueError as error:
            reason = str(error)  # new records came in between: ask once more
    raise DaemonUnavailableError(f"slurmwrapd gave no whole bill of {options.month}: {reason}")


def _bill_dump(options: BillOptions, settings: LoadedConfig) -> None:
    from slurmwrap.billing.period import parse_month
    from slurmwrap.billing.rating import Rater
    from slurmwrap.config.price_file import read_price_file
    from slurmwrap.slurm.records import RecordReader

    billing_zone, dump_zone = _choose_zones(options, settings)
    period = parse_month(options.month, billing_zone)
    currency = settings.config.billing.currency
    book = None
    if options.prices is not None:
        book = read_price_file(options.prices, zone=billing_zone, currency=currency)
    rater = Rater(book, period, currency=currency)
    where = "standard input" if options.sacct == "-" else str(options.sacct)
    with _open_dump(options.sacct or "-") as dump:
        reader = RecordReader(
            dump,
            fields=_split_fields(options.sacct_fields),
            delimiter=_read_delimiter(options.delimiter),
            zone=dump_zone,
            card_gres=settings.config.accounting.card_gres,
            cluster=options.cluster or settings.config.slurm.cluster,
            where=where,
        )
        taken = _DumpCount()
        for record in taken.chosen(reader, options):
            rater.add(record)
    statement = rater.statement(rejected_records=reader.rejected_count)
    _print(statement, options.output_format)
    taken.warn(options, where)
    _warn_of_unpriced(statement, priced_by=str(options.prices) if options.prices else None)
    _report_unread(reader, where)


def _choose_zones(options: BillOptions, settings: LoadedConfig) -> tuple[ZoneInfo, ZoneInfo]:
    """The zone of the month, and the zone of local times in the dump.

    A site's billing.timezone decides what a month is, wherever the dump comes from. Where
    nobody has set it, --timezone is all there is to go by and says both.
    """
    site_zone = settings.config.billing.timezone
    is_set = settings.origins.get("billing.timezone", "default") != "default"
    if options.timezone is None:
        return _zone(site_zone), _zone(site_zone)
    dump_zone = _zone(options.timezone)
    return (_zone(site_zone) if is_set else dump_zone), dump_zone


def _zone(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        import difflib

        near = difflib.get_close_matches(name, available_timezones(), n=1)
        guess = f" (did you mean {near[0]!r}?)" if near else ""
        raise UsageError(
            f"--timezone {name!r} is no time zone{guess}",
            hint="write for example Asia/Shanghai, Europe/Berlin or UTC",
        ) from None


def _split_fields(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _read_delimiter(text: str | None) -> str:
    if text is None:
        return "|"
    delimiter = _ESCAPE.sub(lambda match: match[0].encode().decode("unicode_escape"), text)
    if not delimiter or "\n" in delimiter:
        raise UsageError(f"--delimiter {text!r} can't stand between columns")
    return delimiter


@contextmanager
def _open_dump(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        with open(path, "rb") as dump:
            yield dump
    except (FileNotFoundError, PermissionError) as error:
        raise NotFoundError(f"can't read the sacct dump {path}: {error.strerror}") from error
    except OSError as error:
        raise SacctFormatError(f"can't read the sacct dump {path}: {error.strerror}") from error


class _DumpCount:
    """Counts what a dump held, to say what a bill of zero would leave unsaid."""

    def __init__(self) -> None:
        self._records = self._with_cards = self._chosen = 0

    def chosen(self, reader: RecordReader, options: BillOptions) -> Iterable[AccountingRecord]:
        """The records that the options ask for."""
        for record in reader:
            self._records += 1
            self._with_cards += bool(record.cards)
            if (
                (not options.account or record.account == options.account)
                and (not options.user or record.user == options.user)
                and (not options.cluster or record.cluster == options.cluster)
            ):
                self._chosen += 1
                yield record

    def warn(self, options: BillOptions, where: str) -> None:
        """Says on stderr why a bill may be empty although the dump is not."""
        if self._records and not self._chosen:
            _say(f"warning: {where} has no record of what --account, --user and --cluster name")
        if self._records and not self._with_cards:
            _say(
                f"warning: no record of {where} holds a card. Does the cluster track gres/gpu"
                " (AccountingStorageTRES in slurm.conf), and is accounting.card_gres right?"
            )


def _print(statement: Statement, output_format: str) -> None:
    # Each form is a module of its own, loaded when it is asked for.
    if output_format == "json":
        from slurmwrap.statements.json import encode

        click.echo(encode(statement))
    elif output_format == "csv":
        from slurmwrap.statements.csv import render as render_csv

        click.echo(render_csv(statement), nl=False)
    else:
        from slurmwrap.statements.text import render as render_text

        click.echo(render_text(statement), nl=False)


def _warn_of_unpriced(statement: Statement, *, priced_by: str | None) -> None:
    from slurmwrap.units import card_hours

    if not statement.unpriced:
        return
    hours = card_hours(statement.unpriced_card_seconds)
    count = len(statement.unpriced)
    reason = f"no entry of {priced_by} matches" if priced_by else "no price file was given"
    _say(f"warning: {hours} card-hours in {count} line(s) have no price: {reason}")


def _report_unread(reader: RecordReader, where: str) -> None:
    if reader.undecodable_lines:
        _say(f"note: {reader.undecodable_lines} line(s) of {where} are not UTF-8")
    if not reader.rejected_count:
        return
    reasons = "".join(
        f"\n  line {line.number}: {line.reason[:200]}" for line in reader.rejected[:_REASONS_SHOWN]
    )
    more = reader.rejected_count - min(_REASONS_SHOWN, len(reader.rejected))
    rest = f"\n  and {more} more" if more else ""
    raise PartialResultError(
        f"{reader.rejected_count} record(s) of {where} could not be read and are missing from"
        f" the bill:{reasons}{rest}"
    )


def _say(text: str) -> None:
    click.echo(f"slurmwrap: {text}", err=True)
