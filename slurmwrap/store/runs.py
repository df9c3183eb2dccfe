"""Runs as slurmctld shows them: seen, suspended, ended; and what their jobs publish."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from slurmwrap.model import (
    Card,
    CardAllocation,
    JobRun,
    MetricPoint,
    Phase,
    RunKey,
    WatchedMetric,
)
from slurmwrap.store.database import StoreDatabase

NEWEST_POINTS = 2000
"""Points kept of one metric of one run: more than any rule looks back."""


class StoredRun(Struct, frozen=True, kw_only=True):
    """A run as it was last seen, with what the service knows of its life."""

    id: int
    run: JobRun
    first_seen_at: int
    last_seen_at: int
    ended_at: int | None
    """When it was first missed on the nodes, or its record's end; None: still there."""


class Runs:
    """The tables run, run_card, suspension, phase, metric and watched_metric."""

    def __init__(self, database: StoreDatabase) -> None:
        self._database = database

    def record_seen(self, runs: Iterable[JobRun], now: int) -> None:
        """Take in one listing of slurmctld: it names every run that is on nodes at ``now``.

        A run seen before and missing now has ended. Suspension is noted between listings: a
        run that was suspended for longer than we watched (its own counter grew) was
        suspended at an unknown moment since the last listing, which is noted whole.
        """
        with self._database.writing() as connection:
            present: set[int] = set()
            for run in runs:
                before = _find(connection, run.key)
                run_id = _upsert(connection, run, now)
                present.add(run_id)
                _note_suspension(connection, run_id, run, before, now)
            open_rows = connection.execute("SELECT id FROM run WHERE ended_at IS NULL").fetchall()
            for row in open_rows:
                if row["id"] not in present:
                    _end(connection, row["id"], now)

    def on_nodes(self) -> list[StoredRun]:
        """Runs that the newest listing showed."""
        return self._select("SELECT * FROM run WHERE ended_at IS NULL ORDER BY id")

    def without_record(self, ended_since: int) -> list[StoredRun]:
        """Runs that are on nodes, or ended since a moment, of which no ended record is kept.

        A run whose start slurmctld has set anew (same job, same submission) is given once.
        """
        return self._select(
            "SELECT * FROM run WHERE (ended_at IS NULL OR ended_at >= ?)"
            " AND NOT EXISTS (SELECT 1 FROM record WHERE record.cluster = run.cluster"
            "  AND record.job_id = run.job_id AND run.ended_at IS NOT NULL"
            "  AND ((record.start_key = run.start AND record.end IS NOT NULL)"
            "   OR (record.start_key > run.start"
            "    AND json_extract(record.facts, '$.submit') = run.submit)))"
            " AND NOT EXISTS (SELECT 1 FROM run AS later WHERE later.cluster = run.cluster"
            "  AND later.job_id = run.job_id AND later.start > run.start"
            "  AND later.submit = run.submit AND later.first_seen_at = run.ended_at) ORDER BY id",
            (ended_since,),
        )

    def find(self, key: RunKey) -> StoredRun | None:
        """The run with this key; start 0 means the run of that job that is on nodes now."""
        if key.start:
            rows = self._select(
                "SELECT * FROM run WHERE cluster = ? AND job_id = ? AND start = ?",
                (key.cluster, key.job_id, key.start),
            )
        else:
            rows = self._select(
                "SELECT * FROM run WHERE cluster = ? AND job_id = ? AND ended_at IS NULL"
                " ORDER BY start DESC LIMIT 1",
                (key.cluster, key.job_id),
            )
        return rows[0] if rows else None

    def get(self, run_id: int) -> StoredRun | None:
        """The run with this row number."""
        rows = self._select("SELECT * FROM run WHERE id = ?", (run_id,))
        return rows[0] if rows else None

    def holders(self, card: Card, start: int, end: int) -> set[int]:
        """Job ids of the runs that held the card at some moment of ``[start, end)``."""
        rows = self._database.query(
            "SELECT DISTINCT job_id FROM run JOIN run_card ON run_card.run_id = run.id"
            " WHERE node = ? AND card_index = ? AND start < ?"
            " AND (ended_at IS NULL OR ended_at > ?)",
            (card.node, card.index, end, start),
        )
        return {row["job_id"] for row in rows}

    def of_job(self, job_id: int, array_task_id: int | None = None) -> list[StoredRun]:
        """Runs of a job as a user names it (12 or 12_3), newest first.

        A plain number is a raw id or an array's id, as in Slurm's own commands.
        """
        if array_task_id is None:
            return self._select(
                "SELECT * FROM run WHERE job_id = ? OR array_job_id = ? OR het_job_id = ?"
                " ORDER BY start DESC, job_id DESC",
                (job_id, job_id, job_id),
            )
        return self._select(
            "SELECT * FROM run WHERE array_job_id = ? AND array_task_id = ? ORDER BY start DESC",
            (job_id, array_task_id),
        )

    def recent(self, *, user: str | None, ended_since: int, limit: int) -> list[StoredRun]:
        """Runs on nodes or ended since a moment, newest first; of one user, or of all."""
        return self._select(
            "SELECT * FROM run WHERE (?1 IS NULL OR user = ?1)"
            " AND (ended_at IS NULL OR ended_at >= ?2) ORDER BY start DESC, id DESC LIMIT ?3",
            (user, ended_since, limit),
        )

    def set_ends(self, ends: Iterable[tuple[RunKey, int]]) -> None:
        """Take the ends that slurmdbd recorded: they are exact, a missing listing is not."""
        with self._database.writing() as connection:
            connection.executemany(
                "UPDATE run SET ended_at = ?1 WHERE cluster = ?2 AND job_id = ?3 AND start = ?4"
                " AND ended_at IS NOT ?1",
                [(end, key.cluster, key.job_id, key.start) for key, end in ends],
            )

    def suspensions(self, run_id: int) -> tuple[tuple[int, int | None], ...]:
        """Stretches in which the run was suspended, oldest first; None: still is."""
        rows = self._database.query(
            "SELECT started_at, ended_at FROM suspension WHERE run_id = ? ORDER BY started_at",
            (run_id,),
        )
        return tuple((row["started_at"], row["ended_at"]) for row in rows)

    def add_events(
        self,
        run_id: int,
        *,
        phases: Sequence[Phase],
        metrics: Sequence[MetricPoint],
        watch: WatchedMetric | None,
    ) -> None:
        """Take in what a supervisor published; the same events again change nothing.

        Of each metric the newest NEWEST_POINTS are kept.
        """
        with self._database.writing() as connection:
            connection.executemany(
                "INSERT INTO phase (run_id, node, name, started_at, ended_at, detail)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET ended_at = coalesce(excluded.ended_at, ended_at), detail = excluded.detail",
                [
                    (run_id, item.node, item.name, item.started_at, item.ended_at, item.detail)
                    for item in phases
                ],
            )
            connection.executemany(
                "INSERT INTO metric (run_id, name, step, value, at) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET value = excluded.value, at = excluded.at"
                " WHERE excluded.at >= at",
                [(run_id, item.name, item.step, item.value, item.at) for item in metrics],
            )
            connection.executemany(
                "DELETE FROM metric WHERE run_id = ?1 AND name = ?2 AND step <="
                " (SELECT step FROM metric WHERE run_id = ?1 AND name = ?2"
                "  ORDER BY step DESC LIMIT 1 OFFSET ?3)",
                [(run_id, name, NEWEST_POINTS) for name in {item.name for item in metrics}],
            )
            if watch is not None:
                connection.execute(
                    "INSERT OR REPLACE INTO watched_metric"
                    " (run_id, name, mode, min_delta, patience) VALUES (?, ?, ?, ?, ?)",
                    (run_id, watch.name, watch.mode, watch.min_delta, watch.patience),
                )

    def phases(self, run_id: int) -> tuple[Phase, ...]:
        """Phases that the run's supervisor published, oldest first."""
        rows = self._database.query(
            "SELECT name, node, started_at, ended_at, detail FROM phase WHERE run_id = ?"
            " ORDER BY started_at, node",
            (run_id,),
        )
        return tuple(Phase(**dict(row)) for row in rows)

    def metrics(self, run_id: int, newest: int | None = None) -> tuple[MetricPoint, ...]:
        """Metrics that the run published, by name and step; the newest N of each, or all."""
        rows = self._database.query(
            "SELECT name, step, value, at FROM (SELECT *, row_number() OVER"
            " (PARTITION BY name ORDER BY step DESC) AS age FROM metric WHERE run_id = ?)"
            " WHERE ? IS NULL OR age <= ? ORDER BY name, step",
            (run_id, newest, newest),
        )
        return tuple(MetricPoint(**dict(row)) for row in rows)

    def metric_names(self, run_id: int) -> set[str]:
        """Names of all metrics that the run published."""
        rows = self._database.query("SELECT DISTINCT name FROM metric WHERE run_id = ?", (run_id,))
        return {row["name"] for row in rows}

    def watched_metric(self, run_id: int) -> WatchedMetric | None:
        """What the job asked the plateau rule to look at."""
        row = self._database.query_one(
            "SELECT name, mode, min_delta, patience FROM watched_metric WHERE run_id = ?",
            (run_id,),
        )
        return WatchedMetric(**dict(row)) if row else None

    def _select(self, sql: str, parameters: Sequence[object] = ()) -> list[StoredRun]:
        rows = self._database.query(sql, parameters)
        return [_stored_run(row, self._cards(row["id"])) for row in rows]

    def _cards(self, run_id: int) -> tuple[CardAllocation, ...]:
        rows = self._database.query(
            "SELECT node, card_index, gpu_type FROM run_card WHERE run_id = ?"
            " ORDER BY node, card_index",
            (run_id,),
        )
        return tuple(
            CardAllocation(card=Card(row["node"], row["card_index"]), gpu_type=row["gpu_type"])
            for row in rows
        )


