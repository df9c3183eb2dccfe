"""slurmwrapd serve and its agents as real processes, broken and mended while jobs run."""

from __future__ import annotations

import itertools
import json
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.cards import find_index, reset_card, set_card
from testbed.cluster import Testbed
from testbed.site import Site

pytestmark = pytest.mark.cluster

ALICE, BOB, CAROL, DAVE, ADMIN = "swt-alice", "swt-bob", "swt-carol", "swt-dave", "swt-admin"
MakeSite = Callable[..., Site]

# Two hours as 16 s: what has to pass here passes for real.
WINDOW, WARN_AFTER, GRACE = 16, 10, 5
RULES = {
    "idle-gpu": {
        "mode": "enforce",
        "window": f"{WINDOW}s",
        "warn_after": f"{WARN_AFTER}s",
        "grace": f"{GRACE}s",
    }
}
SETTINGS = {"agents": {"interval": "1s"}, "accounting": {"interval": "2s"}}


@pytest.fixture
def make_site(testbed: Testbed) -> Iterator[MakeSite]:
    made: list[Site] = []

    def make(**options: Any) -> Site:
        options = {"rules": RULES, "settings": SETTINGS, **options}
        site = Site.prepare(testbed, name="service", **options)
        made.append(site)
        site.start()
        return site

    yield make
    for user in (ALICE, BOB, CAROL):
        testbed.run_as("root", ["scancel", f"--user={user}"])
    for site in made:
        site.stop()
    testbed.wait_for(
        lambda: not testbed.run_as("root", ["squeue", "-h"]).stdout.strip(), 30, "no job is left"
    )


def rows(site: Site, sql: str, *parameters: int) -> list[tuple[Any, ...]]:
    """What the service's database holds."""
    with sqlite3.connect(f"file:{site.database}?mode=ro", uri=True) as connection:
        found = connection.execute(sql, parameters).fetchall()
    connection.close()
    return found


def idle_job(site: Site, user: str = BOB, gpus: str = "h800:1") -> int:
    account = {ALICE: "vision", BOB: "nlp", CAROL: "physics"}[user]
    return site.submit(
        user, "--account", account, "--gpus", gpus, "--time", "20", "--", "sleep", "900"
    )


def await_warning(site: Site, job: int) -> float:
    """When the warning's mail arrived (epoch seconds)."""
    (mail, *_) = site.testbed.wait_for(
        lambda: site.mails(subject=f"Job {job} "), 60, f"job {job} is warned"
    )
    return mail.message["Date"].datetime.timestamp()


def test_a_killed_service_loses_and_doubles_nothing(testbed: Testbed, make_site: MakeSite) -> None:
    """kill -9 in the middle of a run: every reading once, every card-second once, and nothing
    is cancelled before a warning that came after the restart has had its grace."""
    site = make_site()
    job = idle_job(site)
    testbed.wait_for(lambda: rows(site, "SELECT 1 FROM reading LIMIT 1"), 30, "readings arrive")
    time.sleep(3)
    site.kill("serve")
    before = {row[:3] for row in rows(site, "SELECT node, card_index, ended_at FROM reading")}
    # Longer than the window: nobody watches, the agents keep what they see.
    time.sleep(WINDOW + 4)
    assert testbed.job_state(job) == "RUNNING"
    restarted = time.time()
    site.start_service()
    warned = await_warning(site, job)
    assert warned >= int(restarted)
    testbed.wait_for(lambda: testbed.job_state(job) != "RUNNING", 60, "the job is cancelled")
    record = testbed.wait_for(
        lambda: [
            row
            for row in testbed.sacct("-X", "-j", str(job), "--format=Start,End,ElapsedRaw,State")
            if row["End"].isdecimal()
        ],
        30,
        "the record has an end",
    )[0]
    assert int(record["End"]) >= int(warned) + GRACE

    kept = rows(site, "SELECT node, card_index, ended_at, started_at FROM reading")
    assert before <= {row[:3] for row in kept}
    spans = sorted((node, card, start, end) for node, card, end, start in kept)
    overlaps = [
        (one, two)
        for one, two in itertools.pairwise(spans)
        if one[:2] == two[:2] and two[2] < one[3]
    ]
    assert overlaps == []
    # The agents' spool closed the gap: the job was seen all the time it ran.
    status = testbed.wait_for(
        lambda: (found := site.status(BOB, job))["ended_at"] == int(record["End"]) and found,
        30,
        "the service knows the end",
    )
    assert status["card_seconds"] == int(record["ElapsedRaw"])
    assert status["gaps"] == []


