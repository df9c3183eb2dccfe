"""Card-hours equal Slurm's own to the second, whatever happens: months gone by."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmwrap.errors import SlurmwrapError
from testbed import lifecycle, packages
from testbed.cluster import Testbed
from testbed.failures import NotSupported
from testbed.history import PastJob, await_rollup, insert_history, insert_jobs
from testbed.site import SERVICE_USER
from tests.cluster.books import Books, read_sreport, seconds_by_user
from tests.cluster.past_months import (
    DAY,
    FIRST_ID,
    HOUR,
    Month,
    count_lines,
    count_suspended,
    count_wall,
    make_jobs,
    moment,
)

pytestmark = pytest.mark.cluster

AFTER = moment(12, 2)
MONTHS = (
    Month(10, "Asia/Shanghai"),
    Month(11, "Asia/Shanghai"),
    Month(10, "Europe/Berlin"),  # 31 days and an hour
    Month(11, "Europe/Berlin"),
)


NOVEMBER = MONTHS[1]


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    """An instance of these tests alone, with two months of activity; sreport's figures of it
    are made in the background."""
    try:
        packages.check_machine()
    except NotSupported as error:
        pytest.skip(str(error))
    name = f"accounting-{os.environ.get('PYTEST_XDIST_WORKER', 'one')}"
    lifecycle.down(name)
    running = Testbed.up(name)
    jobs = make_jobs()
    assert len(jobs) >= 400
    insert_history(running, jobs, since=moment(9, 26))
    yield running
    running.down()


@pytest.fixture(scope="module")
def books(testbed: Testbed) -> Iterator[Books]:
    """The service has read both months."""
    opened = Books.open(testbed, "past", at=AFTER, backfill_days=67)
    opened.read()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def week(books: Books) -> Iterator[Books]:
    """Another service, that has read the last week of November."""
    opened = open_week(books.testbed, "week")
    opened.read()
    yield opened
    opened.close()


def open_week(testbed: Testbed, name: str) -> Books:
    """A service that has read nothing yet, and will begin eight days back."""
    opened = Books.open(testbed, name, at=AFTER, backfill_days=8)
    opened.use_zone(NOVEMBER.zone, NOVEMBER.prices())
    return opened


def lines_of(bill: dict[str, Any]) -> dict[tuple[str, ...], tuple[int, str | None]]:
    """A bill's lines in the form of count_lines."""
    names = ("account", "user", "partition", "qos", "gpu_type", "unit_price")
    return {
        tuple(line[name] for name in names): (line["card_seconds"], line.get("amount"))
        for line in [*bill["lines"], *bill["unpriced"]]
    }


@pytest.mark.parametrize("month", MONTHS, ids=lambda month: f"{month.zone}-{month.number}")
def test_a_month_equals_an_independent_count(books: Books, month: Month) -> None:
    """B9, B11, B12, B16: every line of the bill has the card-seconds and the amount that a short
    program counts from sacct's rows, with prices that change on the 15th."""
    books.use_zone(month.zone, month.prices())
    bill = books.bill(month.name)
    rows = books.rows(month.start, month.end)
    assert len(rows) > 200
    right = count_lines(rows, month)
    assert lines_of(bill) == right
    assert bill["totals"]["card_seconds"] == sum(seconds for seconds, _ in right.values())
    assert bill["rejected_records"] == 0
    assert bill["in_flight"] == {"card_seconds": 0}


@pytest.mark.parametrize("month", MONTHS, ids=lambda month: f"{month.zone}-{month.number}")
def test_a_month_equals_sreport(books: Books, month: Month) -> None:
    """B19: per account and user the bill is what sreport says, less the time in which jobs were
    suspended: sreport goes on counting their cards, ElapsedRaw does not."""
    await_rollup(books.testbed, month.end)
    books.use_zone(month.zone, month.prices())
    rows = books.rows(month.start, month.end)
    ours = seconds_by_user(books.bill(month.name))
    suspended = count_suspended(rows, month.start, month.end)
    assert sum(suspended.values()) > HOUR
    theirs = read_sreport(books.testbed, month.start, month.end)
    assert theirs == count_wall(rows, month.start, month.end)
    assert {key: ours.get(key, 0) + suspended.get(key, 0) for key in theirs} == theirs


