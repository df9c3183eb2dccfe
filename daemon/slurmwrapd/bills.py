"""Answers bill: the statement of a month, as far as the asker may see it."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import msgspec

from slurmwrap.api import BillAnswer, BillQuestion
from slurmwrap.billing.period import parse_month
from slurmwrap.billing.rating import rate
from slurmwrap.errors import NotFoundError, SlurmUnavailableError, UsageError
from slurmwrap.statements.json import encode_page
from slurmwrapd.accounting import records_of_period
from slurmwrapd.authority import Asker
from slurmwrapd.service import Service


def answer_bill(service: Service, asker: Asker, question: BillQuestion) -> BillAnswer:
    """A page of the statement over the runs that the asker may see.

    It is made from the records as they were read last. Runs without an end count for what
    their record, or slurmctld's newest listing, knows of them.

    Raises:
        UsageError: a month of another form than 2026-11, or a page before the first.
        NotFoundError: an account that slurmdbd does not know.
        PriceTieError: two prices of the same rank match a run.
        SlurmUnavailableError: slurmdbd has never answered, so nobody knows whose bill it is.
    """
    if question.offset < 0:
        raise UsageError(f"a page begins at line 0 or later, not at {question.offset}")
    period = parse_month(question.month, ZoneInfo(service.config.billing.timezone))
    accounts = _accounts(service, question.account)
    user = question.user
    if not asker.is_reach_known and user != asker.user:
        # A bill that leaves out what is an administrator's to see would look like a whole one.
        raise SlurmUnavailableError(
            "slurmdbd has not said yet which accounts are yours to see",
            hint=f"try again in a minute; your own use is told with --user {asker.user}",
        )
    if not asker.is_administrator and not asker.coordinated_accounts:
        # Whose reach is only their own must not make the service read everybody's month.
        user = user or asker.user
    records = (
        record
        for record in records_of_period(service, period.start, period.end, user or None)
        if asker.may_see(user=record.user, account=record.account)
        and (accounts is None or record.account in accounts)
    )
    statement = rate(records, service.prices, period, currency=service.config.billing.currency)
    page, next_offset = encode_page(statement, question.offset)
    return BillAnswer(statement=msgspec.Raw(page.encode()), next_offset=next_offset)


def _accounts(service: Service, account: str) -> frozenset[str] | None:
    """The account with everything below it; None: all accounts."""
    if not account:
        return None
    associations = service.associations()
    if account not in associations.parents and account not in associations.members:
        raise NotFoundError(
            f"slurmdbd knows no account {account!r}",
            hint="`sacctmgr show account` lists them",
        )
    return associations.subtree(account)
