"""sacct's text is hostile: the parser answers anything with records or its own refusal."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from slurmwrap.errors import SacctFormatError
from slurmwrap.slurm.records import parse_records

HEADER = b"JobIDRaw|Account|JobName|State|Start|End|ElapsedRaw|AllocTRES"
UTC = ZoneInfo("UTC")
# What rows are made of, put together at random: near misses break more than noise.
PIECES = [
    b"|",
    b"\n",
    b"\r\n",
    b"1",
    b"12.batch",
    b"12_3",
    b"acc",
    b"COMPLETED",
    b"CANCELLED by 0",
    b"2026-11-03T00:00:00",
    b"2026-02-30T00:00:00",
    b"0001-01-01T00:00:00",
    b"9999-12-31T23:59:59",
    b"9" * 30,
    b"-1",
    b"Unknown",
    b"3600",
    b"gres/gpu=1",
    b"gres/gpu:a=2,gres/gpu=1",
    b"gres/gpu=\xd9\xa1",
    b"\x00",
    b"\xff",
    "测试".encode(),
    HEADER,
]


@given(st.binary(max_size=400))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_a_dump_or_no_dump(content: bytes) -> None:
    """Arbitrary bytes give records or a SacctFormatError, and nothing else."""
    try:
        parse_records(content.splitlines(keepends=True), zone=UTC)
    except SacctFormatError:
        return


@given(st.lists(st.sampled_from(PIECES), max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_rows_under_a_header_are_records_or_rejected(pieces: list[bytes]) -> None:
    """Under a good header nothing raises: what can't be read is counted."""
    content = HEADER + b"\n" + b"".join(pieces)
    lines = [line + b"\n" for line in content.split(b"\n")]
    batch = parse_records(lines, zone=UTC)
    assert len(batch.rejected) == batch.rejected_count
    assert all(record.elapsed_seconds >= 0 for record in batch.records)


NAME_PIECES = [b"|", b"\n", b"\r", b" ", b"1", b"12.batch", b"acc", b"gres/gpu=1", b"\xff", b"x"]
NAMES = st.one_of(
    st.lists(st.sampled_from(NAME_PIECES), max_size=10).map(b"".join), st.binary(max_size=20)
)


@given(NAMES, st.integers(1, 64))
@settings(max_examples=300, deadline=None)
@example(b"a\nb|c\n\n|", 8)
@example(b"7|acc|x|COMPLETED\n8", 1)
def test_a_record_survives_any_name(name: bytes, cards: int) -> None:
    """A record with any name, newlines and delimiters in it, is that one record; its
    neighbours stay what they are."""
    row = b"%d|acc|%s|COMPLETED|1793664000|1793667600|3600|gres/gpu=%d"
    rows = [row % (1, b"a", 1), row % (2, name, cards), row % (3, b"z", 3)]
    # A name that makes a line begin like a row can't always be told from a row.
    for line in rows[1].split(b"\n")[1:]:
        assume(b"|" not in line or not line[:1].isdigit())
    content = b"\n".join([HEADER, *rows, b""])
    batch = parse_records([line + b"\n" for line in content.split(b"\n")[:-1]], zone=UTC)
    assert batch.rejected == ()
    assert [(record.job_id, record.cards) for record in batch.records] == [
        (1, {"": 1}),
        (2, {"": cards}),
        (3, {"": 3}),
    ]
