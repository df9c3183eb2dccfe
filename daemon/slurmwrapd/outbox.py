"""The task that delivers what the ledger owes people, until a channel has accepted it."""

from __future__ import annotations

import logging

from slurmwrap.errors import NotifyError
from slurmwrap.notify.delivery import deliver
from slurmwrap.notify.targets import expand_targets
from slurmwrap.store.ledger import OwedMessage
from slurmwrapd.service import Service

log = logging.getLogger("slurmwrapd")

_MESSAGES_PER_RUN = 50
_LONGEST_DELAY_SECONDS = 3600


def deliver_owed(service: Service) -> str:
    """Try every message that is due; says what became of them.

    A message is sent again after a kill between its acceptance and the note of it: at least
    once, with the same message id.
    """
    delivered = failed = 0
    for owed in service.store.ledger.owed(service.clock.now(), _MESSAGES_PER_RUN):
        if _try_targets(service, owed):
            delivered += 1
        else:
            failed += 1
    if not delivered and not failed:
        return ""
    return f"{delivered} delivered, {failed} to be tried again"


def _try_targets(service: Service, owed: OwedMessage) -> bool:
    """Whether at least one of the recipient's channels accepted the message."""
    errors: list[str] = []
    accepted = False
    try:
        targets = _targets(service, owed)
        if not targets:
            raise NotifyError(
                f"no channel is set for {owed.message.role} {owed.message.recipient}".rstrip()
            )
    except NotifyError as error:
        targets, errors = (), [str(error)]
    for target in targets:
        try:
            deliver(
                target,
                owed.message.subject,
                owed.message.body,
                service.config.notify.timeout,
                message_id=f"slurmwrap-{owed.id}-{owed.created_at}",
            )
            accepted = True
        except NotifyError as error:
            errors.append(str(error))
    now = service.clock.now()
    if accepted:
        service.store.ledger.note_delivered(owed.id, now)
    else:
        delay = min(service.config.notify.interval * 2**owed.attempts, _LONGEST_DELAY_SECONDS)
        service.store.ledger.note_failed(owed.id, "; ".join(errors), now + delay)
    for words in errors:
        log.warning("message %d to %s: %s", owed.id, owed.message.recipient or "admins", words)
    return accepted


def _targets(service: Service, owed: OwedMessage) -> tuple[str, ...]:
    notify = service.config.notify
    urls = {
        "user": notify.user_urls,
        "account": notify.account_urls,
        "admin": notify.admin_urls,
    }[owed.message.role]
    return expand_targets(urls, owed.message.recipient)