def test_an_agent_that_was_away_costs_no_job(testbed: Testbed, make_site: MakeSite) -> None:
    """V2, A8: not seen for longer than the window: not cancelled, and the gap is shown."""
    site = make_site()
    job = idle_job(site)
    testbed.wait_for(lambda: rows(site, "SELECT 1 FROM reading LIMIT 1"), 30, "readings arrive")
    time.sleep(3)
    site.kill("agent-gpu2")
    stopped = time.time()
    time.sleep(WINDOW + 4)
    assert testbed.job_state(job) == "RUNNING"
    assert site.mails(subject=f"Job {job} ") == []
    status = site.status(BOB, job)
    (view,) = [rule for rule in status["rules"] if rule["rule"] == "idle-gpu"]
    assert view["cancel_at"] is None
    assert "nothing can be said" in view["text"]
    site.start_agent("gpu2")
    back = time.time()
    testbed.wait_for(
        lambda: rows(site, "SELECT 1 FROM reading WHERE ended_at > ? AND node = 'gpu2'", int(back)),
        30,
        "the agent is back",
    )
    status = site.status(BOB, job)
    (gap,) = status["gaps"]
    assert gap[0] <= stopped
    assert gap[1] >= int(stopped) + WINDOW
    text = site.slurmwrap(BOB, "status", str(job), check=True).stdout
    assert "not seen" in text or "gap" in text
    # The clock began anew: the whole window must be seen again first.
    assert testbed.job_state(job) == "RUNNING"
    warned = await_warning(site, job)
    assert warned >= back + WARN_AFTER - 2


def test_an_unreadable_card_is_unknown_and_billed(testbed: Testbed, make_site: MakeSite) -> None:
    """R1, R2: a MIG card has no utilisation, a lost one has nothing: never 0, never cancelled,
    still billed; the other cards of the node are read on."""
    site = make_site()
    state = Path(testbed.facts["nodes"]["gpu1"]["nvml_state"])
    mig, lost = (find_index(state, minor) for minor in (0, 1))
    set_card(state, mig, mig=1)
    set_card(state, lost, **{"error.*": 15})
    try:
        first = idle_job(site, ALICE, "a100:1")
        second = idle_job(site, ALICE, "a100:1")
        third = idle_job(site, ALICE, "a100:1")
        testbed.wait_for(
            lambda: testbed.job_state(third) in ("", "CANCELLED", "COMPLETING"),
            90,
            "the readable idle job is cancelled",
        )
        statuses = [site.status(ALICE, job) for job in (first, second)]
    finally:
        reset_card(state, mig)
        reset_card(state, lost)
    assert [testbed.job_state(job) for job in (first, second)] == ["RUNNING", "RUNNING"]
    assert [status["cards"][0]["status"] for status in statuses] == ["not_supported", "lost"]
    assert [status["cards"][0]["mean"] for status in statuses] == [None, None]
    for status in statuses:
        assert set(status["cards"][0]["recent"]) == {None}
        assert status["measured_card_seconds"] == 0
        assert status["card_seconds"] > WINDOW


def test_everybody_sees_what_is_theirs(testbed: Testbed, make_site: MakeSite) -> None:
    """The uid that MUNGE proves decides: owner, coordinator and administrator see a job,
    another user is told that there is none; bills are cut the same way."""
    site = make_site()
    job = site.submit(
        BOB, "--account", "nlp", "--gpus", "h800:1", "--time", "20", "--", "testbed-burn",
        "--util", "90", "--seconds", "300",
    )  # fmt: skip
    testbed.wait_for(lambda: rows(site, "SELECT 1 FROM run WHERE job_id = ?", job), 30, "seen")
    for user in (BOB, DAVE, ADMIN):
        assert site.status(user, job)["user"] == BOB
    refused = site.slurmwrap(CAROL, "status", str(job))
    assert refused.returncode == 12
    assert "Traceback" not in refused.stderr
    listed = site.slurmwrap(CAROL, "status", "--user", BOB)
    assert listed.returncode == 13

    def billed(user: str) -> set[str]:
        month = time.strftime("%Y-%m", time.gmtime(time.time() + 8 * 3600))
        done = site.slurmwrap(user, "bill", "--month", month, "--format", "json", check=True)
        return {line["user"] for line in json.loads(done.stdout)["lines"]}

    testbed.wait_for(lambda: BOB in billed(ADMIN), 30, "the job is on the bill")
    assert BOB in billed(DAVE)
    assert billed(BOB) == {BOB}
    assert BOB not in billed(CAROL)


def test_only_a_nodes_own_agent_may_push_readings(testbed: Testbed, make_site: MakeSite) -> None:
    """An ordinary user who runs an agent is refused, and nothing of it is stored."""
    site = make_site()
    site.stop("agent-gpu1")
    facts = testbed.facts["nodes"]["gpu1"]
    before = rows(site, "SELECT count(*) FROM reading WHERE node = 'gpu1'")
    child = testbed.start_as(
        ALICE,
        [str(site.programs / "slurmwrapd"), "agent", "--node", "gpu1"],
        env={
            "SLURMWRAP_CONFIG": str(site.config_file),
            "LD_LIBRARY_PATH": facts["nvml_library"],
            "SLURMWRAP_AGENTS_SPOOL_DIR": str(testbed.instance.home(ALICE) / "spool"),
        },
    )
    testbed.wait_for(lambda: "may not push readings" in site.log("serve"), 30, "it was refused")
    child.send_signal(signal.SIGTERM)
    child.wait(timeout=30)
    assert rows(site, "SELECT count(*) FROM reading WHERE node = 'gpu1'") == before


