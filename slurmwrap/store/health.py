"""How each task of the service fared last."""

from __future__ import annotations

from msgspec import Struct

from slurmwrap.store.database import StoreDatabase


class TaskHealth(Struct, frozen=True, kw_only=True):
    """One task: when it was tried, when it worked, and why it did not."""

    task: str
    last_attempt_at: int
    last_success_at: int | None
    failures_in_a_row: int
    last_error: str


class Health:
    """The table task_health."""

    def __init__(self, database: StoreDatabase) -> None:
        self._database = database

    def note_success(self, task: str, now: int) -> None:
        """The task did its work."""
        with self._database.writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO task_health (task, last_attempt_at, last_success_at,"
                " failures_in_a_row, last_error) VALUES (?, ?, ?, 0, '')",
                (task, now, now),
            )

    def note_failure(self, task: str, now: int, error: str) -> None:
        """The task failed; its last success stays known."""
        with self._database.writing() as connection:
            connection.execute(
                "INSERT INTO task_health (task, last_attempt_at, last_success_at,"
                " failures_in_a_row, last_error) VALUES (?, ?, NULL, 1, ?)"
                " ON CONFLICT (task) DO UPDATE SET last_attempt_at = excluded.last_attempt_at,"
                " failures_in_a_row = failures_in_a_row + 1, last_error = excluded.last_error",
                (task, now, error),
            )

    def tasks(self) -> dict[str, TaskHealth]:
        """Every task that was ever tried."""
        rows = self._database.query("SELECT * FROM task_health ORDER BY task")
        return {row["task"]: TaskHealth(**dict(row)) for row in rows}
