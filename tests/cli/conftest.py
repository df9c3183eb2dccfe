"""A stand-in for slurmwrapd: real HTTP and real MUNGE, answers as the test has laid them out."""

from __future__ import annotations

import http.server
import os
import pwd
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from slurmwrap.api import CALLS, Request, Response, describe_failure
from slurmwrap.errors import SlurmwrapError
from slurmwrap.munge import Munge

PROGRAMS = Path(sys.prefix) / "bin"


@dataclass
class StandIn:
    """What the stand-in answers per call, and what it was asked."""

    url: str
    munge_socket: Path
    answers: dict[str, Struct | SlurmwrapError | Callable[[Any], Struct]] = field(
        default_factory=dict
    )
    """Per call an answer, a refusal, or a function from the question to the answer."""
    questions: list[tuple[str, Struct]] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        """Settings under which a command finds the stand-in."""
        return {
            "PATH": f"{PROGRAMS}:/usr/bin:/bin",
            "HOME": "/nonexistent",
            "LC_ALL": "C.UTF-8",
            "TZ": "Asia/Shanghai",
            "SLURMWRAP_DAEMON_URL": self.url,
            "SLURMWRAP_DAEMON_USER": pwd.getpwuid(os.getuid()).pw_name,
            "SLURMWRAP_MUNGE_SOCKET": str(self.munge_socket),
        }

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ours against the stand-in."""
        return subprocess.run(
            [str(PROGRAMS / words[0]), *words[1:]],
            env={**self.environment(), **variables},
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="surrogateescape",
            timeout=60,
            check=False,
        )


@pytest.fixture
def stand_in(munged: Path) -> Iterator[StandIn]:
    """A daemon that runs as the current user."""
    munge = Munge(str(munged))
    sink = StandIn(url="", munge_socket=munged)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            credential = munge.decode(body)
            request = msgspec.json.decode(credential.payload, type=Request)
            sink.questions.append(
                (request.call, msgspec.json.decode(request.arguments, type=CALLS[request.call][0]))
            )
            answer = sink.answers[request.call]
            if not isinstance(answer, Struct | SlurmwrapError):
                answer = answer(sink.questions[-1][1])
            if isinstance(answer, SlurmwrapError):
                response = Response(failure=describe_failure(answer), nonce=request.nonce)
            else:
                response = Response(
                    result=msgspec.Raw(msgspec.json.encode(answer)), nonce=request.nonce
                )
            text = munge.encode(msgspec.json.encode(response), reader_uid=credential.uid).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *arguments: Any) -> None:
            """Nothing on stderr."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sink.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield sink
    server.shutdown()
    thread.join()
    server.server_close()
