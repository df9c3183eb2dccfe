"""A dump of the real sacct is billed to the second, whatever its jobs are called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from testbed.cluster import Testbed

pytestmark = pytest.mark.cluster

ALICE = "swt-alice"
BERLIN = ZoneInfo("Europe/Berlin")
NAMES = [b"plain", b"a|b", b"c\nd|e\r", "测试".encode(), b"\xff;x"]


def test_hostile_names_in_a_real_dump(testbed: Testbed) -> None:
    """B13: jobs with delimiters, newlines and other bytes in their names are one record each;
    the bill equals ElapsedRaw times cards as sacct says them without names."""
    jobs = [
        testbed.submit(
            ALICE,
            *("--output=/dev/null", "--time=5", "--mem=50", f"--gpus={1 + number % 2}"),
            f"--job-name={os.fsdecode(name)}",
            wrap="sleep 2",
        )
        for number, name in enumerate(NAMES)
    ]
    ids = ",".join(map(str, jobs))

    def ended() -> list[dict[str, str]]:
        rows = testbed.sacct("-X", "-D", "-j", ids, "--format=JobIDRaw,State,ElapsedRaw,AllocTRES")
        done = [row for row in rows if row["State"] == "COMPLETED"]
        return done if len(done) == len(jobs) else []

    rows = testbed.wait_for(ended, timeout=120, what="the jobs' records")
    right = sum(
        int(row["ElapsedRaw"])
        * int(dict(entry.split("=") for entry in row["AllocTRES"].split(","))["gres/gpu"])
        for row in rows
    )
    fields = "JobIDRaw,Account,User,JobName,Partition,QOS,State,Start,End,ElapsedRaw,AllocTRES"
    dump = testbed.run_as(
        "root",
        ["sacct", "-P", "-D", "-j", ids, f"--format={fields}"],  # with steps
        env={"TZ": "Europe/Berlin"},
        check=True,
    ).stdout
    month = f"{datetime.now(BERLIN):%Y-%m}"
    done = subprocess.run(
        [
            *(str(Path(sys.prefix) / "bin/slurmwrap"), "bill", "--month", month, "--json"),
            *("--sacct", "-", "--timezone", "Europe/Berlin"),
        ],
        input=os.fsencode(dump),
        env={"PATH": "/usr/bin:/bin", "SLURMWRAP_CONFIG": os.devnull},
        capture_output=True,
        timeout=60,
        check=True,
    )
    bill = json.loads(done.stdout)
    billed = {
        "card_seconds": bill["totals"]["card_seconds"],
        "jobs": sum(line["jobs"] for line in bill["unpriced"]),
        "rejected": bill["rejected_records"],
    }
    assert billed == {"card_seconds": right, "jobs": len(jobs), "rejected": 0}
