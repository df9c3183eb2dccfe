"""Reading slurmdbd's records: what is asked, how pages are merged, what is not lost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slurmwrap.errors import SlurmCommandError, SlurmOutputError, SlurmUnavailableError
from slurmwrap.slurm.accounting import AccountingRecords, page_window

DAY = 1796083200
"""2026-12-01T00:00:00Z, by `date -u -d 2026-12-01 +%s`."""

FIELDS = [
    "JobIDRaw",
    "JobID",
    "Cluster",
    "User",
    "Account",
    "Partition",
    "QOS",
    "State",
    "Submit",
    "Start",
    "End",
    "ElapsedRaw",
    "Suspended",
    "TimelimitRaw",
    "NodeList",
    "AllocTRES",
    "DBIndex",
    "Reservation",
    "WCKey",
    "JobName",
]


def row(job_id: int, name: str = "train", **changes: str) -> str:
    """One row with @ for the delimiter, as sacct is asked for it."""
    values = {
        "JobIDRaw": str(job_id),
        "JobID": str(job_id),
        "Cluster": "testbed",
        "User": "alice",
        "Account": "vision",
        "Partition": "gpu",
        "QOS": "normal",
        "State": "COMPLETED",
        "Submit": str(DAY),
        "Start": str(DAY + 10),
        "End": str(DAY + 3610),
        "ElapsedRaw": "3600",
        "Suspended": "00:00:00",
        "TimelimitRaw": "120",
        "NodeList": "gpu1",
        "AllocTRES": "billing=1,cpu=1,gres/gpu:a100=2,gres/gpu=2,mem=100M,node=1",
        "DBIndex": "16147243821040282624",
        "Reservation": "",
        "WCKey": "",
        "JobName": name,
    }
    return "@".join((values | changes)[field] for field in FIELDS) + "\n"


@pytest.fixture
def records(slurm, recorded: Path) -> AccountingRecords:
    """A reader whose sacct prints DAY.out with the delimiter that it was asked for."""
    slurm.answer("sacct", recorded / "sacct-helpformat.txt", when="--helpformat")
    return AccountingRecords(slurm.commands(), ("gpu",))


def set_days(slurm, **days: str) -> None:
    """What sacct prints for a page that starts on a day (``d01``: 1 December)."""
    for day, text in days.items():
        source = slurm.folder / f"{day}.rows"
        source.write_text(text)
        slurm.answer(
            "sacct",
            when=f"--starttime=2026-12-{day[1:]}",
            script=(
                'for word; do case "$word" in --delimiter=*) mark=${word#--delimiter=};; esac;'
                f' done; sed "s/@/$mark/g" {source}'
            ),
        )


def test_what_sacct_is_asked(slurm, records: AccountingRecords) -> None:
    """All users, every run of a requeued job, no steps, no -T, ISO times; once without states
    and once for what was on nodes, since each leaves out what the other has."""
    set_days(slurm, d01="")
    batch = records.read_records(DAY, DAY + 600)
    assert batch.records == ()
    calls = [call for call in slurm.calls("sacct") if "--helpformat" not in call]
    for call in calls:
        assert {"--allusers", "--duplicates", "--allocations", "--noheader"} <= set(call.split())
        assert "--starttime=2026-12-01T00:00:00 --endtime=2026-12-01T00:10:00" in call
        assert not re.search(r" -s|--truncate| -T", call)
        assert call.endswith("--format=" + ",".join(FIELDS))
    assert [re.findall(r"--state\S*", call) for call in calls] == [[], ["--state=RUNNING"]]


def test_the_delimiter_is_new_each_time(slurm, records: AccountingRecords) -> None:
    """B13: a job name can hold any delimiter that is known before; this one is not."""
    set_days(slurm, d01="")
    for _ in range(2):
        records.read_records(DAY, DAY + 600)
    marks = re.findall("--delimiter=(\x1f[0-9a-f]{16}\x1f)", "\n".join(slurm.calls("sacct")))
    assert len(set(marks)) == len(marks) == 4


def test_a_record_in_full(slurm, records: AccountingRecords) -> None:
    """Every column lands in its field; a 64-bit DBIndex stays text."""
    set_days(slurm, d01=row(8, JobID="2_0", WCKey="p1", Reservation="r"))
    (record,) = records.read_records(DAY, DAY + 600).records
    assert (record.job_id, record.array_job_id, record.array_task_id) == (8, 2, 0)
    assert (record.cluster, record.user, record.account) == ("testbed", "alice", "vision")
    assert (record.submit, record.start, record.end) == (DAY, DAY + 10, DAY + 3610)
    assert (record.elapsed_seconds, record.suspended_seconds) == (3600, 0)
    assert (record.time_limit_seconds, record.nodes) == (7200, "gpu1")
    assert (record.cards, record.wckey, record.reservation) == ({"a100": 2}, "p1", "r")
    assert (record.db_index, record.name) == ("16147243821040282624", "train")


def test_states_that_never_ran_and_that_still_run(slurm, records: AccountingRecords) -> None:
    """B14: `CANCELLED by 1001` with Start None; a running one has no end yet."""
    never = row(
        1,
        State="CANCELLED by 1001",
        Start="None",
        End=str(DAY + 5),
        ElapsedRaw="0",
        NodeList="None assigned",
        AllocTRES="",
    )
    running = row(2, State="RUNNING", End="Unknown", ElapsedRaw="590")
    set_days(slurm, d01=never + running)
    first, second = records.read_records(DAY, DAY + 600).records
    assert (first.state, first.start, first.elapsed_seconds, first.cards) == (
        "CANCELLED",
        None,
        0,
        {},
    )
    assert (second.state, second.start, second.end) == ("RUNNING", DAY + 10, None)


def test_a_hostile_name_is_one_record(slurm, records: AccountingRecords) -> None:
    """B13: newline, |, a control character and a forged record in a job name."""
    forged = row(666).replace("@", "\x1f").rstrip("\n")
    set_days(slurm, d01=row(1, name=f"a|b\n{forged}") + row(2))
    batch = records.read_records(DAY, DAY + 600)
    assert [record.job_id for record in batch.records] == [1, 2]
    assert batch.rejected == ()


def test_long_windows_are_paged_by_day() -> None:
    """Pages end at whole UTC days and leave nothing out."""
    assert list(page_window(DAY - 3600, DAY + 86400 + 60)) == [
        (DAY - 3600, DAY),
        (DAY, DAY + 86400),
        (DAY + 86400, DAY + 86460),
    ]
    assert list(page_window(DAY, DAY)) == []


def test_a_run_on_two_pages_is_one_record(slurm, records: AccountingRecords) -> None:
    """B25: a run over midnight is on both pages; what was read later counts."""
    running = row(1, State="RUNNING", End="Unknown", ElapsedRaw="90000")
    ended = row(1, End=str(DAY + 90010), ElapsedRaw="90000")
    set_days(slurm, d01=running + row(2), d02=ended)
    batch = records.read_records(DAY, DAY + 2 * 86400)
    assert [(record.job_id, record.end) for record in batch.records] == [
        (1, DAY + 90010),
        (2, DAY + 3610),
    ]


def test_two_runs_of_one_job_are_two_records(slurm, records: AccountingRecords) -> None:
    """B6, B21: a requeued job has one id and two starts, and waits for a third."""
    first = row(7, State="REQUEUED", End=str(DAY + 100), ElapsedRaw="90")
    second = row(7, Submit=str(DAY + 100), Start=str(DAY + 200))
    third = row(7, State="PENDING", Submit=str(DAY + 4000), Start="Unknown", End="Unknown")
    set_days(slurm, d01=first + second + third)
    batch = records.read_records(DAY, DAY + 600)
    assert [record.start for record in batch.records] == [DAY + 10, DAY + 200, None]


def test_a_resized_job_is_a_record_per_size(slurm, records: AccountingRecords) -> None:
    """B7: sacct gives both sizes the job's own start (rows as a real 22.05 printed them for a
    job that gave up a node after 2 s and ran 4 s more); the second begins at the change, so
    that their keys differ and no second is told twice."""
    moments = {"Start": str(DAY), "Submit": str(DAY)}
    rows = row(3, **moments, State="RESIZING", End=str(DAY + 2), ElapsedRaw="2")
    moments["Submit"] = str(DAY + 2)
    rows += row(3, **moments, State="CANCELLED by 0", End=str(DAY + 6), ElapsedRaw="6")
    set_days(slurm, d01=rows)
    batch = records.read_records(DAY, DAY + 3600)
    assert [(item.start, item.end, item.elapsed_seconds) for item in batch.records] == [
        (DAY, DAY + 2, 2),
        (DAY + 2, DAY + 6, 4),
    ]


def test_a_record_that_is_not_whole_yet(slurm, records: AccountingRecords) -> None:
    """Rows as a real 22.05 printed them in a job's first seconds, running and ended: without
    partition and name they are left for a later read, for an hour."""
    early = {"Partition": "", "QOS": "Unknown", "name": "allocation", "End": str(DAY + 12)}
    running = {**early, "State": "PENDING", "End": "Unknown", "AllocTRES": "", "ElapsedRaw": "2"}
    set_days(slurm, d01=row(1, **running) + row(2, **early, ElapsedRaw="2") + row(3))
    soon = records.read_records(DAY, DAY + 3612)
    assert [record.job_id for record in soon.records] == [3]
    late = records.read_records(DAY, DAY + 3613)
    assert [record.job_id for record in late.records] == [2, 3]


def test_a_broken_row_is_reported_and_the_others_are_used(
    slurm, records: AccountingRecords
) -> None:
    """B32: what can't be read is named once, also when two pages show it."""
    broken = row(3, AllocTRES="gres/gpu=x")
    set_days(slurm, d01=row(1) + broken + row(2), d02=broken)
    batch = records.read_records(DAY, DAY + 2 * 86400)
    assert [record.job_id for record in batch.records] == [1, 2]
    assert batch.rejected == ("job '3': AllocTRES: 'x' is not a count of generic resources",)


