"""`slurmwrap bill`: from a dump with nothing but Python, and from slurmwrapd over MUNGE."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slurmwrap.api import BillAnswer, BillQuestion
from slurmwrap.errors import NotPermittedError
from slurmwrap.statements.json import decode, encode_page

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests/data/sample-2026-11.psv"
PRICES = ROOT / "etc/prices.toml"
PROGRAMS = Path(sys.prefix) / "bin"
HEADER = "JobIDRaw|Account|State|Submit|Start|End|ElapsedRaw|AllocTRES"
# Worked out from the dump by a shell script (date, arithmetic of bash), not by our code.
SAMPLE_CARD_SECONDS = {
    ("debug", ""): 4321,
    ("gpu", "a100"): 99092,
    ("gpu", "a100_3g.20gb"): 10800,
    ("gpu", "h800"): 1248125,
    ("spot", "a100"): 137464,
    ("spot", "h800"): 170600,
}
FOX_FIELDS = (
    "JobID,JobIDRaw,User,Account,State,Start,End,AveCPU,AveDiskRead,AveDiskWrite,AveRSS,"
    "AveVMSize,ElapsedRaw,ExitCode,Layout,MaxRSS,MaxVMSize,MinCPU,ReqCPUS,ReqMem,ReqNodes,"
    "Reservation,Submit,Suspended,SystemCPU,TimelimitRaw,UserCPU,NodeList,Partition,AllocTRES,"
    "Priority,JobName"
)


def run_bill(
    *words: str, dump: bytes = b"", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command as on a machine with no configuration."""
    done = subprocess.run(
        [str(PROGRAMS / "slurmwrap"), "bill", *words],
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": "/nonexistent",
            "LC_ALL": "C.UTF-8",
            "SLURMWRAP_CONFIG": os.devnull,
            **(environment or {}),
        },
        input=dump,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def bill_of(dump: str | bytes, *words: str, **options: Any) -> dict[str, Any]:
    """The JSON bill of a dump on standard input, in UTC."""
    raw = dump.encode() if isinstance(dump, str) else dump
    done = run_bill(
        *("--month", "2026-11", "--sacct", "-", "--timezone", "UTC", "--json", *words),
        dump=raw,
        **options,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


ROW = "1|a|COMPLETED|x|2026-11-03T00:00:00|2026-11-03T01:00:00|3600|gres/gpu=1".replace(
    "x", "2026-11-03T00:00:00"
)


def sample_bill(output_format: str, *words: str) -> subprocess.CompletedProcess[str]:
    return run_bill(
        *("--month", "2026-11", "--sacct", str(SAMPLE), "--timezone", "Asia/Shanghai"),
        *("--prices", str(PRICES), "--format", output_format, *words),
    )


def test_the_sample_dump() -> None:
    """The shipped dump's card-seconds are known; amounts follow from whole cents."""
    done = sample_bill("json")
    assert done.returncode == 0
    bill = json.loads(done.stdout)
    found: dict[tuple[str, str], int] = defaultdict(int)
    for line in bill["lines"] + bill["unpriced"]:
        found[line["partition"], line["gpu_type"]] += line["card_seconds"]
    assert found == SAMPLE_CARD_SECONDS
    assert bill["totals"]["card_seconds"] == sum(SAMPLE_CARD_SECONDS.values()) == 1670402
    assert bill["totals"]["card_hours"] == "464.0006"
    assert bill["in_flight"]["card_seconds"] == 432000
    cents = 0
    for line in bill["lines"]:
        price = int(line["unit_price"].replace(".", ""))
        amount = (2 * line["card_seconds"] * price + 3600) // 7200
        assert line["amount"] == f"{amount // 100}.{amount % 100:02}"
        cents += amount
    assert bill["totals"]["amount"] == f"{cents // 100}.{cents % 100:02}" == "13260.89"
    assert bill["period"] == {
        "start": "2026-11-01T00:00:00+08:00",
        "end": "2026-12-01T00:00:00+08:00",
        "timezone": "Asia/Shanghai",
    }
    assert "1.2003 card-hours in 1 line(s) have no price" in done.stderr


def test_text_and_csv_say_the_same() -> None:
    """Every form holds the same lines and figures."""
    bill = json.loads(sample_bill("json").stdout)
    rows = list(csv.DictReader(io.StringIO(sample_bill("csv").stdout, newline="")))
    lines = bill["lines"] + bill["unpriced"]
    assert [(row["account"], row["user"], row["amount"]) for row in rows] == [
        (line["account"], line["user"], line.get("amount", "")) for line in lines
    ]
    text = sample_bill("text").stdout
    for line in bill["lines"]:
        assert any(
            row.split()[:2] == [line["account"], line["user"]] and row.split()[-1] == line["amount"]
            for row in text.splitlines()
        )
    assert "464.0006" in text
    assert "13260.89" in text


def test_account_and_user() -> None:
    """--account and --user bill their part; one that nobody has is said, not passed over."""
    bill = json.loads(sample_bill("json", "--account", "bio", "--user", "zhao").stdout)
    names = {(line["account"], line["user"]) for line in bill["lines"] + bill["unpriced"]}
    assert names == {("bio", "zhao")}
    nobody = sample_bill("json", "--account", "boi")
    assert json.loads(nobody.stdout)["totals"]["card_seconds"] == 0
    assert "has no record of what --account" in nobody.stderr
    assert json.loads(sample_bill("json", "--cluster", "orion").stdout)["lines"]


def test_without_prices_the_hours_still_come_out() -> None:
    """Without a price file everything is unpriced, which is said."""
    done = run_bill("--month", "2026-11", "--sacct", str(SAMPLE), "--json")
    bill = json.loads(done.stdout)
    assert (bill["lines"], bill["totals"]["amount"]) == ([], "0.00")
    assert bill["totals"]["card_hours"] == "464.0006"
    assert bill["currency"] == "CNY"
    assert "no price file was given" in done.stderr


@pytest.mark.parametrize(
    ("name", "hours"), [(b"a|b", "1.0000"), (b"a\rb\nc", "1.0000"), (b"\xff\xfe", "1.0000")]
)
def test_hostile_names_from_standard_input(name: bytes, hours: str) -> None:
    """B13: one record whatever its name, read from standard input."""
    header = b"JobIDRaw|Account|JobName|State|Start|End|ElapsedRaw|AllocTRES\n"
    row = b"1|a|%s|COMPLETED|1793664000|1793667600|3600|gres/gpu=1\n" % name
    bill = bill_of(header + row)
    assert (bill["totals"]["card_hours"], bill["rejected_records"]) == (hours, 0)


def test_broken_lines_are_a_partial_result() -> None:
    """B32: the good lines are billed, the broken ones counted and named; exit code 41."""
    dump = f"{HEADER}\n{ROW}\n2|a|COMPL\n{ROW.replace('1|a', '3|a', 1)}\n4|a|COMPLETED|2026"
    done = run_bill(
        *("--month", "2026-11", "--sacct", "-", "--timezone", "UTC", "--format", "json"),
        dump=dump.encode(),
    )
    assert done.returncode == 41
    bill = json.loads(done.stdout)
    assert (bill["totals"]["card_seconds"], bill["rejected_records"]) == (7200, 2)
    assert "line 3: 3 columns instead of 8" in done.stderr
    assert "line 5:" in done.stderr


def test_fields_and_delimiter() -> None:
    """A dump without header, and one with another delimiter, are read as they are said to be."""
    fields = HEADER.replace("|", ",")
    assert bill_of(f"{ROW}\n", "--sacct-fields", fields)["totals"]["card_seconds"] == 3600
    other = f"{HEADER}\n{ROW}\n"
    for mark, word in (("\t", r"\t"), ("\x1f", r"\x1f"), (";", ";"), ("|+|", "|+|")):
        bill = bill_of(other.replace("|", mark), "--delimiter", word)
        assert bill["totals"]["card_seconds"] == 3600


def test_whose_month_it_is() -> None:
    """A configured billing zone decides what a month is; else --timezone says it."""
    dump = f"{HEADER}\n1|a|COMPLETED|0|2026-10-31T12:00:00|2026-11-01T12:00:00|86400|gres/gpu=8\n"
    assert bill_of(dump)["totals"]["card_hours"] == "96.0000"
    shanghai = {"SLURMWRAP_BILLING_TIMEZONE": "Asia/Shanghai"}
    bill = bill_of(dump, environment=shanghai)
    assert bill["period"]["timezone"] == "Asia/Shanghai"
    assert bill["totals"]["card_hours"] == "160.0000"


def test_a_dump_without_cards_is_suspicious() -> None:
    """B23: where no record holds a card, a zero bill does not pass in silence."""
    done = run_bill(
        *("--month", "2026-11", "--sacct", "-", "--json"),
        dump=f"{HEADER}\n{ROW.replace('gres/gpu=1', 'cpu=8')}\n".encode(),
    )
    assert "AccountingStorageTRES" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--month", "2026-13", "--sacct", "-"], 2, "2026-11"),
        (["--sacct", "-"], 2, "--month"),
        (["--month", "2026-11", "--prices", str(PRICES)], 2, "without --sacct"),
        (["--month", "2026-11", "--sacct", "-", "--timezone", "Asia/Shanghia"], 2, "Shanghai"),
        (["--month", "2026-11", "--sacct", "-", "--delimiter", ""], 2, "--delimiter"),
        (["--month", "2026-11", "--sacct", "/nonexistent/dump"], 12, "/nonexistent/dump"),
        (["--month", "2026-11", "--sacct", "/"], 40, "can't read"),
        (["--month", "2026-11", "--sacct", "-", "--prices", "/nonexistent"], 42, "/nonexistent"),
        (["--month", "2026-11", "--sacct", "-"], 40, "empty"),
    ],
)
def test_bad_input(words: list[str], code: int, said: str) -> None:
    """Each kind of wrong input has its own exit code and names what was wrong."""
    done = run_bill(*words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_column_is_named() -> None:
    """A dump without a column that the bill needs says which, with exit code 40."""
    done = run_bill("--month", "2026-11", "--sacct", "-", dump=b"JobIDRaw|Account|Start|End\n")
    assert done.returncode == 40
    assert "lacks ElapsedRaw or Elapsed, AllocTRES" in done.stderr


def test_a_tie_names_both_entries(tmp_path: Path) -> None:
    """Two prices of the same rank on one record: exit code 43, both are named."""
    prices = tmp_path / "prices.toml"
    prices.write_text(
        '[[price]]\naccount = "a"\nper_card_hour = "1"\n'
        '[[price]]\ngpu_type = "a100"\nper_card_hour = "2"\n'
    )
    done = run_bill(
        *("--month", "2026-11", "--sacct", "-", "--timezone", "UTC", "--prices", str(prices)),
        dump=f"{HEADER}\n{ROW.replace('gres/gpu=1', 'gres/gpu:a100=1')}\n".encode(),
    )
    assert done.returncode == 43
    assert "[[price]] 1 (account=a)" in done.stderr
    assert "[[price]] 2 (gpu_type=a100)" in done.stderr


def test_billing_a_dump_loads_neither_http_nor_service() -> None:
    """With nothing but Python: no client, no daemon, no database is imported."""
    program = (
        "import sys; from slurmwrap.cli import group\n"
        f"group(['bill', '--month', '2026-11', '--sacct', {str(SAMPLE)!r}],"
        " standalone_mode=False)\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)\n"
        "print('slurmwrap.api' in sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"SLURMWRAP_CONFIG": os.devnull, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for name in ("urllib3", "slurmwrapd", "sqlite3", "jinja2", "rich", "apscheduler"):
        assert f"'{name}'" not in done.stderr
    assert done.stderr.endswith("False\n")


def test_a_reader_that_goes_away_is_no_error() -> None:
    """`slurmwrap bill … | head` ends quietly."""
    command = f"'{PROGRAMS / 'slurmwrap'}' bill --month 2026-11 --sacct '{SAMPLE}' | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command],
        env={"SLURMWRAP_CONFIG": os.devnull, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("Card-hours 2026-11")
    assert "Traceback" not in done.stderr


def count_independently(rows: list[list[str]], start: datetime, end: datetime) -> int:
    """Card-seconds of fox's rows within a month, written without any code of ours."""
    names = FOX_FIELDS.split(",")
    total = 0
    for row in rows:
        record = dict(zip(names, row, strict=True))
        if "." in record["JobIDRaw"] or record["Start"] in ("Unknown", "None"):
            continue
        entries = dict(part.split("=") for part in record["AllocTRES"].split(",") if part)
        cards = int(entries.get("gres/gpu", 0))
        # The zone keeps one offset over the whole month, so local seconds are seconds.
        began = datetime.fromisoformat(record["Start"])
        held_from = max(0.0, (start - began).total_seconds())
        held_to = min(float(record["ElapsedRaw"]), (end - began).total_seconds())
        total += cards * int(max(0.0, held_to - held_from))
    return total


@pytest.mark.parametrize(("month", "is_used"), [(8, False), (9, True), (10, False)])
def test_a_real_month(month: int, is_used: bool) -> None:
    """A real cluster's September: the card-seconds equal an independent count; the months
    beside it are empty."""
    folder = os.environ.get("SLURMWRAP_REAL_DATA")
    if not folder:
        pytest.skip("SLURMWRAP_REAL_DATA names no folder with real sacct output")
    path = Path(folder) / "sacct/fox-2025-09.psv"
    rows = [line.split("|") for line in path.read_text().splitlines()]
    counted = count_independently(rows, datetime(2025, month, 1), datetime(2025, month + 1, 1))  # noqa: DTZ001
    done = run_bill(
        *("--month", f"2025-{month:02}", "--sacct", str(path), "--sacct-fields", FOX_FIELDS),
        *("--timezone", "Europe/Oslo", "--format", "json"),
    )
    assert done.returncode == 0, done.stderr
    bill = json.loads(done.stdout)
    assert bill["totals"]["card_seconds"] == counted
    assert bill["rejected_records"] == 0
    assert (counted > 0) == is_used
    assert bill["period"]["timezone"] == "Europe/Oslo"


def test_from_the_daemon(stand_in: Any) -> None:
    """Pages that slurmwrapd answers are put together and printed like a dump's bill."""
    whole = decode(sample_bill("json").stdout)

    def page(offset: int) -> BillAnswer:
        text, following = encode_page(whole, offset, page_bytes=1500)
        return BillAnswer(statement=msgspec.Raw(text.encode()), next_offset=following)

    stand_in.answers["bill"] = lambda question: page(question.offset)
    done = stand_in.run("slurmwrap", "bill", "--month", "2026-11", "--account", "bio", "--json")
    assert done.returncode == 0, done.stderr
    assert decode(done.stdout) == whole
    questions = [question for _, question in stand_in.questions]
    assert len(questions) > 2
    assert questions[0] == BillQuestion(month="2026-11", account="bio", user="", offset=0)
    assert "have no price" in done.stderr


def test_the_daemons_refusal_keeps_its_kind(stand_in: Any) -> None:
    """What slurmwrapd refuses ends the command with the refusal's own exit code."""
    stand_in.answers["bill"] = NotPermittedError("account bio is not yours to see")
    done = stand_in.run("slurmwrap", "bill", "--month", "2026-11", "--account", "bio")
    assert (done.returncode, done.stdout) == (13, "")
    assert "not yours" in done.stderr
