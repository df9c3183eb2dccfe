"""Real receivers on local ports: an SMTP server and an HTTP server that answer as told."""

from __future__ import annotations

import email
import email.policy
import http.server
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any

import pytest
from aiosmtpd.controller import Controller


@dataclass
class SmtpSink:
    """An SMTP server that keeps what it took."""

    port: int = 0
    data_reply: str = "250 taken"
    refused_recipients: dict[str, str] = field(default_factory=dict)
    release: threading.Event = field(default_factory=threading.Event)
    is_hanging: bool = False
    mails: list[tuple[list[str], EmailMessage]] = field(default_factory=list)

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Any, address: str, options: Any
    ) -> str:
        if address in self.refused_recipients:
            return self.refused_recipients[address]
        envelope.rcpt_tos.append(address)
        return "250 ok"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.is_hanging:
            await server.loop.run_in_executor(None, self.release.wait, 20)
            return "451 too late"
        if self.data_reply.startswith("250"):
            message = email.message_from_bytes(envelope.content, policy=email.policy.default)
            assert isinstance(message, EmailMessage)
            self.mails.append((list(envelope.rcpt_tos), message))
        return self.data_reply

    def url(self, to: str = "alice@example.org", extra: str = "") -> str:
        return f"mailto://127.0.0.1:{self.port}?from=slurmwrap@example.org&to={to}{extra}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def smtp() -> Iterator[SmtpSink]:
    sink = SmtpSink(port=free_port())
    controller = Controller(sink, hostname="127.0.0.1", port=sink.port)
    controller.start()
    yield sink
    sink.release.set()
    controller.stop()


@dataclass
class HttpSink:
    """An HTTP server that answers every POST with one status."""

    port: int = 0
    status: int = 200
    bodies: list[bytes] = field(default_factory=list)


@pytest.fixture
def web() -> Iterator[HttpSink]:
    sink = HttpSink()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            sink.bodies.append(self.rfile.read(length))
            self.send_response(sink.status)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            """Nothing on stderr."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sink.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield sink
    server.shutdown()
    thread.join()
    server.server_close()
