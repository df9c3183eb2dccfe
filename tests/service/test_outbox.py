"""The outbox: recorded before sent, at least once, one bad channel never holds up the others."""

from __future__ import annotations

import http.server
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slurmwrap.clock import SteppedClock
from slurmwrap.config.settings import NotifySettings
from slurmwrap.store.ledger import Message
from slurmwrapd.health import assess_health
from slurmwrapd.outbox import deliver_owed
from slurmwrapd.service import Service

START = 1_796_000_000
SECRET = "verysecrettoken"


class Channel:
    """A chat service that takes messages, or refuses them with a status."""

    def __init__(self) -> None:
        self.status = 200
        self.taken: list[str] = []
        channel = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if channel.status == 200:
                    channel.taken.append(json.loads(body)["title"])
                self.send_response(channel.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"json://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def channel() -> Iterator[Channel]:
    made = Channel()
    yield made
    made.close()


@pytest.fixture
def silent_url() -> Iterator[str]:
    """A channel that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield f"json://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock(START)


@pytest.fixture
def make(make_service: Callable[..., Service], clock: SteppedClock) -> Callable[..., Service]:
    def made(**settings: Any) -> Service:
        notify = NotifySettings(**{"timeout": 1, **settings})
        return make_service(sections={"notify": notify}, clock=clock)

    return made


def owe(service: Service, count: int, role: str = "user", recipient: str = "alice") -> None:
    at = service.clock.now()
    for number in range(count):
        service.store.ledger.add(
            at=at,
            kind="warning",
            dedupe_key=f"{role}:{recipient}:{number}:{at}",
            reason="idle",
            messages=[
                Message(role=role, recipient=recipient, subject=f"{role} {number}", body="b")
            ],
        )


def test_messages_are_sent_in_order_and_once(
    make: Callable[..., Service], channel: Channel
) -> None:
    """Oldest first; what was accepted is never sent again, also not by the next start."""
    service = make(user_urls=(channel.url,))
    owe(service, 3)
    assert deliver_owed(service) == "3 delivered, 0 to be tried again"
    assert channel.taken == ["user 0", "user 1", "user 2"]
    assert deliver_owed(service) == ""
    assert deliver_owed(make(user_urls=(channel.url,))) == ""
    assert len(channel.taken) == 3


def test_a_kill_before_the_note_sends_again(make: Callable[..., Service], channel: Channel) -> None:
    """At least once: accepted, but killed before that was noted. In the books it is one event."""
    service = make(user_urls=(channel.url,))
    owe(service, 1)
    deliver_owed(service)
    with service.store.database.writing() as connection:
        connection.execute("UPDATE outbox SET delivered_at = NULL")
    owe(service, 1)
    deliver_owed(service)
    assert channel.taken == ["user 0", "user 0"]
    assert len(service.store.ledger.of_kind("warning", 0)) == 1


def test_waiting_grows_up_to_an_hour(
    make: Callable[..., Service], channel: Channel, clock: SteppedClock
) -> None:
    """A channel that refuses is tried less and less often, at least once an hour, for ever."""
    service = make(user_urls=(channel.url,))
    channel.status = 500
    owe(service, 1)
    tried: list[int] = []
    for _ in range(6 * 3600 // 10):
        if deliver_owed(service):
            tried.append(clock.now() - START)
        clock.advance(10)
    gaps = [after - before for before, after in itertools.pairwise(tried)]
    assert gaps[:4] == [10, 20, 40, 80]
    assert max(gaps) == gaps[-1] == 3600
    channel.status = 200
    clock.advance(3600)
    assert deliver_owed(service) == "1 delivered, 0 to be tried again"


def test_a_silent_channel_does_not_hold_up_the_others(
    make: Callable[..., Service], channel: Channel, silent_url: str, clock: SteppedClock
) -> None:
    """Three hundred messages to a channel that hangs: each round waits for it once."""
    service = make(user_urls=(silent_url + "/{user}",), admin_urls=(channel.url,))
    owe(service, 300)
    owe(service, 1, role="admin", recipient="")
    deliver_owed(service)
    assert channel.taken == ["admin 0"]
    (tried,) = service.store.database.query(
        "SELECT sum(attempts) AS n FROM outbox WHERE role='user'"
    )
    assert tried["n"] == 1
    clock.advance(10)
    owe(service, 1, role="admin", recipient="")
    deliver_owed(service)
    assert len(channel.taken) == 2
    waiting = assess_check(service)
    assert not waiting.ok
    assert "300 messages wait" in waiting.detail


def assess_check(service: Service) -> Any:
    return next(item for item in assess_health(service).checks if item.name == "delivery")


def test_new_messages_come_before_hopeless_ones(
    make: Callable[..., Service], channel: Channel, clock: SteppedClock
) -> None:
    """A thousand messages that nobody takes do not keep a new one from being tried."""
    service = make(user_urls=(channel.url + "/{user}",))
    owe(service, 600, recipient="a,b")
    for _ in range(3):
        deliver_owed(service)
        clock.advance(3600)
    owe(service, 1)
    deliver_owed(service)
    assert channel.taken == ["user 0"]


@pytest.mark.parametrize(
    ("settings", "recipient", "words"),
    [
        ({}, "alice", "no channel is set for user alice"),
        ({"user_urls": ("nonsense://x/{user}",)}, "alice", "no target that Apprise"),
        ({"user_urls": ("json://127.0.0.1:1/{user}",)}, "a b,c", "can't be put into an address"),
        ({"user_urls": ("json://127.0.0.1:1/{usr}",)}, "alice", "unknown placeholder"),
    ],
)
def test_what_can_not_be_sent_is_seen(
    make: Callable[..., Service], settings: dict[str, Any], recipient: str, words: str
) -> None:
    """No channel, a wrong URL, an unusable name: in the health, not again at once."""
    service = make(**settings)
    owe(service, 1, recipient=recipient)
    assert deliver_owed(service) == "0 delivered, 1 to be tried again"
    assert deliver_owed(service) == ""
    check = assess_check(service)
    assert (check.ok, words in check.detail) == (False, True), check.detail


def test_one_channel_is_enough_and_one_wrong_template_spoils_nothing(
    make: Callable[..., Service], channel: Channel
) -> None:
    """Of several channels one acceptance counts, whatever is wrong with the others."""
    service = make(user_urls=("json://127.0.0.1:1/{usr}", "nonsense://x", channel.url))
    owe(service, 1)
    assert deliver_owed(service) == "1 delivered, 0 to be tried again"
    (entry,) = service.store.ledger.of_kind("warning", 0)
    assert entry.delivered_at == START


def test_a_sender_that_crashes_spoils_one_message_only(
    make: Callable[..., Service], channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that nobody foresaw counts as a refusal; the next message is sent."""
    # Apprise ends with UnicodeEncodeError at such a URL.
    broken = f"json://user:{SECRET}@127.0.0.1:1/\ud800"
    service = make(user_urls=(broken,), admin_urls=(channel.url,))
    owe(service, 2)
    owe(service, 1, role="admin", recipient="")
    assert deliver_owed(service) == "1 delivered, 2 to be tried again"
    assert channel.taken == ["admin 0"]
    assert "UnicodeEncodeError" in assess_check(service).detail
    said = [item.getMessage() for item in caplog.records if not item.name.startswith("apprise")]
    assert SECRET not in str(said) + assess_check(service).detail


def test_no_secret_is_told(
    make: Callable[..., Service], channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    """Tokens of URLs are neither in the log, nor in the database, nor in the health."""
    host = channel.url.removeprefix("json://")
    channel.status = 403
    service = make(user_urls=(f"json://user:{SECRET}@{host}/{SECRET}?x={SECRET}",))
    owe(service, 1)
    deliver_owed(service)
    rows = service.store.database.query("SELECT * FROM outbox")
    # pytest shows the library's own log too, which in a service goes nowhere.
    said = [item.getMessage() for item in caplog.records if not item.name.startswith("apprise")]
    everything = str(said) + str([tuple(row) for row in rows]) + assess_check(service).detail
    assert "did not take the message" in everything
    assert SECRET not in everything
