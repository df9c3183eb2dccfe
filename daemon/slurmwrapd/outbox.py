"""The task that delivers what the ledger owes people, until a channel has accepted it."""

from __future__ import annotations

import logging
import time

from slurmwrap.errors import NotifyError
from slurmwrap.notify.delivery import deliver, mask_url
from slurmwrap.notify.targets import expand_targets
from slurmwrap.store.ledger import OwedMessage
from slurmwrapd.service import Service

log = logging.getLogger("slurmwrapd")

_MESSAGES_PER_RUN = 1000
_LONGEST_RUN_SECONDS = 60
_LONGEST_DELAY_SECONDS = 3600


def deliver_owed(service: Service) -> str:
    """Try every message that is due; says what became of them.

    A message is sent again after a kill between its acceptance and the note of it: at least
    once, with the same message id.
    """
    delivered = failed = put_off = 0
    silent: set[str] = set()
    started = time.monotonic()
    for owed in service.store.ledger.owed(service.clock.now(), _MESSAGES_PER_RUN):
        if time.monotonic() - started > _LONGEST_RUN_SECONDS:
            break
        urls = _urls(service, owed)
        if urls and silent.issuperset(urls):
            put_off += 1
        elif _try_channels(service, owed, [url for url in urls if url not in silent], silent):
            delivered += 1
        else:
            failed += 1
    if not delivered and not failed:
        return ""
    words = f"{delivered} delivered, {failed} to be tried again"
    return f"{words}, {put_off} put off" if put_off else words


def _try_channels(service: Service, owed: OwedMessage, urls: list[str], silent: set[str]) -> bool:
    """Whether at least one of the recipient's channels accepted the message.

    Args:
        silent: takes in the channels that did not answer in time: they are left alone for the
            rest of the run, so that the messages of others do not wait behind them.
    """
    errors: list[str] = []
    accepted = False
    if not urls:
        errors.append(
            f"no channel is set for {owed.message.role} {owed.message.recipient}".rstrip()
        )
    for url in urls:
        started = time.monotonic()
        problem = _try_channel(service, owed, url)
        if problem is None:
            accepted = True
            continue
        errors.append(problem)
        if time.monotonic() - started >= service.config.notify.timeout * 0.9:
            silent.add(url)
    now = service.clock.now()
    if accepted:
        service.store.ledger.note_delivered(owed.id, now)
    else:
        # The power is bounded too: the number of attempts is not.
        delay = service.config.notify.interval * 2 ** min(owed.attempts, 20)
        next_attempt_at = now + min(delay, _LONGEST_DELAY_SECONDS)
        service.store.ledger.note_failed(owed.id, "; ".join(errors), next_attempt_at)
    for words in errors:
        log.warning("message %d to %s: %s", owed.id, owed.message.recipient or "admins", words)
    return accepted


def _try_channel(service: Service, owed: OwedMessage, url: str) -> str | None:
    """Why the channel did not take the message; None: it did."""
    try:
        for target in expand_targets((url,), owed.message.recipient):
            deliver(
                target,
                owed.message.subject,
                owed.message.body,
                service.config.notify.timeout,
                message_id=f"slurmwrap-{owed.id}-{owed.created_at}",
            )
    except NotifyError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001
        # Nobody foresaw it, and its words may hold the URL with its secrets.
        return f"{mask_url(url)} could not be used: {type(error).__name__}"
    return None


def _urls(service: Service, owed: OwedMessage) -> tuple[str, ...]:
    notify = service.config.notify
    return {
        "user": notify.user_urls,
        "account": notify.account_urls,
        "admin": notify.admin_urls,
    }[owed.message.role]
