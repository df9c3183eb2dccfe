"""The ledger: written once, never changed, and its messages owed until accepted."""

from __future__ import annotations

import sqlite3

import pytest

from slurmwrap.store import Store
from slurmwrap.store.ledger import Message

MESSAGE = Message(role="user", recipient="alice", subject="idle", body="your job is idle\n")


def add_warning(store: Store, key: str = "warning:1") -> bool:
    return store.ledger.add(
        at=100,
        kind="warning",
        dedupe_key=key,
        reason="idle for 2 h",
        rule="idle-gpu",
        detail={"episode_since": 40},
        messages=[MESSAGE],
    )


def test_an_event_is_recorded_once(store: Store) -> None:
    """The same event again writes nothing and owes nobody a second message."""
    assert add_warning(store)
    assert not add_warning(store)
    assert len(store.ledger.of_kind("warning", 0)) == 1
    assert len(store.ledger.owed(100, 10)) == 1


@pytest.mark.parametrize("sql", ["UPDATE ledger SET reason = ''", "DELETE FROM ledger"])
def test_the_ledger_can_only_grow(store: Store, sql: str) -> None:
    """Not even SQL by hand changes or removes what was decided."""
    add_warning(store)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        store.database.connection.execute(sql)


def test_a_message_is_owed_until_it_is_delivered(store: Store) -> None:
    """A failed attempt moves the message; a delivery settles it and dates the warning."""
    add_warning(store)
    (owed,) = store.ledger.owed(100, 10)
    store.ledger.note_failed(owed.id, "451 try later", 160)
    assert store.ledger.owed(159, 10) == []
    assert store.ledger.undelivered() == (1, 100, "451 try later")
    (again,) = store.ledger.owed(160, 10)
    assert again.attempts == 1
    assert store.ledger.of_kind("warning", 0)[0].delivered_at is None
    store.ledger.note_delivered(again.id, 161)
    assert store.ledger.owed(10_000, 10) == []
    assert store.ledger.of_kind("warning", 0)[0].delivered_at == 161
    assert store.ledger.undelivered() == (0, None, "")


def test_events_come_back_with_their_details(store: Store) -> None:
    """What the ladder needs of a warning is read back as it was written."""
    add_warning(store)
    (entry,) = store.ledger.of_kind("warning", 0)
    assert (entry.rule, entry.reason, entry.detail) == (
        "idle-gpu",
        "idle for 2 h",
        {"episode_since": 40},
    )
