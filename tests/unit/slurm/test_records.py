"""sacct's text becomes records: every column order, every hostile name, nothing lost silently."""

from __future__ import annotations

import io
from zoneinfo import ZoneInfo

import pytest

from slurmwrap.errors import SacctFormatError
from slurmwrap.slurm.records import RecordBatch, RecordReader, parse_records

HEADER = "JobIDRaw|Account|State|Submit|Start|End|ElapsedRaw|AllocTRES"
NAMED = "JobIDRaw|Account|JobName|State|Start|End|ElapsedRaw|AllocTRES"
UTC = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")
# 2026-11-03T00:00:00Z by `date -d ... +%s`.
DAY = 1793664000


def parse(text: str | bytes, **options: object) -> RecordBatch:
    raw = text.encode() if isinstance(text, str) else text
    options.setdefault("zone", UTC)
    return parse_records(io.BytesIO(raw), **options)  # type: ignore[arg-type]


def row(job: int, name: str | None = None, tres: str = "gres/gpu=1") -> str:
    """One hour on one card."""
    middle = f"{name}|" if name is not None else ""
    submit = "" if name is not None else f"{DAY}|"
    return f"{job}|acc|{middle}COMPLETED|{submit}{DAY}|{DAY + 3600}|3600|{tres}"


def test_a_plain_record() -> None:
    """Every field of a record comes from its own column, in any order; others are ignored."""
    batch = parse(
        "AllocTRES|MaxRSS|QOS|User|JobName|End|Start|Submit|Suspended|ElapsedRaw|State|Account"
        "|Partition|JobIDRaw|JobID|Cluster|TimelimitRaw|NodeList|DBIndex|WCKey|Reservation\n"
        "billing=2,cpu=8,gres/gpu:a100=2,gres/gpu=2|1G|normal|alice|train|2026-11-03T02:00:00"
        "|2026-11-03T00:00:00|2026-11-02T23:00:00|00:10:00|6600|COMPLETED|chem|gpu|107|100_7"
        "|big|120|gpu[1-2]|16147243821040282624|proj|res\n"
    )
    assert batch.rejected == ()
    (record,) = batch.records
    assert record.job_id == 107
    assert (record.array_job_id, record.array_task_id) == (100, 7)
    assert (record.cluster, record.user, record.account) == ("big", "alice", "chem")
    assert (record.partition, record.qos, record.wckey) == ("gpu", "normal", "proj")
    assert (record.reservation, record.nodes, record.name) == ("res", "gpu[1-2]", "train")
    assert record.db_index == "16147243821040282624"
    assert (record.submit, record.start, record.end) == (DAY - 3600, DAY, DAY + 7200)
    assert (record.elapsed_seconds, record.suspended_seconds) == (6600, 600)
    assert record.time_limit_seconds == 7200
    assert record.cards == {"a100": 2}


@pytest.mark.parametrize(
    ("tres", "cards"),
    [
        ("billing=3,cpu=24,gres/gpu:a100=2,gres/gpu=2", {"a100": 2}),  # B1
        ("gres/gpu=1,gres/gpumem=80", {"": 1}),  # B2
        ("cpu=8,gres/gpu:a100=2,node=1", {"a100": 2}),  # B3
        ("gres/gpu:a100=2,gres/gpu:v100=1,gres/gpu=3", {"a100": 2, "v100": 1}),  # B4
        ("gres/gpu:a100_3g.20gb=1,gres/gpu=1", {"a100_3g.20gb": 1}),  # B24
        ("cpu=8,node=1", {}),
        ("", {}),
        ("cpu=1,gres/shard=4", {"shard": 0}),
    ],
)
def test_cards_of_a_record(tres: str, cards: dict[str, int]) -> None:
    """B1 to B4, B24: each card is counted once, by its type; shares of cards are no cards."""
    assert parse(f"{HEADER}\n{row(1, tres=tres)}\n").records[0].cards == cards


def test_asked_for_is_not_held() -> None:
    """B5: ReqTRES does not count: --exclusive gave eight cards to a job that asked for none."""
    batch = parse(
        "JobIDRaw|Account|Start|End|ElapsedRaw|ReqTRES|AllocTRES\n"
        f"5|a|{DAY}|{DAY + 3600}|3600|cpu=1|cpu=128,gres/gpu=8\n"
    )
    assert batch.records[0].cards == {"": 8}


def test_steps_are_skipped() -> None:
    """Steps are parts of their job and count nothing, in both forms of the id."""
    text = f"{HEADER}\n{row(1)}\n"
    for step in ("1.batch", "1.extern", "1.0", "1.interactive"):
        text += row(1).replace("1|acc", f"{step}|acc", 1) + "\n"
    batch = parse(text)
    assert len(batch.records) == 1
    assert batch.rejected_count == 0


