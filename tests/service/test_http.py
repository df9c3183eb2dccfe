"""What reaches the port: credentials that prove nothing, floods, slow senders, impostors."""

from __future__ import annotations

import http.server
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import urllib3
from served import OTHER, OWNER, PATIENCE, Served, own_address, uid_of, wait_until

from slurmwrap.api import (
    CALL_PATH,
    MAX_MESSAGE_BYTES,
    HealthAnswer,
    Nothing,
    Request,
    Response,
)
from slurmwrap.config.settings import MungeSettings
from slurmwrap.errors import DaemonUnavailableError
from slurmwrap.munge import Munge
from slurmwrapd.protocol import BoundedProtocol

HEALTH = msgspec.json.encode(Request(call="health"))


def push(node: str = "gpu1") -> bytes:
    """A message that an agent could send."""
    now = int(time.time())
    reading = {
        "node": node, "index": 0, "started_at": now - 30, "ended_at": now, "status": "ok",
        "reads": 1, "utilisation_mean": 5.0, "utilisation_max": 5,
        "histogram": [0, 0, 1] + [0] * 11,
    }  # fmt: skip
    arguments = msgspec.json.encode({"node": node, "readings": [reading]})
    return msgspec.json.encode(Request(call="push_readings", arguments=msgspec.Raw(arguments)))


def stored(served: Served) -> int:
    """Everything that a message could have left behind."""
    tables = ("reading", "agent", "phase", "metric", "watched_metric")
    counts = [served.rows(f"SELECT count(*) FROM {table}")[0][0] for table in tables]  # noqa: S608
    return sum(counts)


