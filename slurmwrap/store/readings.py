"""What the nodes say of their cards: kept once per node, card and time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from slurmwrap.model import Card, CardProcess, CardReading, ReadStatus
from slurmwrap.store.database import StoreDatabase

_INSERT = (
    "INSERT OR IGNORE INTO reading (node, card_index, ended_at, started_at, status, reads,"
    " failed_reads, utilisation_mean, utilisation_max, histogram, memory_used_bytes,"
    " memory_total_bytes, power_mean_watts, power_max_watts, energy_joules,"
    " temperature_celsius, sm_clock_mhz, ecc_uncorrected, uuid, gpu_name, processes, error,"
    " received_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class Readings:
    """The tables reading and agent."""

    def __init__(self, database: StoreDatabase) -> None:
        self._database = database

    def add(self, readings: Sequence[CardReading], received_at: int) -> int:
        """Keep readings; those already kept are left as they are. Returns how many were new."""
        with self._database.writing() as connection:
            before = connection.total_changes
            connection.executemany(_INSERT, [_row(item, received_at) for item in readings])
            return connection.total_changes - before

    def note_agent(
        self,
        node: str,
        *,
        now: int,
        newest_reading_at: int | None,
        clock_skew_seconds: int,
        dropped_messages: int,
        address: str,
        error: str,
    ) -> None:
        """Remember that an agent spoke, and how it fares."""
        with self._database.writing() as connection:
            connection.execute(
                "INSERT INTO agent (node, last_message_at, newest_reading_at,"
                " clock_skew_seconds, dropped_messages, address, error)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (node) DO UPDATE SET last_message_at = excluded.last_message_at,"
                " newest_reading_at = max(coalesce(newest_reading_at, 0),"
                " coalesce(excluded.newest_reading_at, 0)),"
                " clock_skew_seconds = excluded.clock_skew_seconds,"
                " dropped_messages = excluded.dropped_messages, address = excluded.address,"
                " error = excluded.error",
                (
                    node,
                    now,
                    newest_reading_at,
                    clock_skew_seconds,
                    dropped_messages,
                    address,
                    error,
                ),
            )

    def agents(self) -> list[sqlite3.Row]:
        """How each node's agent fared last."""
        return self._database.query("SELECT * FROM agent ORDER BY node")

    def of_cards(
        self, cards: Iterable[Card], start: int, end: int
    ) -> dict[Card, tuple[CardReading, ...]]:
        """Per card its readings that touch ``[start, end)``, in order of time."""
        return {
            card: tuple(
                _reading(row)
                for row in self._database.query(
                    "SELECT * FROM reading WHERE node = ? AND card_index = ? AND ended_at > ?"
                    " AND started_at < ? ORDER BY ended_at",
                    (card.node, card.index, start, end),
                )
            )
            for card in cards
        }

    def measured_seconds(self, cards: Iterable[Card], start: int, end: int) -> int:
        """Card-seconds of ``[start, end)`` for which there is a good reading, each once."""
        total = 0
        for card in cards:
            row = self._database.query_one(
                "SELECT coalesce(sum(max(0, min(ended_at, ?4) - max(started_at, ?3, before))), 0)"
                " AS seconds FROM (SELECT started_at, ended_at,"
                "  lag(ended_at, 1, 0) OVER (ORDER BY ended_at) AS before"
                " FROM reading WHERE node = ?1 AND card_index = ?2 AND ended_at > ?3"
                " AND started_at < ?4 AND status = 'ok')",
                (card.node, card.index, start, end),
            )
            total += row["seconds"] if row else 0
        return total

    def newest_since(self, since: int) -> dict[Card, CardReading]:
        """The newest reading of every card that sent one after ``since``."""
        # SQLite takes the other columns from the row that holds the maximum.
        rows = self._database.query(
            "SELECT *, max(ended_at) FROM reading WHERE ended_at > ? GROUP BY node, card_index",
            (since,),
        )
        return {Card(row["node"], row["card_index"]): _reading(row) for row in rows}


def _row(item: CardReading, received_at: int) -> tuple[object, ...]:
    return (
        item.node,
        item.index,
        item.ended_at,
        item.started_at,
        item.status.value,
        item.reads,
        item.failed_reads,
        item.utilisation_mean,
        item.utilisation_max,
        None if item.histogram is None else msgspec.json.encode(item.histogram).decode(),
        item.memory_used_bytes,
        item.memory_total_bytes,
        item.power_mean_watts,
        item.power_max_watts,
        item.energy_joules,
        item.temperature_celsius,
        item.sm_clock_mhz,
        item.ecc_uncorrected,
        item.uuid,
        item.gpu_name,
        None if item.processes is None else msgspec.json.encode(item.processes).decode(),
        item.error,
        received_at,
    )


def _reading(row: sqlite3.Row) -> CardReading:
    histogram, processes = row["histogram"], row["processes"]
    return CardReading(
        node=row["node"],
        index=row["card_index"],
        ended_at=row["ended_at"],
        started_at=row["started_at"],
        status=ReadStatus(row["status"]),
        reads=row["reads"],
        failed_reads=row["failed_reads"],
        utilisation_mean=row["utilisation_mean"],
        utilisation_max=row["utilisation_max"],
        histogram=None
        if histogram is None
        else msgspec.json.decode(histogram, type=tuple[int, ...]),
        memory_used_bytes=row["memory_used_bytes"],
        memory_total_bytes=row["memory_total_bytes"],
        power_mean_watts=row["power_mean_watts"],
        power_max_watts=row["power_max_watts"],
        energy_joules=row["energy_joules"],
        temperature_celsius=row["temperature_celsius"],
        sm_clock_mhz=row["sm_clock_mhz"],
        ecc_uncorrected=row["ecc_uncorrected"],
        uuid=row["uuid"],
        gpu_name=row["gpu_name"],
        processes=None
        if processes is None
        else msgspec.json.decode(processes, type=tuple[CardProcess, ...]),
        error=row["error"],
    )
