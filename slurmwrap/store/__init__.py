"""The only place with SQL."""

from __future__ import annotations

from pathlib import Path

from slurmwrap.store.database import StoreDatabase
from slurmwrap.store.health import Health
from slurmwrap.store.ledger import Ledger
from slurmwrap.store.readings import Readings
from slurmwrap.store.records import Records
from slurmwrap.store.runs import Runs


class Store:
    """The service's database, one room per kind of fact."""

    def __init__(self, database: StoreDatabase) -> None:
        self.database = database
        self.runs = Runs(database)
        self.readings = Readings(database)
        self.records = Records(database)
        self.ledger = Ledger(database)
        self.health = Health(database)

    @classmethod
    def open(cls, path: Path, *, upgrade: bool = False) -> Store:
        """The store at ``path``; see :meth:`StoreDatabase.open`."""
        return cls(StoreDatabase.open(path, upgrade=upgrade))

    def close(self) -> None:
        """Close every connection."""
        self.database.close()