def test_never_started() -> None:
    """B14: `CANCELLED by 1001` with Start None or Unknown is a record of zero seconds."""
    batch = parse(
        f"{HEADER}\n8|a|CANCELLED by 1001|{DAY}|None|{DAY + 5}|0|\n"
        f"9|a|PENDING|{DAY}|Unknown|Unknown|0|\n"
    )
    assert batch.rejected_count == 0
    assert [(r.state, r.start, r.elapsed_seconds) for r in batch.records] == [
        ("CANCELLED", None, 0),
        ("PENDING", None, 0),
    ]


def test_a_running_record_has_no_end() -> None:
    """A record without an end keeps what the dump knows: its start and its elapsed time."""
    (record,) = parse(f"{HEADER}\n1|a|RUNNING|{DAY}|{DAY}|Unknown|500|gres/gpu=1\n").records
    assert (record.start, record.end, record.elapsed_seconds) == (DAY, None, 500)


@pytest.mark.parametrize(
    "start",
    [
        "1793664000",
        "2026-11-03T00:00:00Z",
        "2026-11-03T08:00:00+08:00",
        "2026-11-03T08:00:00+0800",
        "2026-11-03T01:00:00",  # Berlin, winter
        "2026-11-03 01:00:00",
    ],
)
def test_times_in_three_forms(start: str) -> None:
    """Epoch numbers, ISO with offset, and local to the zone name the same moment."""
    batch = parse(f"{HEADER}\n1|a|RUNNING||{start}|Unknown|5|gres/gpu=1\n", zone=BERLIN)
    assert batch.rejected == ()
    assert batch.records[0].start == DAY


def test_local_time_needs_a_zone() -> None:
    """Without a zone a local time is refused, not guessed."""
    batch = parse(f"{HEADER}\n1|a|R||2026-11-03T01:00:00|Unknown|5|gres/gpu=1\n", zone=None)
    assert batch.rejected_count == 1
    assert "no time zone" in batch.rejected[0].reason


@pytest.mark.parametrize(
    ("start", "end", "elapsed", "start_epoch", "end_epoch"),
    [
        # 25 October 2026, 01:00 UTC: Berlin's clocks go from 03:00 CEST back to 02:00 CET.
        ("02:30:00", "02:30:00", 3600, 1792888200, 1792891800),
        ("02:30:00", "02:45:00", 900, 1792888200, 1792889100),
        ("02:30:00", "04:00:00", 5400, 1792891800, 1792897200),
        ("02:30:00", "04:00:00", 9000, 1792888200, 1792897200),
        ("01:00:00", "02:30:00", 9000, 1792882800, 1792891800),
    ],
)
def test_the_repeated_hour(
    start: str, end: str, elapsed: int, start_epoch: int, end_epoch: int
) -> None:
    """B12: in the hour that comes twice, ElapsedRaw tells which one is meant."""
    text = f"1|a|COMPLETED||2026-10-25T{start}|2026-10-25T{end}|{elapsed}|gres/gpu=1"
    (record,) = parse(f"{HEADER}\n{text}\n", zone=BERLIN).records
    assert (record.start, record.end) == (start_epoch, end_epoch)
    assert record.elapsed_seconds == elapsed


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"a b", "a b"),
        (b"a'; echo x", "a'; echo x"),
        (b"a|b", "a|b"),
        (b"|||", "|||"),
        (b"a\rb", "a\ufffdb"),
        (b"a\nb", "a\ufffdb"),
        (b"a\n\n\nb|c\n|d", "a\ufffd\ufffd\ufffdb|c\ufffd|d"),
        ("测试".encode(), "测试"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"x\n7", "x\ufffd7"),
        (b"x|CANCELLED|None|None|0|\n", "x|CANCELLED|None|None|0|\ufffd"),
        (b"=1+1", "=1+1"),
        (b"", ""),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_hostile_names(name: bytes, shown: str, last: bool) -> None:
    """B13: whatever a job is called, it is one record, and its neighbours are untouched."""
    header, rows = NAMED, [row(1, "first"), row(2, "NAME"), row(3, "last")]
    if last:
        header = header.replace("JobName|", "") + "|JobName"
        rows = [row(1, "").replace("acc||", "acc|") + "|first"]
        rows += [
            rows[0].replace("1|acc", f"{job}|acc").replace("first", text)
            for job, text in ((2, "NAME"), (3, "last"))
        ]
    text = "\n".join([header, *rows, ""]).encode().replace(b"NAME", name)
    batch = parse(text)
    assert batch.rejected == ()
    assert [(r.job_id, r.elapsed_seconds, r.cards) for r in batch.records] == [
        (job, 3600, {"": 1}) for job in (1, 2, 3)
    ]
    assert [r.name for r in batch.records] == ["first", shown, "last"]


