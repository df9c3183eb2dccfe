"""`./dev demo`: the main job, end to end, on a real Slurm with simulated cards."""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from testbed.cluster import Testbed
from testbed.history import PastJob, await_rollup, insert_history
from testbed.site import Site

ALICE, BOB = "swt-alice", "swt-bob"
ZONE = ZoneInfo("Asia/Shanghai")

TRAIN = """\
import time

from slurmwrap import log_metrics

# Four epochs that improve, then a plateau.
for epoch, accuracy in enumerate([0.31, 0.52, 0.66, 0.71] + [0.71] * 60):
    time.sleep(3)
    log_metrics(epoch=epoch, val_acc=accuracy)
    print(f"epoch {epoch}: val_acc {accuracy}", flush=True)
"""


@dataclass(frozen=True)
class Jobs:
    """Job ids of the demo."""

    busy: int
    idle: int
    plateau: int


def main() -> int:
    """Run the demo; 0 when everything it claims was seen."""
    name = os.environ.get("SLURMWRAP_TESTBED_NAME", "demo")
    begun = time.monotonic()
    _say("1. A throw-away Slurm: munge, MariaDB, slurmdbd, slurmctld, two nodes of four cards")
    testbed = Testbed.up(name)
    site = None
    try:
        insert_history(testbed, _last_month(), since=_moment("2026-09-30T00:00:00+00:00"))
        site = _prepare_site(testbed)
        site.start()
        print(f"   up after {time.monotonic() - begun:.0f} s; slurmwrapd serves at"
              f" {site.settings['daemon']['url']}, an agent reads each node")  # fmt: skip
        _show_demo(testbed, site)
    finally:
        if site is not None:
            site.stop()
        if not os.environ.get("SLURMWRAP_DEMO_KEEP"):
            testbed.down()
    print(f"\nThat took {time.monotonic() - begun:.0f} s. Where to go next:")
    print("  docs/install.md   three steps to install it on a cluster, rules in observe first")
    print("  ./dev testbed up  keep such a Slurm and try the commands yourself")
    print("  ./dev test        everything shown here, and more, as tests")
    return 0


def _show_demo(testbed: Testbed, site: Site) -> None:
    data = _make_data(testbed)
    _say("2. Three jobs, through slurmwrap submit; the script is one readable page")
    train = _write_training(testbed)
    _show_script(site, data)
    jobs = _submit(site, data, train)
    _say("3. Staged by one job, reused by the next")
    _show_staging(testbed, site, data, jobs)
    _say("4. The idle job: warned by mail, then cancelled, with the reason in sacct")
    _show_idle(testbed, site, jobs)
    _say("5. The plateaued job: stopped after three evaluations without improvement")
    _show_plateau(testbed, site, jobs)
    _say("6. The busy job survives; this is what its owner sees")
    _show_busy(testbed, site, jobs)
    _say("7. 80 % of a budget is used: its coordinator gets a mail")
    _show_budget(testbed, site)
    _say("8. The bill equals Slurm's own figures to the second")
    _show_bill(testbed, site, jobs)


def _prepare_site(testbed: Testbed) -> Site:
    return Site.prepare(
        testbed,
        budgets=(
            {"account": "lab", "card_hours": "0.06", "thresholds": [80]},
            {"account": "physics", "money": "1000.00", "thresholds": [50, 80, 100]},
        ),
    )


def _make_data(testbed: Testbed) -> Path:
    folder = testbed.instance.home(ALICE) / "imagenet-subset"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number in range(200):
        (folder / f"shard-{number:03}.tar").write_bytes(os.urandom(64 * 1024))
    for path in (folder, *folder.iterdir()):
        shutil.chown(path, ALICE)
    return folder


def _write_training(testbed: Testbed) -> Path:
    path = testbed.instance.home(ALICE) / "train.py"
    path.write_text(TRAIN, encoding="utf-8")
    shutil.chown(path, ALICE)
    return path


def _show_script(site: Site, data: Path) -> None:
    done = site.slurmwrap(
        ALICE, "submit", "--dry-run", "--name", "resnet 50", "--account", "vision",
        "--gpus", "a100:2", "--time", "10", "--stage", str(data), "--", "python", "train.py",
        check=True,
    )  # fmt: skip
    print(_indent(done.stdout))


def _submit(site: Site, data: Path, train: Path) -> Jobs:
    burn = "testbed-burn"
    busy = site.submit(
        ALICE, "--name", "resnet 50", "--account", "vision", "--gpus", "a100:2", "--time", "10",
        "--output", "busy-%j.log", "--stage", str(data), "--",
        burn, "--util", "95", "--seconds", "300",
    )  # fmt: skip
    idle = site.submit(
        BOB, "--name", "forgotten notebook", "--account", "nlp", "--gpus", "h800:1",
        "--time", "30", "--output", "idle-%j.log", "--", "sleep", "1500",
    )  # fmt: skip
    plateau = site.submit(
        ALICE, "--name", "fine-tuning", "--account", "vision", "--gpus", "h800:1", "--time", "30",
        "--output", "plateau-%j.log", "--watch", "val_acc:max", "--",
        "sh", "-c", f'{burn} --util 90 --seconds 600 & exec "$0" "$1"',
        sys.executable, str(train),
    )  # fmt: skip
    print(f"   {busy} busy on two a100, {idle} idle on one h800, {plateau} training on one h800")
    return Jobs(busy, idle, plateau)


