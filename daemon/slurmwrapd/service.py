"""The parts that every task of the service works with, made once from the settings."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo

from slurmwrap.billing.prices import PriceBook
from slurmwrap.clock import Clock, SystemClock
from slurmwrap.config import Config
from slurmwrap.config.price_file import read_price_file
from slurmwrap.config.rules_file import load_rules
from slurmwrap.errors import SlurmUnavailableError, SlurmwrapError
from slurmwrap.rules.ruleset import RuleSet
from slurmwrap.slurm.accounting import AccountingRecords
from slurmwrap.slurm.associations import Associations, read_associations
from slurmwrap.slurm.commands import SlurmCommands
from slurmwrap.slurm.control import JobControl
from slurmwrap.slurm.live import LiveJobs
from slurmwrap.store import Store
from slurmwrapd.bounds import Refusals

log = logging.getLogger("slurmwrapd")

_ASSOCIATIONS_AGE_SECONDS = 60


@dataclass
class Service:
    """Settings, Slurm, the store and the clock, shared by all tasks and requests."""

    config: Config
    clock: Clock
    store: Store
    commands: SlurmCommands
    live: LiveJobs
    records: AccountingRecords
    control: JobControl
    rules: RuleSet
    prices: PriceBook | None
    started_at: int
    refusals: Refusals = field(default_factory=Refusals)
    succeeded: set[str] = field(default_factory=set)
    """Tasks that have succeeded since the start."""
    _associations: Associations | None = None
    _associations_error: SlurmwrapError | None = None
    _associations_due_at: int = 0
    _associations_lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def start(cls, config: Config, clock: Clock | None = None) -> Service:
        """The service that these settings describe, with its database open.

        Raises:
            SlurmwrapError: a rule, price or database file that can't be used.
        """
        chosen_clock = clock or SystemClock()
        rules = load_rules(Path(config.rules.file))
        prices = load_prices(config)
        commands = SlurmCommands(config.slurm)
        # squeue tells run times by the machine's clock, whatever clock the tasks go by.
        live = LiveJobs(commands, config.accounting.card_gres, SystemClock())
        return cls(
            config=config,
            clock=chosen_clock,
            store=Store.open(Path(config.daemon.database)),
            commands=commands,
            live=live,
            records=AccountingRecords(commands, config.accounting.card_gres),
            control=JobControl(commands, live),
            rules=rules,
            prices=prices,
            started_at=chosen_clock.now(),
        )

    def reload(self, config: Config) -> None:
        """Take new settings, rules and prices; on an error everything stays as it was.

        What is bound at start (addresses, database, how Slurm is reached) needs a restart.
        """
        rules = load_rules(Path(config.rules.file))
        prices = load_prices(config)
        self.config, self.rules, self.prices = config, rules, prices

    def associations(self) -> Associations:
        """slurmdbd's users and accounts, at most a minute old; older ones if it is away.

        One thread at a time asks slurmdbd, which can take as long as ``slurm.command_timeout``;
        the others get what is known, at once.

        Raises:
            SlurmwrapError: slurmdbd has not answered once yet.
        """
        is_due = self.clock.now() >= self._associations_due_at
        if is_due and self._associations_lock.acquire(blocking=False):
            try:
                self._read_associations()
            finally:
                self._associations_lock.release()
        if self._associations is not None:
            return self._associations
        raise self._associations_error or SlurmUnavailableError(
            "slurmdbd has not told its users and accounts yet", hint="try again in a moment"
        )

    def _read_associations(self) -> None:
        try:
            self._associations = read_associations(self.commands)
        except SlurmwrapError as error:
            log.warning("slurmdbd's users and accounts can't be read: %s", error)
            self._associations_error = error
        # After a failure it is asked again after a while, not at every request.
        self._associations_due_at = self.clock.now() + _ASSOCIATIONS_AGE_SECONDS


def load_prices(config: Config) -> PriceBook | None:
    """The site's prices; None when there is no price file (everything is then unpriced)."""
    path = Path(config.billing.prices)
    if not path.exists():
        return None
    return read_price_file(
        path, zone=ZoneInfo(config.billing.timezone), currency=config.billing.currency
    )