def test_slurmdbd_away_is_not_an_empty_month(slurm, records: AccountingRecords) -> None:
    """Nothing read is an error, also when it happens on the second page."""
    set_days(slurm, d01=row(1))
    words = "sacct: error: Problem talking to the database: Connection refused"
    slurm.answer("sacct", status=1, stderr=words, when="--starttime=2026-12-02")
    with pytest.raises(SlurmUnavailableError, match="slurmdbd"):
        records.read_records(DAY, DAY + 2 * 86400)


def test_a_refused_window_is_an_error(slurm, records: AccountingRecords) -> None:
    """Any other refusal keeps sacct's words."""
    slurm.answer("sacct", status=1, stderr="sacct: error: too wide of a date range", when="-S")
    slurm.answer("sacct", status=1, stderr="sacct: error: too wide of a date range", when="--star")
    with pytest.raises(SlurmCommandError, match="too wide"):
        records.read_records(DAY, DAY + 600)


def test_fields_that_this_sacct_lacks(slurm, recorded: Path) -> None:
    """Optional fields are left out; without a needed one it says which."""
    known = (recorded / "sacct-helpformat.txt").read_text()
    assert "WCKey" in known
    slurm.answer("sacct", "")
    slurm.answer("sacct", re.sub(r"\bWCKey\b", "", known), when="--helpformat")
    AccountingRecords(slurm.commands(), ("gpu",)).read_records(DAY, DAY + 600)
    assert "Reservation,JobName" in slurm.calls("sacct")[-1]
    slurm.answer("sacct", re.sub(r"\bAllocTRES\b", "", known), when="--helpformat")
    with pytest.raises(SlurmOutputError, match="AllocTRES"):
        AccountingRecords(slurm.commands(), ("gpu",)).read_records(DAY, DAY + 600)
