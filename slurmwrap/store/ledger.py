"""What the service decided, written once and never changed, with the messages it owes people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from slurmwrap.store.database import StoreDatabase


class Message(Struct, frozen=True, kw_only=True):
    """A message to one recipient in one role (user, account, admin)."""

    role: str
    recipient: str
    subject: str
    body: str


class OwedMessage(Struct, frozen=True, kw_only=True):
    """A message of the outbox that has not been accepted by any channel yet."""

    id: int
    message: Message
    attempts: int
    created_at: int


class Entry(Struct, frozen=True, kw_only=True):
    """A ledger row, with when its message to the user was accepted."""

    id: int
    at: int
    kind: str
    run_id: int | None
    rule: str
    reason: str
    detail: dict[str, Any]
    delivered_at: int | None
    """None: no channel of the user has accepted the message (yet), or none was owed."""


_ENTRIES_OF_RUN = """
    SELECT ledger.*, (SELECT min(delivered_at) FROM outbox
                      WHERE ledger_id = ledger.id AND role = 'user') AS delivered_at
    FROM ledger WHERE run_id = ? ORDER BY id
"""
_ENTRIES_OF_KIND = """
    SELECT ledger.*, (SELECT min(delivered_at) FROM outbox
                      WHERE ledger_id = ledger.id AND role = 'user') AS delivered_at
    FROM ledger WHERE kind = ? AND at >= ? ORDER BY id
"""


class Ledger:
    """The tables ledger and outbox."""

    def __init__(self, database: StoreDatabase) -> None:
        self._database = database

    def add(
        self,
        *,
        at: int,
        kind: str,
        dedupe_key: str,
        reason: str,
        run_id: int | None = None,
        rule: str = "",
        detail: dict[str, Any] | None = None,
        messages: Sequence[Message] = (),
    ) -> bool:
        """Record an event and the messages it owes, together or not at all.

        Returns False when an event with this key is in the ledger already: then nothing is
        written and nobody is told twice.
        """
        with self._database.writing() as connection:
            row = connection.execute(
                "INSERT INTO ledger (at, kind, dedupe_key, run_id, rule, reason, detail)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (dedupe_key) DO NOTHING RETURNING id",
                (
                    at,
                    kind,
                    dedupe_key,
                    run_id,
                    rule,
                    reason,
                    msgspec.json.encode(detail or {}).decode(),
                ),
            ).fetchone()
            if row is None:
                return False
            connection.executemany(
                "INSERT INTO outbox (ledger_id, role, recipient, subject, body, created_at,"
                " next_attempt_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (ledger_id, role, recipient) DO NOTHING",
                [
                    (row["id"], item.role, item.recipient, item.subject, item.body, at, at)
                    for item in messages
                ],
            )
            return True

    def of_run(self, run_id: int) -> list[Entry]:
        """Everything decided about a run, oldest first."""
        return self._select(_ENTRIES_OF_RUN, (run_id,))

    def of_kind(self, kind: str, since: int) -> list[Entry]:
        """Events of one kind since a moment, oldest first."""
        return self._select(_ENTRIES_OF_KIND, (kind, since))

    def owed(self, now: int, limit: int) -> list[OwedMessage]:
        """Messages that are due to be sent: those that failed least often, the oldest first."""
        rows = self._database.query(
            "SELECT id, role, recipient, subject, body, attempts, created_at FROM outbox"
            " WHERE delivered_at IS NULL AND next_attempt_at <= ? ORDER BY attempts, id LIMIT ?",
            (now, limit),
        )
        return [
            OwedMessage(
                id=row["id"],
                message=Message(
                    role=row["role"],
                    recipient=row["recipient"],
                    subject=row["subject"],
                    body=row["body"],
                ),
                attempts=row["attempts"],
                created_at=row["created_at"],
            )
            for row in rows
        ]

    def note_delivered(self, message_id: int, at: int) -> None:
        """Record that a channel accepted the message."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE outbox SET delivered_at = ?, attempts = attempts + 1, last_error = ''"
                " WHERE id = ? AND delivered_at IS NULL",
                (at, message_id),
            )

    def note_failed(self, message_id: int, error: str, next_attempt_at: int) -> None:
        """Record that no channel accepted the message, and when to try again."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE outbox SET attempts = attempts + 1, last_error = ?, next_attempt_at = ?"
                " WHERE id = ? AND delivered_at IS NULL",
                (error, next_attempt_at, message_id),
            )

    def undelivered(self) -> tuple[int, int | None, str]:
        """How many messages wait, since when the oldest does, and why; none wait before one
        was tried in vain.
        """
        row = self._database.query_one(
            "SELECT count(*) AS waiting, min(created_at) AS since FROM outbox"
            " WHERE delivered_at IS NULL"
        )
        worst = self._database.query_one(
            "SELECT last_error FROM outbox WHERE delivered_at IS NULL AND attempts > 0"
            " ORDER BY id LIMIT 1"
        )
        if row is None or worst is None:
            return 0, None, ""
        return row["waiting"], row["since"], worst["last_error"]

    def _select(self, sql: str, parameters: Sequence[object]) -> list[Entry]:
        rows = self._database.query(sql, parameters)
        return [
            Entry(
                id=row["id"],
                at=row["at"],
                kind=row["kind"],
                run_id=row["run_id"],
                rule=row["rule"],
                reason=row["reason"],
                detail=msgspec.json.decode(row["detail"]),
                delivered_at=row["delivered_at"],
            )
            for row in rows
        ]
