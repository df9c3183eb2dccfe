"""What the nodes say of their cards: kept once per node, card and time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from slurmwrap.model import Card, CardProcess, CardReading, ReadStatus
from slurmwrap.store.database import StoreDatabase

_COLUMNS = (
    "node, card_index, ended_at, started_at, status, reads,"
    " failed_reads, utilisation_mean, utilisation_max, histogram, memory_used_bytes,"
    " memory_total_bytes, power_mean_watts, power_max_watts, energy_joules,"
    " temperature_celsius, sm_clock_mhz, ecc_uncorrected, uuid, gpu_name, processes, error"
)
_INSERT = (
    f"INSERT OR IGNORE INTO reading ({_COLUMNS}, received_at)"  # noqa: S608
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

_STATUSES = {status.value: status for status in ReadStatus}
_histogram_decoder = msgspec.json.Decoder(tuple[int, ...])
_processes_decoder = msgspec.json.Decoder(tuple[CardProcess, ...])


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
                map(
                    _reading,
                    self._database.query_plain(
                        f"SELECT {_COLUMNS} FROM reading WHERE node = ? AND card_index = ?"  # noqa: S608
                        " AND ended_at > ? AND started_at < ? ORDER BY ended_at",
                        (card.node, card.index, start, end),
                    ),
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
        rows = self._database.query_plain(
            f"SELECT {_COLUMNS}, max(ended_at) FROM reading WHERE ended_at > ?"  # noqa: S608
            " GROUP BY node, card_index",
            (since,),
        )
        return {Card(row[0], row[1]): _reading(row[:-1]) for row in rows}


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


def _reading(row: tuple[Any, ...]) -> CardReading:
    """A row of _COLUMNS; called for every reading of every window, so it is kept lean."""
    (
        node, index, ended_at, started_at, status, reads, failed_reads, mean, highest, histogram,
        memory_used, memory_total, power_mean, power_max, energy, temperature, clock, ecc, uuid,
        gpu_name, processes, error,
    ) = row  # fmt: skip
    return CardReading(
        node=node,
        index=index,
        ended_at=ended_at,
        started_at=started_at,
        status=_STATUSES[status],
        reads=reads,
        failed_reads=failed_reads,
        utilisation_mean=mean,
        utilisation_max=highest,
        histogram=None if histogram is None else _decode_histogram(histogram),
        memory_used_bytes=memory_used,
        memory_total_bytes=memory_total,
        power_mean_watts=power_mean,
        power_max_watts=power_max,
        energy_joules=energy,
        temperature_celsius=temperature,
        sm_clock_mhz=clock,
        ecc_uncorrected=ecc,
        uuid=uuid,
        gpu_name=gpu_name,
        processes=None if processes is None else _decode_processes(processes),
        error=error,
    )


@lru_cache(maxsize=65536)
def _decode_histogram(text: str) -> tuple[int, ...]:
    return _histogram_decoder.decode(text)


@lru_cache(maxsize=65536)
def _decode_processes(text: str) -> tuple[CardProcess, ...]:
    """Interval after interval a card has the same processes."""
    return _processes_decoder.decode(text)