def test_a_killed_reader_leaves_the_same_bill(week: Books) -> None:
    """B18, B25, B30: kill -9 at ten random moments of reading, slurmdbd away in between, windows
    that overlap: in the end the bill is that of one undisturbed read, and twice the same."""
    undisturbed = week.bill(NOVEMBER.name)
    right = undisturbed["totals"]["card_seconds"]
    assert right > 100 * HOUR
    disturbed = open_week(week.testbed, "killed")
    child = Path(__file__).parent / "reading_child.py"
    chance = random.Random(9)
    for attempt in range(10):
        reader = subprocess.Popen(
            [sys.executable, child, disturbed.site.config_file, str(AFTER + attempt)],
            stdout=subprocess.PIPE,
        )
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"ready\n"
        # A first read takes one to three seconds, later ones fractions of one.
        time.sleep(chance.uniform(0, 0.6))
        reader.kill()
        reader.wait()
        assert disturbed.bill(NOVEMBER.name)["totals"]["card_seconds"] in (0, right)
        if attempt == 4:
            disturbed.read(AFTER + 5)
            week.testbed.stop("slurmdbd")
            with pytest.raises(SlurmwrapError):
                disturbed.read(AFTER + 600)
            week.testbed.start("slurmdbd")
    for at in (AFTER + 60, AFTER + 60, AFTER + 400):
        disturbed.read(at)
        assert disturbed.bill(NOVEMBER.name) == undisturbed
    disturbed.close()


def test_a_record_that_arrives_late(books: Books) -> None:
    """B18: it ended yesterday and reached slurmdbd after that day was read: the overlap finds
    it; it counts once."""
    books.use_zone("UTC")
    name = Month(12, "UTC").name
    at = AFTER + DAY
    books.read(at)
    before = books.bill(name)["totals"]["card_seconds"]
    end = at - DAY + HOUR
    insert_jobs(
        books.testbed,
        [PastJob(FIRST_ID + 9000, "swt-bob", "nlp", end - 100, end, "h800", 2, nodes="gpu2")],
    )
    for _ in range(2):
        books.read(at + 300)
        assert books.bill(name)["totals"]["card_seconds"] == before + 200


def test_a_run_that_slurmdbd_changed_afterwards(books: Books) -> None:
    """B20: a job that slurmdbd believed to run, found dead after days and closed where it began,
    uses nothing, though no window of a day holds its end."""
    books.use_zone("UTC")
    name = Month(12, "UTC").name
    at = AFTER + 2 * DAY
    before = books.bill(name)["totals"]["card_seconds"]
    job = FIRST_ID + 9001
    start = at - 40 * HOUR
    lost = PastJob(job, "swt-bob", "nlp", start, 0, "h800", 1, state="RUNNING", nodes="gpu2")
    insert_jobs(books.testbed, [lost])
    books.read(at)
    assert books.bill(name)["in_flight"]["card_seconds"] > 0
    books.testbed.run_as("root", ["sacctmgr", "-i", "show", "runawayjobs"], input="y\n", check=True)
    books.read(at + 300)
    assert books.bill(name)["in_flight"]["card_seconds"] == 0
    assert books.bill(name)["totals"]["card_seconds"] == before


def test_offline_equals_online(books: Books) -> None:
    """The real commands: `slurmwrap bill` asked of the service, and made from a dump of sacct
    with local times, agree in every line, in a month with a clock change."""
    month = Month(10, "Europe/Berlin")
    site = books.site
    books.use_zone(month.zone, month.prices())
    # As if the service had read on since then; it needs not read a year for this.
    books.service.store.records.set_watermark("slurmdbd", int(time.time()))
    for path in (site.folder / "var").iterdir():
        shutil.chown(path, SERVICE_USER)
    site.start_service()
    books.testbed.wait_for(lambda: site.readyz()[0] == 200, 30, "the service is ready")
    online = site.slurmwrap("swt-admin", "bill", "--month", month.name, "--json", check=True)
    site.stop("serve")
    # Local times: sacct cuts what SLURM_TIME_FORMAT may add to them (seen on 22.05).
    window = ("-S", f"{month.name}-01", "-E", f"{Month(11, month.zone).name}-01")
    dump = books.testbed.run_as(
        "root",
        ["sacct", "-P", "-D", "-a", *window, "--format=ALL"],
        env={"TZ": month.zone},
        check=True,
    ).stdout
    offline = site.slurmwrap(
        "swt-alice", "bill", "--month", month.name, "--json", "--sacct", "-",
        "--prices", str(site.folder / "etc/prices.toml"), input=dump, check=True,
    )  # fmt: skip
    right = count_lines(books.rows(month.start, month.end), month)
    assert lines_of(json.loads(online.stdout)) == right
    assert lines_of(json.loads(offline.stdout)) == right
    assert json.loads(offline.stdout) == json.loads(online.stdout)


def test_a_user_removed_from_slurmdbd(week: Books) -> None:
    """B26: removed, and an account moved, before the records were read: charged by the names at
    run time, as before."""
    before = week.bill(NOVEMBER.name)
    assert ("vision", "swt-dave") in seconds_by_user(before)
    for words in (
        ("delete", "user", "swt-dave"),
        ("modify", "account", "nlp", "set", "parent=physics"),
    ):
        week.testbed.run_as("root", ["sacctmgr", "-i", *words], check=True)
    late = open_week(week.testbed, "late")
    late.read()
    assert late.bill(NOVEMBER.name) == before
    late.close()
