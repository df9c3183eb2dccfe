"""Card-hours equal Slurm's own to the second while jobs live, and while the service looks on."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from slurmwrap.api import BudgetQuestion, BudgetStatus
from slurmwrap.model import AccountingRecord
from slurmwrapd.accounting import records_of_period
from slurmwrapd.budgets import answer_budgets, check_budgets
from slurmwrapd.collect import collect
from testbed import lifecycle, packages
from testbed.cluster import Testbed
from testbed.failures import NotSupported
from tests.cluster.books import ROOT, Books, seconds_by_user
from tests.cluster.past_months import Row, cards_of

pytestmark = pytest.mark.cluster

ALICE, BOB, CAROL = "swt-alice", "swt-bob", "swt-carol"
HOUR = 3600


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    """An instance of these tests alone: they take a node down and preempt at once."""
    try:
        packages.check_machine()
    except NotSupported as error:
        pytest.skip(str(error))
    name = f"live-{os.environ.get('PYTEST_XDIST_WORKER', 'one')}"
    lifecycle.down(name)
    running = Testbed.up(name)
    running.run_as("root", ["scontrol", "update", "partitionname=spot", "gracetime=0"], check=True)
    yield running
    running.down()


def quiet_zone() -> str:
    """A zone whose month neither begins nor ends within hours of now."""
    return "UTC" if 2 <= datetime.now(UTC).day <= 26 else "Pacific/Kiritimati"


@dataclass
class Witness:
    """Looks at the bill again and again, and at what Slurm itself says just before."""

    books: Books
    zone: str
    begun: int
    most_cards: int = 8
    totals: list[int] = field(default_factory=list)

    @property
    def month(self) -> str:
        return f"{datetime.now(ZoneInfo(self.zone)):%Y-%m}"

    def look(self) -> dict[tuple[str, str], int]:
        """The bill after a listing and again after a read: it never shrinks, it has at least
        what sacct had before, and at most what the cluster's cards could give."""
        least = count_held(self.books.rows(self.begun - 60, self.begun + 86400))
        self.books.see()
        listed = self._total()
        self.books.read()
        bill = self.books.bill(self.month)
        self._total()
        most = (int(time.time()) + 1 - self.begun) * self.most_cards
        ours = seconds_by_user(bill)
        assert {key: max(seconds, ours.get(key, 0)) for key, seconds in least.items()} == {
            key: ours.get(key, 0) for key in least
        }
        assert listed - self.most_cards <= bill["totals"]["card_seconds"] <= most
        return ours

    def _total(self) -> int:
        total: int = self.books.bill(self.month)["totals"]["card_seconds"]
        # What runs is counted by our clock until slurmctld says when it ended, to its second: a
        # run that has just ended can turn out a second shorter than it was last seen.
        assert total >= max(self.totals, default=0) - self.most_cards
        self.totals.append(total)
        return total


def count_held(rows: list[Row]) -> dict[tuple[str, str], int]:
    """Card-seconds by account and user: ElapsedRaw times cards of every record. Only a record
    that goes on after a resize (submitted at it, with the job's own start) is counted from
    there, as sreport does; sacct counts the time before it once more."""
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        if row["Start"].isdecimal():
            before = max(0, int(row["Submit"]) - int(row["Start"]))
            seconds = max(0, int(row["ElapsedRaw"]) - before)
            sums[row["Account"], row["User"]] += seconds * sum(cards_of(row).values())
    return dict(sums)


@dataclass
class Jobs:
    """The test's jobs by name."""

    testbed: Testbed
    ids: dict[str, int] = field(default_factory=dict)

    def submit(self, name: str, user: str, *arguments: str) -> None:
        standard = ("--output=/dev/null", "--time=10", "--mem=50")
        self.ids[name] = self.testbed.submit(user, *standard, *arguments, wrap="exec sleep 600")

    def await_running(self, *names: str) -> None:
        def are_running() -> bool:
            states = [self.testbed.job_state(self.ids[name]).split() for name in names]
            return all(set(words) == {"RUNNING"} for words in states)

        self.testbed.wait_for(are_running, 40, f"{', '.join(names)} run")

    def tell(self, *argv: str) -> None:
        """As root; a job's name in braces is its id."""
        self.testbed.run_as("root", [word.format(**self.ids) for word in argv], check=True)