def _find(connection: sqlite3.Connection, key: RunKey) -> sqlite3.Row | None:
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM run WHERE cluster = ? AND job_id = ? AND start = ?",
        (key.cluster, key.job_id, key.start),
    ).fetchone()
    return row


def _upsert(connection: sqlite3.Connection, run: JobRun, now: int) -> int:
    values: dict[str, object] = {
        "cluster": run.key.cluster,
        "job_id": run.key.job_id,
        "start": run.key.start,
        "array_job_id": run.array_job_id,
        "array_task_id": run.array_task_id,
        "het_job_id": run.het_job_id,
        "het_offset": run.het_offset,
        "state": run.state,
        "user": run.user,
        "uid": run.uid,
        "account": run.account,
        "partition": run.partition,
        "qos": run.qos,
        "name": run.name,
        "comment": run.comment,
        "reservation": run.reservation,
        "submit": run.submit,
        "time_limit_seconds": run.time_limit_seconds,
        "suspended_seconds": run.suspended_seconds,
        "nodes": msgspec.json.encode(run.nodes).decode(),
        "cards_known": run.cards_known,
        "now": now,
    }
    row = connection.execute(
        "INSERT INTO run (cluster, job_id, start, array_job_id, array_task_id, het_job_id,"
        " het_offset, state, user, uid, account, partition, qos, name, comment, reservation,"
        " submit, time_limit_seconds, suspended_seconds, nodes, cards_known,"
        " first_seen_at, last_seen_at)"
        " VALUES (:cluster, :job_id, :start, :array_job_id, :array_task_id, :het_job_id,"
        " :het_offset, :state, :user, :uid, :account, :partition, :qos, :name, :comment,"
        " :reservation, :submit, :time_limit_seconds, :suspended_seconds, :nodes, :cards_known,"
        " :now, :now)"
        " ON CONFLICT (cluster, job_id, start) DO UPDATE SET state = :state, account = :account,"
        " partition = :partition, qos = :qos, name = :name, comment = :comment,"
        " reservation = :reservation, time_limit_seconds = :time_limit_seconds,"
        " suspended_seconds = :suspended_seconds, nodes = :nodes, cards_known = :cards_known,"
        " last_seen_at = :now, ended_at = NULL RETURNING id",
        values,
    ).fetchone()
    run_id = int(row["id"])
    _note_cards(connection, run_id, run)
    return run_id