def test_two_free_columns_are_told_apart_by_the_others() -> None:
    """Surplus delimiters go where the typed columns between the names still fit."""
    header = "JobIDRaw|JobName|Start|End|ElapsedRaw|Account|AllocTRES|Comment"
    text = f"{header}\n1|a|b|{DAY}|{DAY + 60}|60|acc|gres/gpu=1|x|y\n"
    (record,) = parse(text).records
    assert (record.name, record.account, record.cards) == ("a|b", "acc", {"": 1})


def test_ambiguous_surplus_is_refused() -> None:
    """Where a name could also be the account, the record is refused and counted."""
    header = "JobIDRaw|JobName|Account|Comment|Start|End|ElapsedRaw|AllocTRES"
    batch = parse(f"{header}\n1|a|b|c|d|{DAY}|{DAY + 60}|60|gres/gpu=1\n")
    assert batch.records == ()
    assert batch.rejected_count == 1
    assert "more than one way" in batch.rejected[0].reason


def test_broken_lines_are_counted_and_the_good_ones_used() -> None:
    """Every broken line is named with its number; its neighbours are still read."""
    batch = parse(
        f"{HEADER}\n{row(1)}\nnot a record\n{row(2)}\n"
        f"3|acc|COMPLETED|{DAY}|{DAY}|{DAY + 3600}|abc|gres/gpu=1\n"
        f"4|acc|COMPLETED|{DAY}|yesterday|{DAY + 3600}|5|gres/gpu=1\n"
        f"5|acc|COMPLETED|{DAY}|{DAY}|{DAY + 5}|5|billing=8,gres/gp+\n"
        f"6|acc|COMPLETED|{DAY}|{DAY + 9}|{DAY}|5|gres/gpu=1\n"
        f"{row(7)}|surplus\n\n{row(8)}\n"
    )
    assert [record.job_id for record in batch.records] == [1, 2, 8]
    assert [line.number for line in batch.rejected] == [3, 5, 6, 7, 8, 9]
    reasons = " / ".join(line.reason for line in batch.rejected)
    for words in ("1 columns instead of 8", "'abc'", "'yesterday'", "gres/gp+", "before Start"):
        assert words in reasons


def test_a_cut_end() -> None:
    """B32: a last line that was cut is counted and reported, whatever the column order."""
    for header, good in ((HEADER, row(1)), (NAMED, row(1, "x"))):
        batch = parse(f"{header}\n{good}\n{good.replace('1', '2', 1)[:20]}")
        assert [record.job_id for record in batch.records] == [1]
        assert [line.number for line in batch.rejected] == [3]


def test_a_cut_record_in_the_middle() -> None:
    """B32: a record cut in the middle of the dump does not take the next one's columns."""
    batch = parse(f"{NAMED}\n41|alice|na\n{row(42, 'x')}\n{row(43, 'y')}\n")
    assert [(r.job_id, r.account) for r in batch.records] == [(42, "acc"), (43, "acc")]
    assert [line.number for line in batch.rejected] == [2]


def test_a_comment_over_lines_is_rejoined() -> None:
    """B32: a newline in a comment splits the record over lines; it is put together again."""
    header = "JobIDRaw|Comment|Account|Start|End|ElapsedRaw|AllocTRES"
    batch = parse(
        f"{header}\n1|line one\nline two\n\nline | four|acc|{DAY}|{DAY + 60}|60|gres/gpu=2\n"
        f"2|plain|acc|{DAY}|{DAY + 60}|60|gres/gpu=1\n"
    )
    assert batch.rejected_count == 0
    assert [(r.job_id, r.cards) for r in batch.records] == [(1, {"": 2}), (2, {"": 1})]


def test_a_name_that_forges_a_record_is_refused() -> None:
    """A job name that holds a whole record of somebody else's account charges nobody."""
    forged = f"x\n{row(999, 'y').replace('acc', 'victim')}\nz"
    batch = parse(f"{NAMED}\n{row(1, 'ok')}\n{row(2, forged)}\n{row(3, 'ok')}\n")
    assert [(r.job_id, r.account) for r in batch.records] == [(1, "acc"), (3, "acc")]
    assert batch.rejected_count == 1
    assert "newlines in its name" in batch.rejected[0].reason


