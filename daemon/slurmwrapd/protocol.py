"""Connections of the HTTP side: how many one address may hold, and for how long without result."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from slurmwrapd.bounds import Refusals

_FAREWELL_SECONDS = 1.0


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol, which by itself waits for ever for a request to be sent or read.

    Lives in the server's event loop only.
    """

    patience_seconds = 60.0
    """A connection on which no request was answered for so long is cut off."""
    connections_per_address = 64

    def __init__(self, *args: Any, refusals: Refusals, held: Counter[str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._refusals = refusals
        self._held = held
        self._address = ""
        self._answered = 0
        self._answered_before = 0
        self._watchman: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._held[self._address] += 1
        if self._held[self._address] > self.connections_per_address:
            self._cut_off("connections", "too many connections at once from that address")
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watchman is not None:
            self._watchman.cancel()
        self._held[self._address] -= 1
        if not self._held[self._address]:
            del self._held[self._address]
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._answered += 1
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            # Refused before the end of its body: nothing more is read, and the answer gets a
            # moment to arrive before the connection goes.
            self.transport.pause_reading()
            self.loop.call_later(_FAREWELL_SECONDS, self.transport.close)

    def _watch(self) -> None:
        self._answered_before = self._answered
        self._watchman = self.loop.call_later(self.patience_seconds, self._look)

    def _look(self) -> None:
        if self._answered == self._answered_before:
            self._cut_off("slow", f"no whole request within {self.patience_seconds:g} s")
        else:
            self._watch()

    def _cut_off(self, cause: str, words: str) -> None:
        self._refusals.note(cause, self._address, words)
        self.transport.abort()
