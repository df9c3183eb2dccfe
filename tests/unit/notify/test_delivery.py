"""Delivery through real SMTP and HTTP servers."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from slurmwrap.errors import NotifyError
from slurmwrap.notify.delivery import MESSAGE_ID_HEADER, check_target, deliver, mask_url


def test_a_mail_arrives_as_it_was_written(smtp: Any) -> None:
    """Subject and body arrive unchanged, as plain text, with the id of the outbox's message."""
    body = "cards idle for 90 min\n作业 <b>12</b> & *more*\n"
    deliver(smtp.url(), "作业 12 idle", body, 10, message_id="warning-7")

    [(recipients, mail)] = smtp.mails
    assert recipients == ["alice@example.org"]
    assert mail["Subject"] == "作业 12 idle"
    assert mail.get_content_type() == "text/plain"
    assert mail.get_content().replace("\r\n", "\n").strip() == body.strip()
    assert mail[MESSAGE_ID_HEADER] == "warning-7"


@pytest.mark.parametrize("reply", ["451 greylisted, come back", "550 no such mailbox"])
def test_a_refused_mail_is_a_failure_with_the_servers_words(smtp: Any, reply: str) -> None:
    """X2: 4xx and 5xx are no delivery, and the server's own words are in the error."""
    smtp.data_reply = reply
    with pytest.raises(NotifyError, match=reply[4:]) as raised:
        deliver(smtp.url(), "s", "b", 10)
    assert raised.value.exit_code == 73


def test_a_refused_recipient_is_a_failure_though_a_copy_was_taken(smtp: Any) -> None:
    """A copy that reached somebody else is no warning of the job's owner."""
    smtp.refused_recipients = {"alice@example.org": "550 unknown user"}
    with pytest.raises(NotifyError, match="unknown user"):
        deliver(smtp.url(extra="&cc=boss@example.org"), "s", "b", 10)


def test_an_optional_target_that_fails_is_still_a_failure(smtp: Any) -> None:
    """Apprise calls a failed ``optional=yes`` target a success; we don't."""
    smtp.data_reply = "550 no"
    with pytest.raises(NotifyError):
        deliver(smtp.url(extra="&optional=yes"), "s", "b", 10)


def test_a_hanging_server_is_a_failure_in_time(smtp: Any) -> None:
    """X2: a server that never answers costs no more than the time-out."""
    smtp.is_hanging = True
    begun = time.monotonic()
    with pytest.raises(NotifyError):
        deliver(smtp.url(), "s", "b", 0.5)
    assert time.monotonic() - begun < 5


def test_an_absent_server_is_a_failure() -> None:
    """Nobody listens: a failure that says so."""

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(NotifyError, match="refused"):
        deliver(f"mailto://127.0.0.1:{port}?from=a@example.org&to=b@example.org", "s", "b", 5)


@pytest.mark.parametrize(
    ("status", "is_taken"), [(200, True), (204, True), (404, False), (500, False)]
)
def test_only_2xx_is_a_delivery_over_http(web: Any, status: int, is_taken: bool) -> None:
    """HTTP 2xx counts as delivered, everything else does not."""
    web.status = status
    url = f"json://127.0.0.1:{web.port}/hook"
    if is_taken:
        deliver(url, "subject", "body", 5)
    else:
        with pytest.raises(NotifyError):
            deliver(url, "subject", "body", 5)
    assert len(web.bodies) == 1


def test_secrets_of_a_url_stay_out_of_errors(web: Any) -> None:
    """Passwords, tokens in paths and in queries never reach a log."""
    web.status = 500
    url = f"json://robot:Pa55word@127.0.0.1:{web.port}/hook/T0ken99?:key=Qu3ryKey"
    with pytest.raises(NotifyError) as raised:
        deliver(url, "s", "b", 5)
    for secret in ("Pa55word", "T0ken99", "Qu3ryKey"):
        assert secret not in str(raised.value)


@pytest.mark.parametrize("url", ["", "nothing", "nosuch://host", "mailto://", "{user}"])
def test_a_url_that_apprise_does_not_know_is_refused(url: str) -> None:
    """A wrong URL is an error at once, not a message in an outbox for ever."""
    with pytest.raises(NotifyError, match="no target"):
        check_target(url)


def test_a_masked_mail_url_still_says_whom_it_reaches() -> None:
    """An operator must see which recipient failed, but no password."""
    masked = mask_url(
        "mailtos://u:hunter22@smtp.example.org:465?from=a@b.org&to=alice%40example.org"
    )
    assert masked == "mailtos://smtp.example.org:465?to=alice@example.org"


def test_a_subject_can_not_forge_headers(smtp: Any) -> None:
    """X9: a newline in a job's name does not become a mail header."""
    deliver(smtp.url(), "job a\r\nBcc: eve@example.org\n\nforged", "b", 10)
    [(recipients, mail)] = smtp.mails
    assert recipients == ["alice@example.org"]
    assert mail["Bcc"] is None
    assert mail["Subject"] == "job a\ufffd\ufffdBcc: eve@example.org\ufffd\ufffdforged"
