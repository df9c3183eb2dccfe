"""The service's accounting, task by task, on a real Slurm, with a clock that the test sets."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from slurmwrap.api import BillQuestion
from slurmwrap.clock import SteppedClock
from slurmwrap.config import load_config
from slurmwrap.statements.json import merge_pages
from slurmwrapd.accounting import read_accounting
from slurmwrapd.authority import Asker
from slurmwrapd.bills import answer_bill
from slurmwrapd.collect import collect
from slurmwrapd.service import Service
from testbed.cluster import Testbed
from testbed.site import Site, to_toml

ROOT = Asker(uid=0, user="root", is_administrator=True, coordinated_accounts=frozenset())
OVERLAP = 86400
SACCT_FIELDS = (
    "JobIDRaw,JobID,Cluster,User,Account,Partition,QOS,State,Submit,Start,End,ElapsedRaw,"
    "Suspended,AllocTRES"
)


@dataclass
class Books:
    """One service in this process, without its scheduler and its agents."""

    testbed: Testbed
    site: Site
    service: Service
    clock: SteppedClock
    budgets: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def open(
        cls,
        testbed: Testbed,
        name: str,
        *,
        at: int,
        backfill_days: int = 2,
        budgets: tuple[Mapping[str, Any], ...] = (),
    ) -> Books:
        accounting = {"overlap": f"{OVERLAP}s", "backfill": f"{backfill_days}d"}
        site = Site.prepare(
            testbed, name=name, settings={"accounting": accounting}, budgets=budgets
        )
        clock = SteppedClock(at)
        service = Service.start(load_config(site.config_file).config, clock)
        return cls(testbed, site, service, clock, budgets)

    def close(self) -> None:
        self.service.store.close()
        self.site.stop()

    def use_zone(self, zone: str, prices: str | None = None) -> None:
        """Bill in this zone, with these prices, from now on: a reload with other settings."""
        if prices is not None:
            self.site.write("prices.toml", prices)
        self.site.settings["billing"]["timezone"] = zone
        self.site.write("slurmwrap.toml", to_toml(self.site.settings, self.budgets))
        self.service.reload(load_config(self.site.config_file).config)

    def read(self, at: int | None = None) -> str:
        if at is not None:
            self.clock.set(at)
        return read_accounting(self.service)

    def see(self) -> None:
        """Take in a listing now."""
        self.clock.set(int(time.time()))
        collect(self.service)

    def bill(self, month: str) -> dict[str, Any]:
        """The whole statement as the command gets it, page by page."""
        pages: list[bytes] = []
        offset: int | None = 0
        while offset is not None:
            answer = answer_bill(self.service, ROOT, BillQuestion(month=month, offset=offset))
            pages.append(bytes(answer.statement))
            offset = answer.next_offset
        merge_pages(pages)  # refuses pages that are not of one statement
        whole: dict[str, Any] = json.loads(pages[0])
        for page in map(json.loads, pages[1:]):
            whole["lines"] += page["lines"]
            whole["unpriced"] += page["unpriced"]
        return whole

    def rows(self, start: int, end: int) -> list[dict[str, str]]:
        """sacct's own rows of a window, of everybody, earlier runs of requeued jobs too."""
        window = ("-S", iso(start), "-E", iso(end))
        return self.testbed.sacct("-a", "-D", "-X", *window, f"--format={SACCT_FIELDS}")


def seconds_by_user(bill: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """Card-seconds of a bill by account and user."""
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for line in [*bill["lines"], *bill["unpriced"]]:
        sums[line["account"], line["user"]] += line["card_seconds"]
    return dict(sums)


def read_sreport(testbed: Testbed, start: int, end: int) -> dict[tuple[str, str], int]:
    """sreport's card-seconds by account and user; start and end are whole hours."""
    done = testbed.run_as(
        "root",
        [
            *("sreport", "-nP", "-t", "Seconds", "cluster", "AccountUtilizationByUser"),
            *(f"Start={iso(start)}", f"End={iso(end)}", "-T", "gres/gpu"),
            "Format=Account,Login,Used",
        ],
        env={"TZ": "UTC"},
        check=True,
    )
    rows = (line.split("|") for line in done.stdout.splitlines())
    return {(account, user): int(used) for account, user, used in rows if user and int(used)}


def iso(at: int) -> str:
    """The form that sacct and sreport take under TZ=UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