def test_an_unreadable_account_is_refused() -> None:
    """Bytes that are no UTF-8 in a name cost nothing; in the account they can't be charged."""
    good, bad = row(1, "x").encode().replace(b"x", b"\xff"), row(2, "x").encode()
    batch = parse(NAMED.encode() + b"\n" + good + b"\n" + bad.replace(b"acc", b"ac\xff") + b"\n")
    assert [record.job_id for record in batch.records] == [1]
    assert "account" in batch.rejected[0].reason


def test_undecodable_lines_are_counted() -> None:
    """Lines that are not UTF-8 are counted although their records are used."""
    reader = RecordReader(io.BytesIO(f"{NAMED}\n{row(1, 'x')}\n".encode().replace(b"x", b"\xb2")))
    assert len(list(reader)) == 1
    assert reader.undecodable_lines == 1


@pytest.mark.parametrize(
    ("header", "missing"),
    [
        ("JobIDRaw|Account|Start|End|ElapsedRaw|ReqTRES", ["AllocTRES"]),
        ("Account|Start|End|AllocTRES", ["JobIDRaw or JobID", "ElapsedRaw or Elapsed"]),
        ("JobID|AllocTRES|ElapsedRaw", ["Account", "Start"]),
    ],
)
def test_missing_columns_are_named(header: str, missing: list[str]) -> None:
    """A dump without a column that the bill needs is refused; all such columns are named."""
    with pytest.raises(SacctFormatError) as caught:
        parse(header + "\n")
    found = caught.value.message.partition(" lacks ")[2].partition("; needed")[0]
    assert found == ", ".join(missing)
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "empty"),
        ("JobIDRaw|Account".encode("utf-16"), "UTF-16"),
        (b"JobIDRaw,Account,Start,End,ElapsedRaw,AllocTRES\n", "--delimiter"),
        (f"{row(1)}\n".encode(), "--sacct-fields"),
        (b'{"jobs": []}\n', "lacks"),
        (bytes(range(256)), "lacks"),
    ],
)
def test_files_that_are_no_dump(text: bytes, words: str) -> None:
    """What is no dump is refused with what to do about it."""
    with pytest.raises(SacctFormatError) as caught:
        parse(text)
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_fields_name_the_columns() -> None:
    """A dump without header is read by the names given; one that has it after all as well."""
    names = HEADER.split("|")
    assert [r.job_id for r in parse(f"{row(1)}\n", fields=names).records] == [1]
    assert [r.job_id for r in parse(f"{HEADER}\n{row(1)}\n", fields=names).records] == [1]
    assert parse("", fields=names).records == ()


def test_other_forms_of_the_same_dump() -> None:
    """CR LF, a byte order mark, `sacct -p`, %width, a second header, another delimiter."""
    plain = parse(f"{HEADER}\n{row(1)}\n{row(2)}\n")
    variants = [
        f"{HEADER}\r\n{row(1)}\r\n{row(2)}\r\n",
        f"\ufeff{HEADER}\n{row(1)}\n{row(2)}\n",
        f"{HEADER}|\n{row(1)}|\n{row(2)}|\n",
        f"{HEADER}\n{row(1)}|\n{row(2)}|\n",
        f"{HEADER.replace('Account', 'Account%30')}\n{row(1)}\n{row(2)}\n",
        f"{HEADER}\n{row(1)}\n{HEADER}\n{row(2)}\n",
        f"{HEADER.lower()}\n{row(1)}\n{row(2)}",
    ]
    for text in variants:
        assert parse(text) == plain
    assert parse(f"{HEADER}\n{row(1)}\n{row(2)}\n".replace("|", "\x1f"), delimiter="\x1f") == plain


def test_array_tasks_without_raw_id() -> None:
    """JobID 12_3 does not say which run it is: the column JobIDRaw is asked for."""
    header = HEADER.replace("JobIDRaw", "JobID")
    batch = parse(
        f"{header}\n{row(7)}\n" + row(1).replace("1|acc", "12_3|acc", 1) + "\n"
        f"12_[4-9]|a|PENDING|{DAY}|Unknown|Unknown|0|\n"
    )
    assert [record.job_id for record in batch.records] == [7, 12]
    assert "JobIDRaw" in batch.rejected[0].reason


def test_elapsed_as_text() -> None:
    """A dump with Elapsed in place of ElapsedRaw is read as well."""
    header = "JobIDRaw|Account|Start|Elapsed|AllocTRES"
    (record,) = parse(f"{header}\n1|a|{DAY}|1-02:03:04|gres/gpu=1\n").records
    assert record.elapsed_seconds == 86400 + 2 * 3600 + 3 * 60 + 4


def test_lines_of_text_are_read_like_bytes() -> None:
    """The live side hands lines in as text, without newlines."""
    batch = parse_records([HEADER, row(1), row(2)], zone=UTC)
    assert [record.job_id for record in batch.records] == [1, 2]