def _note_cards(connection: sqlite3.Connection, run_id: int, run: JobRun) -> None:
    """The run's cards as they are now: a resized job has given some back."""
    held = {(item.card.node, item.card.index) for item in run.cards}
    if run.cards_known:
        rows = connection.execute(
            "SELECT node, card_index FROM run_card WHERE run_id = ?", (run_id,)
        ).fetchall()
        gone = {(row["node"], row["card_index"]) for row in rows} - held
        connection.executemany(
            "DELETE FROM run_card WHERE run_id = ? AND node = ? AND card_index = ?",
            [(run_id, *card) for card in gone],
        )
    connection.executemany(
        "INSERT INTO run_card (run_id, node, card_index, gpu_type) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET gpu_type = excluded.gpu_type",
        [(run_id, item.card.node, item.card.index, item.gpu_type) for item in run.cards],
    )


def _note_suspension(
    connection: sqlite3.Connection, run_id: int, run: JobRun, before: sqlite3.Row | None, now: int
) -> None:
    suspended = run.state == "SUSPENDED"
    was_suspended = before is not None and before["state"] == "SUSPENDED"
    since = before["last_seen_at"] if before is not None else run.key.start
    if suspended and not was_suspended:
        # It was suspended at some moment after the last listing: nothing since then counts.
        connection.execute(
            "INSERT OR IGNORE INTO suspension (run_id, started_at) VALUES (?, ?)", (run_id, since)
        )
    elif was_suspended and not suspended:
        connection.execute(
            "UPDATE suspension SET ended_at = ? WHERE run_id = ? AND ended_at IS NULL",
            (now, run_id),
        )
    elif not suspended and run.suspended_seconds > (before["suspended_seconds"] if before else 0):
        # Suspended and resumed between two listings, at a moment nobody saw.
        connection.execute(
            "INSERT OR IGNORE INTO suspension (run_id, started_at, ended_at) VALUES (?, ?, ?)",
            (run_id, since, now),
        )


