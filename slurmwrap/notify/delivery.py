"""Hands one message to one target through Apprise, and says plainly whether it was taken.

Only an answer of success counts: SMTP 250 after the data, HTTP 2xx. A rule may cancel a job
only after such an answer, so everything doubtful is a failure here.
"""

from __future__ import annotations

import logging
import re
from typing import Any
from urllib.parse import unquote, urlsplit

from slurmwrap.display import one_line
from slurmwrap.errors import NotifyError

MESSAGE_ID_HEADER = "X-Slurmwrap-Message"
_MAIL_SCHEMES = frozenset({"mailto", "mailtos"})
_MASK = "****"


def deliver(
    url: str, subject: str, body: str, timeout_seconds: float, *, message_id: str = ""
) -> None:
    """Send plain text to one Apprise URL and return once the other side has taken it.

    The same message may arrive twice: when the time is up while the other side still works,
    this is a failure although the message may yet get through. Mails carry ``message_id`` in
    the header ``X-Slurmwrap-Message``, so that the reader can tell.

    Raises:
        NotifyError: refused (4xx, 5xx), timed out, unreachable, one of several recipients
            refused, or a URL that Apprise does not know; secrets of the URL are masked.
    """
    import apprise  # heavy: loaded by the first delivery

    service = _open_target(url)
    # Its own retries and its way of calling a failed optional service a success would both
    # make the outbox believe what did not happen.
    service.retry = 0
    service.optional = False
    service.socket_connect_timeout = service.socket_read_timeout = float(timeout_seconds)
    if message_id and _scheme(url) in _MAIL_SCHEMES:
        service.headers[MESSAGE_ID_HEADER] = one_line(message_id)
    sender = apprise.Apprise()
    sender.add(service)
    result = sender.notify(
        title=one_line(subject, width=200),
        body=body,
        body_format=apprise.NotifyFormat.TEXT,
        interpret_escapes=False,
        timeout=float(timeout_seconds),
        log_level=logging.DEBUG,
    )
    if not result or result.success_count != 1:
        raise NotifyError(
            f"{mask_url(url)} did not take the message: {_explain(result, url)}",
            hint="it stays in the outbox and is tried again",
        )


def check_target(url: str) -> None:
    """Whether Apprise can make something of a URL; nothing is sent.

    Raises:
        NotifyError: it can't.
    """
    _open_target(url)


def mask_url(url: str) -> str:
    """The URL with everything that may be secret replaced: for logs and error messages."""
    scheme = _scheme(url)
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return f"{scheme}://{_MASK}"
    if scheme in _MAIL_SCHEMES:
        recipients = re.findall(r"(?:^|&)to=([^&]*)", parts.query)
        to = f"?to={','.join(one_line(unquote(item)) for item in recipients)}" if recipients else ""
        return f"{scheme}://{one_line(host)}{port}{to}"
    # Chat services keep their tokens in the place of user, host and path.
    return f"{scheme}://{_MASK}"


def _keep_log_private() -> None:
    """Apprise's log holds whole URLs, tokens included: it is read here, and goes nowhere else."""
    log = logging.getLogger("apprise")
    log.setLevel(logging.DEBUG)
    log.propagate = False
    if not log.handlers:
        log.addHandler(logging.NullHandler())


def _open_target(url: str) -> Any:
    import apprise  # heavy: loaded by the first delivery

    _keep_log_private()
    service = apprise.Apprise.instantiate(url)
    if service is None:
        raise NotifyError(
            f"{mask_url(url)} is no target that Apprise {apprise.__version__} understands",
            hint="compare the URLs under [notify] in slurmwrap.toml with Apprise's documentation",
        )
    return service


def _scheme(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    return one_line(scheme.lower(), width=20) if separator else "?"


def _explain(result: Any, url: str) -> str:
    """What Apprise logged about the failure: warnings, and the socket's own words for mail."""
    words = [f"{result.status.name.lower()}"]
    for entry in result.logs():
        is_socket = entry.level == "DEBUG" and entry.message.startswith("Socket Exception: ")
        if entry.level in ("WARNING", "ERROR") or is_socket:
            words.append(one_line(entry.message, width=300))
    return _hide_secrets("; ".join(words), url)


def _hide_secrets(text: str, url: str) -> str:
    parts = urlsplit(url)
    pieces = [parts.username or "", parts.password or ""]
    if _scheme(url) not in _MAIL_SCHEMES:
        pieces += [parts.hostname or "", *parts.path.split("/")]
        pieces += [item.partition("=")[2] for item in parts.query.split("&")]
    secrets = {form for piece in pieces for form in (piece, unquote(piece)) if len(form) >= 4}
    for secret in sorted(secrets, key=len, reverse=True):
        text = re.sub(re.escape(secret), _MASK, text, flags=re.IGNORECASE)
    return text