def _show_staging(testbed: Testbed, site: Site, data: Path, jobs: Jobs) -> None:
    home = testbed.instance.home(ALICE)
    first = _await_lines(testbed, home / f"busy-{jobs.busy}.log", data.name, 1)
    again = site.submit(
        ALICE, "--name", "second", "--account", "vision", "--gpus", "a100:1", "--time", "5",
        "--output", "again-%j.log", "--stage", str(data), "--",
        "sh", "-c", 'ls "$SLURMWRAP_DATA" | wc -l',
    )  # fmt: skip
    testbed.wait_for(
        lambda: _sacct(testbed, again)["State"] == "COMPLETED", 60, "the second job has ended"
    )
    second = (home / f"again-{again}.log").read_text(encoding="utf-8").splitlines()
    print(_indent("\n".join([f"job {jobs.busy}:", *first, f"job {again}:", *second])))


def _show_idle(testbed: Testbed, site: Site, jobs: Jobs) -> None:
    (warning,) = testbed.wait_for(
        lambda: site.mails(to=BOB, subject=str(jobs.idle)), 90, "the idle job's owner is warned"
    )[:1]
    print(_indent(f"To: {warning.to}\nSubject: {warning.subject}\n\n{warning.body}"))
    print(_indent(site.slurmwrap(BOB, "status", str(jobs.idle), check=True).stdout))
    _await_cancel(testbed, site, jobs.idle, BOB)


def _show_plateau(testbed: Testbed, site: Site, jobs: Jobs) -> None:
    _await_cancel(testbed, site, jobs.plateau, ALICE)
    log = testbed.instance.home(ALICE) / f"plateau-{jobs.plateau}.log"
    lines = log.read_text(encoding="utf-8").splitlines()
    print(_indent("the end of its own log:\n" + "\n".join(lines[-8:])))


def _show_busy(testbed: Testbed, site: Site, jobs: Jobs) -> None:
    state = testbed.job_state(jobs.busy)
    if state != "RUNNING":
        raise RuntimeError(f"the busy job is {state or 'gone'}, not RUNNING")
    print(_indent(site.slurmwrap(ALICE, "status", str(jobs.busy), check=True).stdout))


def _show_budget(testbed: Testbed, site: Site) -> None:
    (mail,) = testbed.wait_for(
        lambda: site.mails(to="swt-dave", subject="80 %"), 120, "the budget alert has arrived"
    )[:1]
    print(_indent(f"To: {mail.to}\nSubject: {mail.subject}\n\n{mail.body}"))
    print(_indent(site.slurmwrap(ALICE, "budget", check=True).stdout))


def _show_bill(testbed: Testbed, site: Site, jobs: Jobs) -> None:
    testbed.run_as(ALICE, ["scancel", str(jobs.busy)], check=True)
    month = datetime.now(ZONE).strftime("%Y-%m")
    _await_settled(testbed, site, month)
    print(_indent(site.slurmwrap("swt-admin", "bill", "--month", month, check=True).stdout))
    ours = _bill_seconds(site, month)
    theirs = _sacct_seconds(testbed, month)
    _compare(f"{month}: our card-seconds", ours, "sacct -D, added up", theirs)
    ours = _bill_seconds(site, "2026-10")
    theirs = _sreport_seconds(testbed, "2026-10")
    print(_indent(site.slurmwrap("swt-admin", "bill", "--month", "2026-10", check=True).stdout))
    _compare("2026-10: our card-seconds", ours, "sreport, per user", theirs)


def _await_cancel(testbed: Testbed, site: Site, job: int, user: str) -> None:
    testbed.wait_for(
        lambda: _sacct(testbed, job)["State"].startswith("CANCELLED"), 120, f"{job} is cancelled"
    )
    row = _sacct(testbed, job)
    print(_indent(f"sacct: {job} {row['State']}, {row['ElapsedRaw']} s\n  {row['AdminComment']}"))
    if "slurmwrap" not in row["AdminComment"]:
        raise RuntimeError(f"AdminComment of {job} does not hold the reason")
    testbed.wait_for(
        lambda: [mail for mail in site.mails(to=user) if "cancelled" in mail.subject], 60,
        "the owner is told of the cancel",
    )  # fmt: skip


def _sacct(testbed: Testbed, job: int) -> dict[str, str]:
    rows = testbed.sacct("-X", "-j", str(job), "--format=State,ElapsedRaw,AdminComment")
    return rows[0] if rows else {"State": "", "ElapsedRaw": "", "AdminComment": ""}