def _end(connection: sqlite3.Connection, run_id: int, now: int) -> None:
    connection.execute(
        "UPDATE run SET ended_at = ? WHERE id = ? AND ended_at IS NULL", (now, run_id)
    )
    connection.execute(
        "UPDATE suspension SET ended_at = ? WHERE run_id = ? AND ended_at IS NULL", (now, run_id)
    )


def _stored_run(row: sqlite3.Row, cards: tuple[CardAllocation, ...]) -> StoredRun:
    key = RunKey(cluster=row["cluster"], job_id=row["job_id"], start=row["start"])
    run = JobRun(
        key=key,
        array_job_id=row["array_job_id"],
        array_task_id=row["array_task_id"],
        het_job_id=row["het_job_id"],
        het_offset=row["het_offset"],
        state=row["state"],
        user=row["user"],
        uid=row["uid"],
        account=row["account"],
        partition=row["partition"],
        qos=row["qos"],
        name=row["name"],
        comment=row["comment"],
        reservation=row["reservation"],
        submit=row["submit"],
        time_limit_seconds=row["time_limit_seconds"],
        suspended_seconds=row["suspended_seconds"],
        nodes=tuple(msgspec.json.decode(row["nodes"], type=list[str])),
        cards=cards,
        cards_known=bool(row["cards_known"]),
    )
    return StoredRun(
        id=row["id"],
        run=run,
        first_seen_at=row["first_seen_at"],
        last_seen_at=row["last_seen_at"],
        ended_at=row["ended_at"],
    )