def test_nothing_is_lost_or_doubled(testbed: Testbed) -> None:
    """B6, B7, B8, B11, B14, B18, B22, B27, B29: requeued, suspended and resumed, cancelled
    while suspended, preempted, resized, an array, two components, a node that fails, cancelled
    before it began, some of it running at each of eight looks. In the end the bill is what
    sacct's records add up to, by account and user."""
    books = Books.open(testbed, "live", at=int(time.time()))
    books.use_zone(quiet_zone())
    witness = Witness(books, quiet_zone(), int(time.time()))
    live_through_it_all(witness, Jobs(testbed))
    rows = await_ends(witness)
    states = {row["State"].split()[0] for row in rows}
    assert states == {"REQUEUED", "PREEMPTED", "RESIZING", "NODE_FAIL", "CANCELLED"}
    ours = witness.look()
    assert ours == {key: seconds for key, seconds in count_held(rows).items() if seconds}
    bill = books.bill(witness.month)
    assert bill["in_flight"] == {"card_seconds": 0}
    # sacct's own sum differs by the resized job alone, by the time before it was resized.
    plain = sum(int(row["ElapsedRaw"]) * sum(cards_of(row).values()) for row in rows)
    (rest,) = [
        row
        for row in rows
        if row["Start"].isdecimal() and int(row["Submit"]) > int(row["Start"]) and cards_of(row)
    ]
    again = (int(rest["Submit"]) - int(rest["Start"])) * sum(cards_of(rest).values())
    assert again > 0
    assert bill["totals"]["card_seconds"] == plain - again
    books.close()


def live_through_it_all(witness: Witness, jobs: Jobs) -> None:
    """Everything that can happen to a job, looked at eight times; at the end all are told to go."""
    books = witness.books
    jobs.submit("requeued", ALICE, "--gres=gpu:a100:1")
    jobs.submit("resumed", BOB, "--gres=gpu:h800:1")
    jobs.submit("suspended", BOB, "--gres=gpu:h800:1")
    jobs.submit("preempted", ALICE, "--partition=spot", "--gres=gpu:a100:2")
    jobs.submit("resized", CAROL, "-N2", "--gres=gpu:1")
    jobs.submit("never", CAROL, "--begin=now+1hour", "--gres=gpu:a100:4")
    witness.look()  # within their first second
    jobs.await_running("requeued", "resumed", "suspended", "preempted", "resized")
    time.sleep(1.2)
    witness.look()
    jobs.tell("scontrol", "requeue", "{requeued}")
    jobs.tell("scontrol", "suspend", "{resumed}")
    jobs.tell("scontrol", "suspend", "{suspended}")
    jobs.tell("scontrol", "update", "jobid={resized}", "numnodes=1")
    jobs.tell("scancel", "{never}")
    jobs.submit("urgent", BOB, "--gres=gpu:a100:3")
    jobs.await_running("urgent")
    witness.look()
    time.sleep(1.5)
    witness.look()
    jobs.tell("scontrol", "resume", "{resumed}")
    jobs.tell("scancel", "{suspended}", "{urgent}")
    jobs.submit("array", CAROL, "--array=0-1", "--gres=gpu:h800:1")
    jobs.submit("parts", ALICE, "--gres=gpu:h800:1", ":", "--mem=50", "--gres=gpu:a100:1")
    jobs.await_running("array", "parts")
    witness.look()
    jobs.tell("scancel", "{array}", "{parts}", "{resumed}")
    books.see()
    assert witness.look()
    jobs.submit("stranded", CAROL, "--requeue", "--gres=gpu:h800:2")
    jobs.await_running("stranded")
    time.sleep(1.1)
    jobs.tell("scontrol", "update", "nodename=gpu2", "state=down", "reason=test")
    witness.look()
    jobs.await_running("requeued", "preempted", "stranded")
    time.sleep(1.1)
    witness.look()
    jobs.tell("scancel", *(f"{{{name}}}" for name in jobs.ids))


def await_ends(witness: Witness) -> list[Row]:
    """sacct's rows once every job has left and every record has an end."""
    testbed = witness.books.testbed
    testbed.wait_for(
        lambda: not testbed.run_as("root", ["squeue", "-h"]).stdout.strip(), 30, "all have left"
    )

    def ended() -> list[Row]:
        rows = witness.books.rows(witness.begun - 60, witness.begun + 86400)
        return rows if all(row["End"].isdecimal() for row in rows) else []

    return testbed.wait_for(ended, 30, "every record has ended")