@pytest.mark.parametrize("daemon", ["slurmctld", "slurmdbd"])
def test_slurm_away_is_seen_and_nothing_is_invented(
    testbed: Testbed, make_site: MakeSite, daemon: str
) -> None:
    """While Slurm is away /readyz and check say so, running jobs stay known; then all is well."""
    # Slurm's commands retry for 20 s by themselves before they say that nobody answers.
    site = make_site(settings={**SETTINGS, "slurm": {"command_timeout": "5s"}})
    job = site.submit(
        BOB, "--account", "nlp", "--gpus", "h800:1", "--time", "20", "--", "testbed-burn",
        "--util", "90", "--seconds", "300",
    )  # fmt: skip
    testbed.wait_for(
        lambda: rows(site, "SELECT 1 FROM record WHERE job_id = ?", job), 30, "its record is read"
    )
    task = {"slurmctld": "collect", "slurmdbd": "accounting"}[daemon]
    testbed.stop(daemon)
    try:
        testbed.wait_for(lambda: site.readyz()[0] == 503, 60, "/readyz says not ready")
        answer = site.readyz()[1]
        (check,) = [item for item in answer["checks"] if item["name"] == task]
        assert not check["ok"]
        done = site.slurmwrapd(ADMIN, "check")
        assert done.returncode == 70
        assert rows(site, "SELECT ended_at FROM run WHERE job_id = ?", job) == [(None,)]
    finally:
        testbed.start(daemon)
    testbed.wait_for(lambda: site.readyz()[0] == 200, 60, "/readyz says ready")
    assert testbed.job_state(job) == "RUNNING"


def test_a_budget_alert_is_sent_once(testbed: Testbed, make_site: MakeSite) -> None:
    """80 % of a budget: one mail to the account's coordinator, none again after a restart."""
    site = make_site(budgets=({"account": "lab", "card_hours": "0.002"},))
    site.submit(
        BOB, "--account", "nlp", "--gpus", "h800:2", "--time", "20", "--", "testbed-burn",
        "--util", "90", "--seconds", "300",
    )  # fmt: skip
    testbed.wait_for(lambda: site.mails(subject="80 %"), 60, "the alert arrives")
    site.kill("serve")
    site.start_service()
    testbed.wait_for(
        lambda: json.loads(
            site.slurmwrap(BOB, "budget", "--json", check=True).stdout
        )["budgets"][0]["used_percent"] > 300,
        60,
        "the budget was checked again",
    )  # fmt: skip
    (mail,) = site.mails(subject="80 %")
    assert DAVE in mail.to


def test_a_wrong_reload_keeps_the_old_settings(testbed: Testbed, make_site: MakeSite) -> None:
    """SIGHUP with a wrong rules file: the reason is logged, the old rules stay in force."""
    site = make_site()
    right = (site.folder / "etc" / "rules.toml").read_text()
    site.write("rules.toml", '[idle-gpu]\nwindwo = "2h"\n')
    site.running["serve"].send_signal(signal.SIGHUP)
    testbed.wait_for(lambda: "old settings stay in force" in site.log("serve"), 30, "refused")
    assert "idle-gpu.windwo" in site.log("serve")
    site.write("rules.toml", right)
    site.running["serve"].send_signal(signal.SIGHUP)
    testbed.wait_for(lambda: "were read again" in site.log("serve"), 30, "taken")
    testbed.wait_for(lambda: site.readyz()[0] == 200, 60, "/readyz says ready")


def test_one_service_owns_the_database(testbed: Testbed, make_site: MakeSite) -> None:
    """A second instance ends with its own exit code; the first is not disturbed."""
    site = make_site()
    second = site.slurmwrapd("slurmwrap", "serve", env={"SLURMWRAP_DAEMON_BIND": "127.0.0.1:1"})
    assert second.returncode == 72, second.stderr
    other = site.slurmwrapd(ALICE, "serve")
    assert other.returncode == 10
    assert "daemon.user" in other.stderr
    testbed.wait_for(lambda: site.readyz()[0] == 200, 60, "/readyz says ready")


def test_term_ends_it_cleanly(testbed: Testbed, make_site: MakeSite) -> None:
    """SIGTERM: exit 0, the database closed."""
    site = make_site()
    child = site.running["serve"]
    site.stop("serve")
    assert child.returncode == 0, site.log("serve")
    assert "Traceback" not in site.log("serve")
    assert not site.database.with_name(site.database.name + "-wal").exists()