BAD_BODIES = {
    "nothing": b"",
    "garbage": b"\x00\xff\x80 garbage \n",
    "text": b"MUNGE:",
    "no base64": b"MUNGE:!!!!:",
    "somebody's page": b'{"call": "health"}',
    "a NUL inside": b"MUNGE:AwQF\x00AAA:",
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_what_is_no_credential_is_refused(
    served: Served, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    """401, counted, logged with the address, nothing stored."""
    with caplog.at_level(logging.WARNING, "slurmwrapd"):
        status, _ = served.post(body)
    assert status == 401
    assert served.refused("invalid") == 1
    assert "refused a request from 127.0.0.1" in caplog.text
    assert stored(served) == 0


def test_truncated_and_changed_credentials_are_refused(served: Served) -> None:
    """Every cut, and a changed letter anywhere, is refused."""
    text = served.people.encode("nobody", push()).strip()
    for cut in (1, 10, len(text) // 2, len(text) - 8, len(text) - 2):
        assert served.post(text[:cut])[0] == 401
    for place in (10, len(text) // 3, len(text) // 2, len(text) - 10):
        letter = "A" if text[place] != "A" else "B"
        assert served.post(text[:place] + letter + text[place + 1 :])[0] == 401
    assert served.refused("invalid") == 9
    assert stored(served) == 0


def test_a_replayed_message_is_refused(served: Served) -> None:
    """The same credential a second time: 401, counted by its cause, stored once."""
    text = served.people.encode("nobody", push())
    assert served.post(text)[0] == 200
    before = stored(served)
    status, words = served.post(text)
    assert (status, "code 17" in words) == (401, True)
    assert served.refused("replayed") == 1
    assert stored(served) == before == 2


def test_an_expired_message_is_refused(served: Served) -> None:
    """A credential that came too late: 401, counted by its cause, nothing stored."""
    text = served.people.encode("nobody", push(), seconds=1)
    time.sleep(2.1)
    status, words = served.post(text)
    assert (status, "code 15" in words) == (401, True)
    assert served.refused("expired") == 1
    assert stored(served) == 0


def test_a_message_for_another_reader_is_refused(served: Served) -> None:
    """A credential for some other service can't be turned on ours."""
    text = served.people.encode(os.getuid(), push(), reader=uid_of(OTHER))
    assert served.post(text)[0] == 401
    assert served.refused("not_for_us") == 1


def test_a_message_for_nobody_in_particular_is_refused(served: Served) -> None:
    """A credential that any service may read, as every MUNGE user sends them around."""
    text = served.people.encode("nobody", push(), reader=2**32 - 1)
    status, words = served.post(text)
    assert (status, "for this service alone" in words) == (401, True)
    assert stored(served) == 0


def test_a_dead_munged_is_our_fault(
    make_served: Callable[..., Served], served: Served, tmp_path: Path
) -> None:
    """Our own munged away: 503, so that nobody takes his message for refused."""
    away = make_served(sections={"munge": MungeSettings(socket=str(tmp_path / "none"))})
    text = served.people.encode("nobody", push())
    assert away.post(text)[0] == 503
    assert away.refused("munge_away") == 1


def test_messages_are_bounded_before_they_are_read(served: Served) -> None:
    """512 KiB of message pass; a longer body is cut off before MUNGE sees it."""
    padding = b'{"call": "health", "padding": "' + b"x" * MAX_MESSAGE_BYTES
    fits = padding[: MAX_MESSAGE_BYTES - 2] + b'"}'
    status, text = served.post(served.people.encode(os.getuid(), fits))
    assert status == 200
    assert served.open(os.getuid(), text)["checks"]
    status, _ = served.post(b"M" * (MAX_MESSAGE_BYTES * 4 // 3 + 5000))
    assert status == 413
    assert served.refused("too_large") == 1


def test_an_endless_body_is_not_kept(served: Served) -> None:
    """A chunked body without an end is given up after the longest message."""
    sent = 0
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as line:
        line.sendall(f"POST {CALL_PATH} HTTP/1.1\r\nHost: x\r\n".encode())
        line.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b"M" * 65536 + b"\r\n"
        try:
            for _ in range(400):
                line.sendall(chunk)
                sent += 65536
        except OSError:
            pass
    assert sent < 20 * 2**20
    assert served.refused("too_large") == 1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that must get on within half a second, four per address."""
    monkeypatch.setattr(BoundedProtocol, "patience_seconds", 0.5)
    monkeypatch.setattr(BoundedProtocol, "connections_per_address", 4)


def is_closed(line: socket.socket) -> bool:
    try:
        return line.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"POST /v1/call HT",
        b"POST /v1/call HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nMUNGE:",
    ],
    ids=["silent", "half a head", "half a body"],
)
def test_a_slow_sender_is_cut_off(
    impatient: None, served: Served, caplog: pytest.LogCaptureFixture, start: bytes
) -> None:
    """Who does not finish a request in time loses the connection; no traceback."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as line:
        line.sendall(start)
        assert is_closed(line)
    assert served.refused("slow") >= 1
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_connections_per_address_are_bounded(impatient: None, served: Served) -> None:
    """One address can't take all connections: the fifth is closed, others are served."""
    held = [
        socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) for _ in range(4)
    ]
    try:
        with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as fifth:
            assert is_closed(fifth)
        with socket.create_connection(
            ("127.0.0.1", served.port), timeout=PATIENCE, source_address=("127.0.0.2", 0)
        ) as other:
            other.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert other.recv(15).startswith(b"HTTP/1.1 200")
    finally:
        for line in held:
            line.close()
    wait_until(lambda: _answers(served), "the address is served again")
    assert served.refused("connections") >= 1


def _answers(served: Served) -> bool:
    try:
        return bool(urllib3.request("GET", served.url + "/metrics", retries=False, timeout=5))
    except urllib3.exceptions.HTTPError:
        return False


def test_a_sender_who_hangs_up_leaves_no_traceback(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """A network that breaks in the middle of a body is no error of ours."""
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as line:
            line.sendall(b"POST /v1/call HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nMUN")
    served.get("/metrics")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_messages_per_uid_are_bounded(served: Served) -> None:
    """A user who floods the service is told to wait; others are served meanwhile."""
    munge = Munge(served.service.config.munge.socket)
    statuses: list[int] = []
    for _ in range(400):
        text = munge.encode(HEALTH, reader_uid=os.getuid())
        statuses.append(served.post(text)[0])
        if statuses[-1] != 200:
            break
    assert statuses[-1] == 429
    assert len(statuses) > 20
    assert served.refused("rate") == 1
    if os.getuid() == 0:
        assert served.ask(OWNER, "health")["checks"]


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"call": 7}', b'{"call": "x\\ny"}', b"NaN"],
)
def test_a_message_that_is_no_request_is_answered(
    served: Served, caplog: pytest.LogCaptureFixture, payload: bytes
) -> None:
    """Malformed payloads of a proven user get an error that he can read, in one log line."""
    status, text = served.post(served.people.encode(os.getuid(), payload))
    assert status == 200
    with pytest.raises(Exception, match=r"no request|unknown call"):
        served.open(os.getuid(), text)
    assert "Traceback" not in caplog.text
    assert all("\n" not in record.getMessage() for record in caplog.records)


# --- the client's side -------------------------------------------------------------------


@contextmanager
def impostor(answer: Callable[[bytes], tuple[int, bytes]]) -> Iterator[str]:
    """A program on the service's port that answers as it likes; its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, text = answer(body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def good_answer() -> bytes:
    answer = HealthAnswer(ready=True, checks=())
    return msgspec.json.encode(Response(result=msgspec.Raw(msgspec.json.encode(answer))))


@pytest.mark.parametrize("status", [200, 302, 404, 500])
def test_a_client_takes_no_answer_without_a_credential(served: Served, status: int) -> None:
    """Plain JSON, a redirect or an error page of a squatter is an error."""
    with (
        impostor(lambda body: (status, good_answer())) as url,
        pytest.raises(DaemonUnavailableError),
    ):
        served.client(url=url).call("health", Nothing(), HealthAnswer)


def test_a_client_takes_no_answer_of_another_user(served: Served) -> None:
    """An answer sealed by an ordinary user who squats the port is refused."""

    def forge(body: bytes) -> tuple[int, bytes]:
        return 200, served.people.encode(OWNER, good_answer()).encode()

    served.people.encode(OWNER, b"")
    with impostor(forge) as url, pytest.raises(DaemonUnavailableError, match="signed by uid"):
        served.client(url=url).call("health", Nothing(), HealthAnswer)


def test_a_client_takes_no_echo_of_its_own_request(served: Served) -> None:
    """The request sent back as the answer is refused, also to the daemon's own user."""
    with impostor(lambda body: (200, body)) as url, pytest.raises(DaemonUnavailableError):
        served.client(url=url).call("health", Nothing(), HealthAnswer)


def test_an_answer_seen_before_is_refused(served: Served) -> None:
    """A recorded answer of the real service, played to the next question."""
    munge = Munge(served.service.config.munge.socket)
    _, recorded = served.post(munge.encode(HEALTH, reader_uid=os.getuid()))
    with impostor(lambda body: (200, recorded.encode())) as url:
        client = served.client(url=url)
        with pytest.raises(DaemonUnavailableError):
            # To another question than it was given to.
            client.call("health", Nothing(), HealthAnswer)
        with pytest.raises(DaemonUnavailableError):
            client.call("health", Nothing(), HealthAnswer)


def test_an_answer_is_for_its_asker_alone(served: Served) -> None:
    """What one user was answered can't be opened by another."""
    status, text = served.post(served.people.encode(OWNER, HEALTH))
    assert status == 200
    assert served.people.decode(OTHER, text) == b""
    assert served.people.decode(OWNER, text) != b""


def test_a_client_bounds_what_it_reads(served: Served) -> None:
    """A squatter that sends without end does not fill the memory of every job's supervisor."""
    with (
        impostor(lambda body: (200, b"M" * (64 * 2**20))) as url,
        pytest.raises(DaemonUnavailableError, match="longer than"),
    ):
        served.client(url=url).call("health", Nothing(), HealthAnswer)


def test_own_address_is_what_munge_says(served: Served) -> None:
    """The address that these tests take for their node's is the one in credentials."""
    munge = Munge(served.service.config.munge.socket)
    credential = munge.decode(munge.encode(b"x", reader_uid=os.getuid()))
    assert credential.address == own_address()
