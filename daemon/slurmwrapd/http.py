"""The service's HTTP side: one call endpoint behind MUNGE, /readyz and /metrics."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Hashable

import anyio.to_thread
import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from slurmwrap.api import (
    CALL_PATH,
    MAX_CREDENTIAL_BYTES,
    MAX_MESSAGE_BYTES,
    Request,
    describe_failure,
)
from slurmwrap.api import Response as Answer
from slurmwrap.display import one_line
from slurmwrap.errors import MungeError, SlurmwrapError, UsageError
from slurmwrap.munge import (
    EXPIRED,
    NO_MEMORY,
    NOT_AUTHORISED,
    REPLAYED,
    REWOUND,
    SOCKET_FAILED,
    TIMED_OUT,
    Credential,
    Munge,
)
from slurmwrapd.authority import is_agent
from slurmwrapd.bounds import Allowance
from slurmwrapd.calls import answer_call
from slurmwrapd.health import assess_health, without_details
from slurmwrapd.metrics import render_metrics
from slurmwrapd.service import Service

log = logging.getLogger("slurmwrapd")

_MAX_REQUESTS_PER_ADDRESS = 32
# Of one user, or of one node's agent. Two thousand jobs that report every 30 s send 67 a second.
_PER_SECOND = 100
_BURST = 1000
# What a question takes of that more than a report: its answer is looked up and computed.
_COSTS = {"job_status": 9, "budgets": 9, "health": 9, "bill": 19}

_CAUSES: dict[int | None, tuple[str, int]] = {
    SOCKET_FAILED: ("munge_away", 503),
    TIMED_OUT: ("munge_away", 503),
    NO_MEMORY: ("munge_away", 503),
    EXPIRED: ("expired", 401),
    REWOUND: ("rewound", 401),
    REPLAYED: ("replayed", 401),
    NOT_AUTHORISED: ("not_for_us", 401),
}
"""Why MUNGE did not open a credential: the counter in /metrics, and the HTTP status."""


def make_application(service: Service) -> Starlette:
    """The ASGI application that answers for a service."""
    endpoint = _CallEndpoint(service)

    async def readyz(request: HttpRequest) -> Response:
        health = await anyio.to_thread.run_sync(assess_health, service)
        shown = msgspec.to_builtins(without_details(health))
        return JSONResponse(shown, status_code=200 if health.ready else 503)

    async def metrics(request: HttpRequest) -> Response:
        body, content_type = await anyio.to_thread.run_sync(render_metrics, service)
        return Response(body, media_type=content_type)

    return Starlette(
        routes=[
            Route(CALL_PATH, endpoint.handle, methods=["POST"]),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
        ]
    )


class _CallEndpoint:
    """Opens a credential, lets the call be answered, and seals the answer for the asker."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._munge = Munge(service.config.munge.socket)
        self._busy: Counter[str] = Counter()
        self._allowance = Allowance(per_second=_PER_SECOND, burst=_BURST)

    async def handle(self, request: HttpRequest) -> Response:
        address = request.client.host if request.client else ""
        if self._busy[address] >= _MAX_REQUESTS_PER_ADDRESS:
            return self._refuse("busy", address, 429, "too many requests at once from your address")
        self._busy[address] += 1
        try:
            body = await _read_body(request)
            if body is None:
                return self._refuse(
                    "too_large", address, 413, f"a message has {MAX_MESSAGE_BYTES} bytes at most"
                )
            return await anyio.to_thread.run_sync(self._answer, body, address)
        except ClientDisconnect:
            # Who hung up in the middle of a message hears no answer, and is no error of ours.
            return Response(status_code=400)
        finally:
            self._busy[address] -= 1
            if not self._busy[address]:
                del self._busy[address]

    def _answer(self, body: bytes, address: str) -> Response:
        try:
            credential = self._munge.decode(body.decode("ascii", errors="replace"))
        except MungeError as error:
            # Its payload was never seen: nothing can have been stored.
            cause, status = _CAUSES.get(error.code, ("invalid", 401))
            return self._refuse(cause, address, status, str(error))
        if credential.reader_uid != os.getuid():
            words = "the credential was not made for this service alone"
            return self._refuse("unrestricted", address, 401, words)
        sender = self._name_sender(credential)
        if not self._allowance.take(sender):
            return self._refuse_flood(credential, address)
        try:
            request = _open_request(credential)
            if request and not self._allowance.take(sender, _COSTS.get(request.call, 0)):
                return self._refuse_flood(credential, address)
            message = msgspec.json.encode(self._respond(credential, request))
            return PlainTextResponse(self._munge.encode(message, reader_uid=credential.uid))
        except Exception:
            # The asker gets an answer whatever our fault is; the log has the whole of it.
            log.exception("a request of uid %d failed", credential.uid)
            return PlainTextResponse("internal error; the service's log has it", status_code=500)

    def _respond(self, credential: Credential, request: Request | None) -> Answer:
        nonce = request.nonce if request else ""
        try:
            if request is None:
                raise UsageError("the message is no request of slurmwrap's")
            result = answer_call(self._service, credential, request)
            encoded = msgspec.json.encode(result)
            if len(encoded) > MAX_MESSAGE_BYTES:
                raise UsageError(
                    f"the answer to {request.call} would be over {MAX_MESSAGE_BYTES} bytes",
                    hint="ask for less: one job, one account or a shorter time",
                )
            return Answer(result=msgspec.Raw(encoded), nonce=nonce)
        except SlurmwrapError as error:
            self._service.refusals.note(
                type(error).__name__, f"uid {credential.uid}", one_line(str(error), width=300)
            )
            return Answer(failure=describe_failure(error), nonce=nonce)

    def _name_sender(self, credential: Credential) -> Hashable:
        """Whose allowance a message counts against: agents of all nodes share one uid."""
        if is_agent(self._service.config, credential):
            return credential.uid, credential.address
        return credential.uid

    def _refuse_flood(self, credential: Credential, address: str) -> Response:
        words = f"too many messages of uid {credential.uid}: try again in a while"
        return self._refuse("rate", address, 429, words)

    def _refuse(self, cause: str, address: str, status: int, text: str) -> Response:
        self._service.refusals.note(cause, address, text)
        return PlainTextResponse(text, status_code=status)


async def _read_body(request: HttpRequest) -> bytes | None:
    """The body, or None as soon as it is longer than any message can be."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_CREDENTIAL_BYTES:
            return None
        parts.append(part)
    return b"".join(parts)


def _open_request(credential: Credential) -> Request | None:
    """The request in a credential; None: it holds none."""
    try:
        return msgspec.json.decode(credential.payload, type=Request)
    except (msgspec.MsgspecError, RecursionError):
        return None