def _await_settled(testbed: Testbed, site: Site, month: str) -> None:
    testbed.wait_for(
        lambda: not testbed.run_as("root", ["squeue", "-h"]).stdout.strip(), 60, "all jobs ended"
    )
    testbed.wait_for(
        lambda: _bill_seconds(site, month) == _sacct_seconds(testbed, month),
        40, "slurmwrapd has read slurmdbd's last records", interval=1,
    )  # fmt: skip


def _bill_seconds(site: Site, month: str) -> dict[tuple[str, str], int]:
    import json

    done = site.slurmwrap("swt-admin", "bill", "--month", month, "--format", "json", check=True)
    statement: dict[str, Any] = json.loads(done.stdout)
    sums: dict[tuple[str, str], int] = {}
    for line in statement["lines"] + statement["unpriced"]:
        key = (line["account"], line["user"])
        sums[key] = sums.get(key, 0) + line["card_seconds"]
    return sums


def _sacct_seconds(testbed: Testbed, month: str) -> dict[tuple[str, str], int]:
    """Card-seconds per account and user, added up from sacct by nothing of ours."""
    start, end = _month(month)
    sums: dict[tuple[str, str], int] = {}
    rows = testbed.sacct(
        "-a", "-D", "-X", "-S", _iso(start), "-E", _iso(end),
        "--format=Account,User,Start,ElapsedRaw,AllocTRES",
    )  # fmt: skip
    for row in rows:
        tres = dict(item.split("=") for item in row["AllocTRES"].split(",") if item)
        if not row["Start"].isdecimal() or "gres/gpu" not in tres:
            continue
        begin = int(row["Start"])
        seconds = min(begin + int(row["ElapsedRaw"]), end) - max(begin, start)
        key = (row["Account"], row["User"])
        sums[key] = sums.get(key, 0) + max(0, seconds) * int(tres["gres/gpu"])
    return {key: value for key, value in sums.items() if value}


def _sreport_seconds(testbed: Testbed, month: str) -> dict[tuple[str, str], int]:
    start, end = _month(month)
    await_rollup(testbed, end)
    done = testbed.run_as(
        "root",
        ["sreport", "-nP", "-t", "Seconds", "cluster", "AccountUtilizationByUser",
         f"Start={_iso(start)}", f"End={_iso(end)}", "-T", "gres/gpu",
         "Format=Account,Login,Used"],
        env={"TZ": "UTC"}, check=True,
    )  # fmt: skip
    rows = (line.split("|") for line in done.stdout.splitlines())
    return {(account, user): int(used) for account, user, used in rows if user}


def _compare(
    our_name: str, ours: dict[tuple[str, str], int], their_name: str,
    theirs: dict[tuple[str, str], int],
) -> None:  # fmt: skip
    print(f"   {'account':10} {'user':12} {our_name:>26} {their_name:>22}")
    for account, user in sorted({*ours, *theirs}):
        key = (account, user)
        print(f"   {account:10} {user:12} {ours.get(key, 0):>26} {theirs.get(key, 0):>22}")
    if ours != theirs:
        raise RuntimeError("the bill differs from Slurm's own figures")
    print(f"   equal to the second: {sum(ours.values())} card-seconds")


def _last_month() -> list[PastJob]:
    """October as a small lab has it: a requeue, a run over the end of the month, two nodes."""
    return [
        PastJob(90001, ALICE, "vision", _moment("2026-10-03T01:00:00+00:00"),
                _moment("2026-10-03T05:30:07+00:00"), "a100", 4),
        PastJob(90002, BOB, "nlp", _moment("2026-10-05T10:00:00+00:00"),
                _moment("2026-10-05T12:00:00+00:00"), "h800", 1, nodes="gpu2", state="REQUEUED"),
        PastJob(90002, BOB, "nlp", _moment("2026-10-05T13:00:00+00:00"),
                _moment("2026-10-05T14:00:00+00:00"), "h800", 1, nodes="gpu2",
                submit=_moment("2026-10-05T12:00:00+00:00")),
        PastJob(90003, "swt-carol", "physics", _moment("2026-10-20T03:14:15+00:00"),
                _moment("2026-10-20T09:26:53+00:00"), "h800", 4, nodes="gpu2", state="TIMEOUT"),
        PastJob(90004, BOB, "nlp", _moment("2026-10-31T04:00:00+00:00"),
                _moment("2026-11-01T04:00:00+00:00"), "a100", 2),
    ]  # fmt: skip


def _await_lines(testbed: Testbed, path: Path, word: str, count: int) -> list[str]:
    def find() -> list[str]:
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [line for line in lines if word in line]
        return found if len(found) >= count else []

    return testbed.wait_for(find, 60, f"{path.name} tells of {word!r}")


def _month(month: str) -> tuple[int, int]:
    year, number = map(int, month.split("-"))
    after = (year + 1, 1) if number == 12 else (year, number + 1)
    first = datetime(year, number, 1, tzinfo=ZONE)
    last = datetime(*after, 1, tzinfo=ZONE)
    return int(first.timestamp()), int(last.timestamp())


def _iso(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _moment(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def _say(text: str) -> None:
    print(f"\n== {text}", flush=True)


def _indent(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.rstrip().splitlines())


if __name__ == "__main__":
    raise SystemExit(main())
