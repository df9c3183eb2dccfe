"""The task that checks budgets and alerts once per threshold and period; answers budgets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache, partial
from zoneinfo import ZoneInfo

from slurmwrap.api import BudgetAnswer, BudgetQuestion, BudgetStatus
from slurmwrap.billing.budgets import Budget, BudgetAssessment, assess, measure_use
from slurmwrap.billing.period import Period, period_at
from slurmwrap.config.settings import BudgetEntry
from slurmwrap.model import AccountingRecord
from slurmwrap.notify.messages import BudgetFacts, write_budget_alert
from slurmwrap.slurm.associations import Associations
from slurmwrap.store.ledger import Message
from slurmwrapd.accounting import records_of_period
from slurmwrapd.authority import Asker
from slurmwrapd.service import Service

log = logging.getLogger("slurmwrapd")

_ALERT = "budget_alert"
_ReadRecords = Callable[[int, int], list[AccountingRecord]]


@dataclass(frozen=True)
class _Checked:
    entry: BudgetEntry
    period: Period
    assessment: BudgetAssessment
    unit: str


def check_budgets(service: Service) -> str:
    """Measure every budget and record an alert for each threshold that was reached."""
    associations = service.associations()
    now = service.clock.now()
    alerts = 0
    read_records = _records_reader(service)
    # By period, so that the records of each are read once.
    for entry in sorted(service.config.budget, key=lambda entry: entry.period):
        checked = _check(service, associations, entry, now, read_records)
        for threshold in checked.assessment.crossed:
            alerts += _alert(service, associations, checked, threshold, now)
    if not service.config.budget:
        return ""
    words = f"{len(service.config.budget)} budgets"
    return f"{words}, {alerts} new alerts" if alerts else words


def answer_budgets(service: Service, asker: Asker, question: BudgetQuestion) -> BudgetAnswer:
    """The budgets that the asker's own use counts against, or that they answer for."""
    associations = service.associations()
    now = service.clock.now()
    read_records = _records_reader(service)
    return BudgetAnswer(
        now=now,
        timezone=service.config.billing.timezone,
        budgets=tuple(
            _describe(service, _check(service, associations, entry, now, read_records))
            for entry in service.config.budget
            if _may_see(asker, associations, entry)
            and (not question.account or entry.account == question.account)
        ),
    )


def _may_see(asker: Asker, associations: Associations, entry: BudgetEntry) -> bool:
    if asker.is_administrator or entry.account in asker.coordinated_accounts:
        return True
    if entry.user:
        return entry.user == asker.user
    return bool(associations.accounts_of(asker.user) & associations.subtree(entry.account))


def _records_reader(service: Service) -> _ReadRecords:
    """Reads a period's records; of many budgets of one period only the first reads them."""
    return lru_cache(maxsize=1)(partial(records_of_period, service))


def _check(
    service: Service,
    associations: Associations,
    entry: BudgetEntry,
    now: int,
    read_records: _ReadRecords,
) -> _Checked:
    budget = Budget(
        account=entry.account,
        user=entry.user,
        card_hours=entry.card_hours,
        money=entry.money,
        thresholds=entry.thresholds,
    )
    period = period_at(now, entry.period, ZoneInfo(service.config.billing.timezone))
    use = measure_use(
        budget,
        read_records(period.start, period.end),
        service.prices,
        period,
        accounts=associations.subtree(entry.account) if entry.account else frozenset(),
        now=now,
    )
    unit = "card-hours" if entry.money is None else service.config.billing.currency
    return _Checked(entry, period, assess(budget, use), unit)


def _alert(
    service: Service, associations: Associations, checked: _Checked, threshold: int, now: int
) -> int:
    """Record the alert with the messages it owes; 0 when it was recorded before.

    The limit is part of the key: after a raise the same percentage is news again.
    """
    entry, result = checked.entry, checked.assessment
    text = write_budget_alert(
        BudgetFacts(
            account=entry.account,
            user=entry.user,
            period=checked.period.name,
            unit=checked.unit,
            limit=_amount(result.limit, checked),
            settled=_amount(result.settled, checked),
            in_flight=_amount(result.in_flight, checked),
            committed=_amount(result.committed, checked),
            left=_amount(result.left, checked),
            used_percent=float(result.percent),
            threshold=threshold,
        ),
        language=service.config.notify.language,
    )
    is_new = service.store.ledger.add(
        at=now,
        kind=_ALERT,
        dedupe_key=f"{_ALERT}:{_name(checked)}:{threshold}:{result.limit}:{checked.unit}",
        reason=text.subject,
        detail={"budget": _name(checked), "threshold": threshold},
        messages=[
            Message(role=role, recipient=recipient, subject=text.subject, body=text.body)
            for role, recipient in _recipients(entry, associations)
        ],
    )
    if is_new:
        log.info("budget alert: %s", text.subject)
    return int(is_new)


def _recipients(entry: BudgetEntry, associations: Associations) -> list[tuple[str, str]]:
    """(role, name): the budget's user, else the account's coordinators, else administrators."""
    if entry.user:
        return [("user", entry.user)]
    coordinators = sorted(associations.coordinators.get(entry.account, ()))
    return [("account", name) for name in coordinators] or [("admin", "")]


def _name(checked: _Checked) -> str:
    """What identifies a budget and period in the ledger."""
    entry = checked.entry
    return f"{entry.account}:{entry.user}:{checked.period.name}"


def _describe(service: Service, checked: _Checked) -> BudgetStatus:
    entry, result = checked.entry, checked.assessment
    alerts = tuple(
        (int(item.detail["threshold"]), item.at)
        for item in service.store.ledger.of_kind(_ALERT, checked.period.start)
        if item.detail.get("budget") == _name(checked)
    )
    return BudgetStatus(
        account=entry.account,
        user=entry.user,
        period=checked.period.name,
        period_start=checked.period.start,
        period_end=checked.period.end,
        unit=checked.unit,
        limit=_amount(result.limit, checked),
        settled=_amount(result.settled, checked),
        in_flight=_amount(result.in_flight, checked),
        committed=_amount(result.committed, checked),
        left=_amount(result.left, checked),
        used_percent=float(result.percent),
        alerts=alerts,
    )


def _amount(value: Decimal, checked: _Checked) -> str:
    """For people: card-hours to 4 decimals, money to 2."""
    places = Decimal("0.0001") if checked.entry.money is None else Decimal("0.01")
    return str(value.quantize(places, rounding=ROUND_HALF_UP))
