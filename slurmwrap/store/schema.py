"""The tables, as a list of migrations that is only ever added to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlite_utils import Migrations

if TYPE_CHECKING:
    from sqlite_utils import Database

migrations = Migrations("slurmwrap")


_RUNS_AND_READINGS = (
    """
    CREATE TABLE run (
        id INTEGER PRIMARY KEY,
        cluster TEXT NOT NULL,
        job_id INTEGER NOT NULL,
        start INTEGER NOT NULL,
        array_job_id INTEGER,
        array_task_id INTEGER,
        het_job_id INTEGER,
        het_offset INTEGER,
        state TEXT NOT NULL,
        user TEXT NOT NULL,
        uid INTEGER NOT NULL,
        account TEXT NOT NULL,
        partition TEXT NOT NULL,
        qos TEXT NOT NULL,
        name TEXT NOT NULL,
        comment TEXT NOT NULL,
        reservation TEXT NOT NULL,
        submit INTEGER NOT NULL,
        time_limit_seconds INTEGER,
        suspended_seconds INTEGER NOT NULL,
        nodes TEXT NOT NULL, -- JSON list
        cards_known INTEGER NOT NULL,
        first_seen_at INTEGER NOT NULL,
        last_seen_at INTEGER NOT NULL,
        ended_at INTEGER,
        UNIQUE (cluster, job_id, start)
    ) STRICT
    """,
    "CREATE INDEX run_on_nodes ON run (ended_at) WHERE ended_at IS NULL",
    "CREATE INDEX run_by_user ON run (user, start)",
    """
    CREATE TABLE run_card (
        run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
        node TEXT NOT NULL,
        card_index INTEGER NOT NULL,
        gpu_type TEXT NOT NULL,
        PRIMARY KEY (run_id, node, card_index)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX run_card_by_card ON run_card (node, card_index)",
    """
    CREATE TABLE suspension (
        run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
        started_at INTEGER NOT NULL,
        ended_at INTEGER,
        PRIMARY KEY (run_id, started_at)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE reading (
        node TEXT NOT NULL,
        card_index INTEGER NOT NULL,
        ended_at INTEGER NOT NULL,
        started_at INTEGER NOT NULL,
        status TEXT NOT NULL,
        reads INTEGER NOT NULL,
        failed_reads INTEGER NOT NULL,
        utilisation_mean REAL,
        utilisation_max INTEGER,
        histogram TEXT,
        memory_used_bytes INTEGER,
        memory_total_bytes INTEGER,
        power_mean_watts REAL,
        power_max_watts REAL,
        energy_joules REAL,
        temperature_celsius INTEGER,
        sm_clock_mhz INTEGER,
        ecc_uncorrected INTEGER,
        uuid TEXT NOT NULL,
        gpu_name TEXT NOT NULL,
        processes TEXT,
        error TEXT NOT NULL,
        received_at INTEGER NOT NULL,
        PRIMARY KEY (node, card_index, ended_at)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX reading_by_time ON reading (ended_at)",
    """
    CREATE TABLE agent (
        node TEXT PRIMARY KEY,
        last_message_at INTEGER NOT NULL,
        newest_reading_at INTEGER,
        clock_skew_seconds INTEGER NOT NULL,
        dropped_messages INTEGER NOT NULL,
        address TEXT NOT NULL,
        error TEXT NOT NULL -- why no card can be listed; empty: they can
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE phase (
        run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
        node TEXT NOT NULL,
        name TEXT NOT NULL,
        started_at INTEGER NOT NULL,
        ended_at INTEGER,
        detail TEXT NOT NULL,
        PRIMARY KEY (run_id, node, name, started_at)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE metric (
        run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        step INTEGER NOT NULL,
        value REAL NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (run_id, name, step)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE watched_metric (
        run_id INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        mode TEXT NOT NULL,
        min_delta REAL NOT NULL,
        patience INTEGER
    ) STRICT
    """,
)


@migrations(name="0001_runs_and_readings")
def create_runs_and_readings(db: Database) -> None:
    """Runs as slurmctld shows them, what the nodes say of their cards, what jobs publish."""
    _execute_each(db, _RUNS_AND_READINGS)


_RECORDS = (
    """
    CREATE TABLE record (
        cluster TEXT NOT NULL,
        job_id INTEGER NOT NULL,
        start_key INTEGER NOT NULL, -- start, or 0 for a record that never started
        facts TEXT NOT NULL, -- slurmwrap.model.AccountingRecord as JSON
        user TEXT NOT NULL,
        account TEXT NOT NULL,
        end INTEGER,
        first_read_at INTEGER NOT NULL,
        changed_at INTEGER NOT NULL,
        PRIMARY KEY (cluster, job_id, start_key)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX record_by_end ON record (end)",
)


@migrations(name="0002_records")
def create_records(db: Database) -> None:
    """The facts of slurmdbd that bills rest on, one row per run."""
    _execute_each(db, _RECORDS)


_LEDGER_AND_OUTBOX = (
    """
    CREATE TABLE ledger (
        id INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        dedupe_key TEXT NOT NULL UNIQUE, -- the same event is recorded once
        run_id INTEGER REFERENCES run (id),
        rule TEXT NOT NULL,
        reason TEXT NOT NULL,
        detail TEXT NOT NULL -- JSON
    ) STRICT
    """,
    "CREATE INDEX ledger_by_run ON ledger (run_id, rule, kind)",
    *(
        f"""
        CREATE TRIGGER ledger_keeps_rows_on_{verb} BEFORE {verb} ON ledger
        BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END
        """
        for verb in ("UPDATE", "DELETE")
    ),
    """
    CREATE TABLE outbox (
        id INTEGER PRIMARY KEY,
        ledger_id INTEGER NOT NULL REFERENCES ledger (id),
        role TEXT NOT NULL, -- user, account or admin
        recipient TEXT NOT NULL, -- a user name, empty for administrators
        subject TEXT NOT NULL,
        body TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        next_attempt_at INTEGER NOT NULL,
        delivered_at INTEGER,
        last_error TEXT NOT NULL DEFAULT '',
        UNIQUE (ledger_id, role, recipient)
    ) STRICT
    """,
    "CREATE INDEX outbox_due ON outbox (next_attempt_at) WHERE delivered_at IS NULL",
)


@migrations(name="0003_ledger_and_outbox")
def create_ledger_and_outbox(db: Database) -> None:
    """What was decided (append-only), and the messages that tell people of it."""
    _execute_each(db, _LEDGER_AND_OUTBOX)


_HEALTH = (
    """
    CREATE TABLE task_health (
        task TEXT PRIMARY KEY,
        last_attempt_at INTEGER NOT NULL,
        last_success_at INTEGER,
        failures_in_a_row INTEGER NOT NULL,
        last_error TEXT NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE watermark (
        source TEXT PRIMARY KEY,
        at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
)


@migrations(name="0004_health")
def create_health(db: Database) -> None:
    """How each task of the service fared last, and where reading records goes on."""
    _execute_each(db, _HEALTH)


_RUNS_BY_END = ("CREATE INDEX run_by_end ON run (ended_at)",)


@migrations(name="0005_runs_by_end")
def create_runs_by_end(db: Database) -> None:
    """Finding the runs that ended lately, of which slurmdbd may not have told yet."""
    _execute_each(db, _RUNS_BY_END)


def _execute_each(db: Database, statements: tuple[str, ...]) -> None:
    for statement in statements:
        db.execute(statement)