def test_short_runs_wait_for_their_whole_record(testbed: Testbed) -> None:
    """B18, B29: for seconds slurmdbd knows neither partition nor QOS of a run, also when it has
    ended, and leaves it out of a window asked for without states: it stays in flight, under its
    own partition, until its record is whole."""
    books = Books.open(testbed, "short", at=int(time.time()))
    jobs = Jobs(testbed)
    for name in ("first", "second", "third"):
        jobs.submit(name, BOB, "--gres=gpu:h800:2")
        jobs.await_running(name)
        time.sleep(1)
        books.see()
        jobs.tell("scancel", f"{{{name}}}")
        row = await_cancelled(testbed, jobs.ids[name])
        books.see()

        def whole(job: int = jobs.ids[name], start: int = int(row["Start"])) -> AccountingRecord:
            books.read(int(time.time()) + 1)
            (known,) = [
                record
                for record in records_of_period(books.service, start, start + HOUR)
                if record.job_id == job
            ]
            assert (known.partition, known.qos, known.cards) == ("gpu", "normal", {"h800": 2})
            return known

        record = testbed.wait_for(lambda: (r := whole()).end is not None and r, 30, "its record")
        assert isinstance(record, AccountingRecord)
        assert (str(record.end), str(record.elapsed_seconds)) == (row["End"], row["ElapsedRaw"])
    books.close()


def await_cancelled(testbed: Testbed, job: int) -> Row:
    """The job's own row of sacct, once it has ended."""
    rows: list[Row] = testbed.wait_for(
        lambda: [
            row
            for row in testbed.sacct("-X", "-j", str(job), "--format=State,Start,End,ElapsedRaw")
            if row["State"].startswith("CANCELLED") and row["End"].isdecimal()
        ],
        30,
        f"the record of {job}",
    )
    return rows[0]


def test_a_budget_to_the_second(testbed: Testbed) -> None:
    """Two cards with a limit of 600 s, a budget of half a card-hour: in flight and committed
    follow the clock, each threshold is told once in a period and once more after a raise, and
    the month's end begins a new one."""
    entry = {"account": "lab", "card_hours": "0.2", "thresholds": [50, 80, 100]}
    begun = int(time.time())
    books = Books.open(testbed, "budget", at=begun, budgets=(entry,))
    books.use_zone(quiet_zone())
    jobs = Jobs(testbed)
    jobs.submit("busy", BOB, "--gres=gpu:h800:2")
    jobs.await_running("busy")
    books.see()
    (stored,) = books.service.store.runs.of_job(jobs.ids["busy"])
    start = stored.run.key.start

    def at(moment: int) -> BudgetStatus:
        books.clock.set(moment)
        collect(books.service)
        answer = answer_budgets(books.service, ROOT, BudgetQuestion())
        return answer.budgets[0]

    def check(moment: int) -> str:
        books.clock.set(moment)
        collect(books.service)
        return check_budgets(books.service)

    def figures(status: BudgetStatus) -> tuple[str, str, str, str]:
        return status.settled, status.in_flight, status.committed, status.left

    # 0.2 card-hours are 720 card-seconds: 360 s of two cards.
    assert figures(at(start + 9)) == ("0.0000", "0.0050", "0.3283", "0.1950")
    assert check(start + 179) == "1 budgets"
    assert check(start + 180) == "1 budgets, 1 new alerts"
    assert check(start + 181) == "1 budgets"
    assert check(start + 360) == "1 budgets, 2 new alerts"
    assert check(start + 360) == "1 budgets"
    status = at(start + 361)
    assert figures(status) == ("0.0000", "0.2006", "0.1328", "-0.0006")
    assert [threshold for threshold, _ in status.alerts] == [50, 80, 100]
    books.budgets = ({**entry, "card_hours": "0.25"},)
    books.use_zone(quiet_zone())
    assert check(start + 362) == "1 budgets, 2 new alerts"  # 724 of 900 card-seconds
    after = status.period_end
    assert figures(at(after + 90)) == ("0.0000", "0.0500", "0.0000", "0.2000")
    assert check(after + 224) == "1 budgets"
    assert check(after + 225) == "1 budgets, 1 new alerts"
    status = at(after + 226)
    assert (status.period_start, [alert for alert, _ in status.alerts]) == (after, [50])
    jobs.tell("scancel", "{busy}")
    await_cancelled(testbed, jobs.ids["busy"])
    cluster = books.service.commands.cluster_name()

    def is_read() -> bool:
        books.read(int(time.time()) + 1)
        record = books.service.store.records.find(cluster, jobs.ids["busy"], start)
        return record is not None and record.end is not None

    testbed.wait_for(is_read, 30, "its record is whole")
    now = books.clock.now()
    held = count_held(books.rows(begun - 7200, now))
    lab = sum(seconds for (account, _), seconds in held.items() if account != "physics")
    assert lab > 0
    settled = f"{lab / HOUR:.4f}"
    assert figures(at(now))[:3] == (settled, "0.0000", "0.0000")
    books.close()
