"""The service's HTTP side: one call endpoint behind MUNGE, /readyz and /metrics."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter

import anyio.to_thread
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from slurmwrap.api import CALL_PATH, MAX_MESSAGE_BYTES, Request, describe_failure
from slurmwrap.api import Response as Answer
from slurmwrap.errors import MungeError, SlurmwrapError, UsageError
from slurmwrap.munge import Credential, Munge
from slurmwrapd.calls import answer_call
from slurmwrapd.health import assess_health, without_details
from slurmwrapd.metrics import render_metrics
from slurmwrapd.service import Service

log = logging.getLogger("slurmwrapd")

# A credential is base64 of the sealed message; MUNGE adds less than a kilobyte of its own.
_MAX_BODY_BYTES = MAX_MESSAGE_BYTES * 4 // 3 + 4096
_MAX_REQUESTS_PER_ADDRESS = 64


def make_application(service: Service) -> Starlette:
    """The ASGI application that answers for a service."""
    endpoint = _CallEndpoint(service)

    async def readyz(request: HttpRequest) -> Response:
        health = await anyio.to_thread.run_sync(assess_health, service)
        shown = msgspec.to_builtins(without_details(health))
        return JSONResponse(shown, status_code=200 if health.ready else 503)

    async def metrics(request: HttpRequest) -> Response:
        body, content_type = await anyio.to_thread.run_sync(
            render_metrics, service, endpoint.refused
        )
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
        self._lock = threading.Lock()
        self.refused: Counter[str] = Counter()
        """Requests refused before a call was known, by cause."""

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
        finally:
            self._busy[address] -= 1
            if not self._busy[address]:
                del self._busy[address]

    def _answer(self, body: bytes, address: str) -> Response:
        try:
            credential = self._munge.decode(body.decode("ascii", errors="replace"))
        except MungeError as error:
            # Its payload was never seen: nothing can have been stored.
            return self._refuse("munge", address, 401, str(error))
        try:
            message = msgspec.json.encode(self._respond(credential))
        except Exception:
            # The asker gets an answer whatever our fault is; the log has the whole of it.
            log.exception("a request of uid %d failed", credential.uid)
            return PlainTextResponse("internal error; the service's log has it", status_code=500)
        return PlainTextResponse(self._munge.encode(message, reader_uid=credential.uid))

    def _respond(self, credential: Credential) -> Answer:
        try:
            request = _open_request(credential)
            result = answer_call(self._service, credential, request)
            encoded = msgspec.json.encode(result)
            if len(encoded) > MAX_MESSAGE_BYTES:
                raise UsageError(
                    f"the answer to {request.call} would be over {MAX_MESSAGE_BYTES} bytes",
                    hint="ask for less: one job, one account or a shorter time",
                )
            return Answer(result=msgspec.Raw(encoded))
        except SlurmwrapError as error:
            log.info("uid %d was refused: %s", credential.uid, error)
            return Answer(failure=describe_failure(error))

    def _refuse(self, cause: str, address: str, status: int, text: str) -> Response:
        with self._lock:
            self.refused[cause] += 1
        log.warning("refused a request from %s: %s", address or os.devnull, text)
        return PlainTextResponse(text, status_code=status)


async def _read_body(request: HttpRequest) -> bytes | None:
    """The body, or None as soon as it is longer than any message can be."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > _MAX_BODY_BYTES:
            return None
        parts.append(part)
    return b"".join(parts)


def _open_request(credential: Credential) -> Request:
    try:
        return msgspec.json.decode(credential.payload, type=Request)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"the message is no request: {error}") from error
