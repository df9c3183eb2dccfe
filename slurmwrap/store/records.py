"""The facts of slurmdbd: one row per run, kept as they were read last."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from slurmwrap.model import AccountingRecord
from slurmwrap.store.database import StoreDatabase

_decoder = msgspec.json.Decoder(AccountingRecord)


class Records:
    """The tables record and watermark."""

    def __init__(self, database: StoreDatabase) -> None:
        self._database = database

    def merge(self, records: Iterable[AccountingRecord], read_at: int) -> int:
        """Keep records by (cluster, job id, start); what slurmdbd says now replaces what it
        said before. Returns how many are new or changed.
        """
        rows = [
            (
                record.cluster,
                record.job_id,
                record.start or 0,
                msgspec.json.encode(record).decode(),
                record.user,
                record.account,
                record.end,
                read_at,
                read_at,
            )
            for record in records
        ]
        with self._database.writing() as connection:
            before = connection.total_changes
            connection.executemany(
                "INSERT INTO record (cluster, job_id, start_key, facts, user, account, end,"
                " first_read_at, changed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (cluster, job_id, start_key) DO UPDATE SET facts = excluded.facts,"
                " user = excluded.user, account = excluded.account, end = excluded.end,"
                " changed_at = excluded.changed_at WHERE facts <> excluded.facts",
                rows,
            )
            return connection.total_changes - before

    def overlapping(
        self, start: int, end: int, *, user: str | None = None
    ) -> list[AccountingRecord]:
        """Records of runs that were on nodes at some moment of ``[start, end)``; of one user,
        or of all.
        """
        rows = self._database.query(
            "SELECT facts FROM record WHERE start_key > 0 AND start_key < ?1"
            " AND (end IS NULL OR end > ?2) AND (?3 IS NULL OR user = ?3)"
            " ORDER BY cluster, job_id, start_key",
            (end, start, user),
        )
        return [_decoder.decode(row["facts"]) for row in rows]

    def find(self, cluster: str, job_id: int, start: int) -> AccountingRecord | None:
        """The record of one run."""
        row = self._database.query_one(
            "SELECT facts FROM record WHERE cluster = ? AND job_id = ? AND start_key = ?",
            (cluster, job_id, start),
        )
        return _decoder.decode(row["facts"]) if row else None

    def without_end(self) -> list[AccountingRecord]:
        """Records of runs that had not ended when they were read."""
        rows = self._database.query(
            "SELECT facts FROM record WHERE end IS NULL AND start_key > 0"
            " ORDER BY cluster, job_id, start_key"
        )
        return [_decoder.decode(row["facts"]) for row in rows]

    def withdraw(self, records: Iterable[AccountingRecord]) -> None:
        """Forget records without an end that slurmdbd no longer has; ended ones stay."""
        with self._database.writing() as connection:
            connection.executemany(
                "DELETE FROM record WHERE cluster = ? AND job_id = ? AND start_key = ?"
                " AND end IS NULL",
                [(record.cluster, record.job_id, record.start or 0) for record in records],
            )

    def watermark(self, source: str) -> int | None:
        """Up to when ``source`` has been read."""
        row = self._database.query_one("SELECT at FROM watermark WHERE source = ?", (source,))
        return row["at"] if row else None

    def set_watermark(self, source: str, at: int) -> None:
        """Remember up to when ``source`` has been read."""
        with self._database.writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO watermark (source, at) VALUES (?, ?)", (source, at)
            )
