"""Reading the metrics file: new complete lines, in bounded pieces, whatever is in it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from slurmwrap.clock import SteppedClock
from slurmwrap.model import MetricPoint
from slurmwrap.runtime.metrics_tail import MetricsTail


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


@pytest.fixture
def tail(file: Path) -> MetricsTail:
    return MetricsTail(file, SteppedClock(1000))


def append(file: Path, *lines: str | bytes) -> None:
    with file.open("ab") as out:
        for line in lines:
            out.write(line if isinstance(line, bytes) else line.encode() + b"\n")


def point(name: str, step: int, value: float, at: int = 1000) -> MetricPoint:
    return MetricPoint(name=name, step=step, value=value, at=at)


def test_no_file_is_nothing_new(tail: MetricsTail) -> None:
    """Most jobs never log a metric."""
    assert tail.peek() == ()
    assert tail.new_problems() == []


def test_points_come_once(file: Path, tail: MetricsTail) -> None:
    """What was peeked comes again until it is committed, then never."""
    append(file, '{"step": 1, "time": 995.7, "values": {"loss": 2, "acc": 0.5}}')
    expected = (point("loss", 1, 2.0, at=995), point("acc", 1, 0.5, at=995))
    assert tail.peek() == expected
    assert tail.peek() == expected
    tail.commit()
    assert tail.peek() == ()
    append(file, '{"step": 2, "values": {"loss": 1}}')
    assert tail.peek() == (point("loss", 2, 1.0),)


def test_half_a_line_waits(file: Path, tail: MetricsTail) -> None:
    """A line that is being written is read when it is whole."""
    append(file, b'{"step": 1, "val')
    assert tail.peek() == ()
    tail.commit()
    append(file, b'ues": {"loss": 2}}\n')
    assert tail.peek() == (point("loss", 1, 2.0),)


def test_values_without_step_are_counted_per_name(file: Path, tail: MetricsTail) -> None:
    """The first value of a name is step 0, and looking twice doesn't count twice."""
    append(file, '{"values": {"a": 1}}', '{"values": {"a": 2, "b": 3}}')
    tail.peek()
    assert tail.peek() == (point("a", 0, 1.0), point("a", 1, 2.0), point("b", 0, 3.0))
    tail.commit()
    append(file, '{"values": {"a": 4}}')
    assert tail.peek() == (point("a", 2, 4.0),)


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[1, 2]",
        '{"step": 1}',
        '{"step": -1, "values": {"a": 1}}',
        '{"step": 1.5, "values": {"a": 1}}',
        '{"step": true, "values": {"a": 1}}',
        '{"step": 9223372036854775808, "values": {"a": 1}}',
        '{"values": {"a": true}}',
        '{"values": {"a": "high"}}',
        '{"values": {"a": [1]}}',
        '{"values": {"": 1}}',
        '{"values": {"a\\nb": 1}}',
        '{"values": {"' + "x" * 129 + '": 1}}',
        '{"values": [1]}',
        "[" * 10_000,
        "1" * 10_000,
        b"\xff\xfe\n",
        "x" * 100_000,
    ],
)
def test_bad_lines_are_skipped_and_told_once(
    file: Path, tail: MetricsTail, line: str | bytes
) -> None:
    """Whatever a user writes into the file, good lines around it count."""
    append(file, '{"step": 1, "values": {"a": 1}}', line, '{"step": 2, "values": {"a": 2}}')
    assert tail.peek() == (point("a", 1, 1.0), point("a", 2, 2.0))
    [problem] = tail.new_problems()
    assert "lines that are no metrics" in problem
    append(file, line)
    tail.commit()
    assert tail.peek() == ()
    assert tail.new_problems() == []


def test_nan_is_no_value(file: Path, tail: MetricsTail) -> None:
    """NaN and infinity, as words or as JSON dialect, reach no rule."""
    append(file, '{"step": 1, "values": {"a": "NaN", "b": 1, "c": NaN, "d": -Infinity}}')
    assert tail.peek() == (point("b", 1, 1.0),)
    assert tail.new_problems() == ["metrics that are NaN or infinite: not sent"]


def test_endless_line_takes_no_memory(file: Path, tail: MetricsTail) -> None:
    """A line without end is skipped piece by piece, across looks at the file."""
    append(file, b"x" * 200_000)
    assert tail.peek() == ()
    tail.commit()
    append(file, b"x" * 200_000)
    assert tail.peek() == ()
    tail.commit()
    append(file, b"x\n", '{"step": 1, "values": {"a": 1}}')
    assert tail.peek() == (point("a", 1, 1.0),)
    assert len(tail.new_problems()) == 1


def test_batches_fit_into_a_message(file: Path, tail: MetricsTail) -> None:
    """20,000 values arrive in batches that each fit into 512 KiB with room to spare."""
    for step in range(2000):
        values = {f"{'é' * 100}{number}": number for number in range(10)}
        append(file, json.dumps({"step": step, "values": values}))
    seen = 0
    batches = 0
    while points := tail.peek():
        assert len(msgspec.json.encode(points)) < 400 * 1024
        tail.commit()
        seen += len(points)
        batches += 1
    assert seen == 20_000
    assert batches > 1


def test_metrics_file_that_is_a_fifo_does_not_hang(file: Path, tail: MetricsTail) -> None:
    """Somebody put a FIFO in its place: nothing is read, nothing waits."""
    os.mkfifo(file)
    assert tail.peek() == ()


def test_times_outside_the_run_become_now(file: Path, tail: MetricsTail) -> None:
    """A time from another clock would be refused by the daemon, with all that is sent beside."""
    append(file, '{"step": 1, "time": 5, "values": {"a": 1}}')
    append(file, '{"step": 2, "time": 9999999999, "values": {"a": 1}}')
    append(file, '{"step": 3, "time": 1e999, "values": {"a": 1}}')
    assert [item.at for item in tail.peek()] == [1000, 1000, 1000]


def test_names_beyond_the_limit_are_told(file: Path, tail: MetricsTail) -> None:
    """200 different metrics are sent, further ones are not, and that is said once."""
    append(file, json.dumps({"step": 1, "values": {f"m{number}": 1 for number in range(201)}}))
    append(file, '{"step": 2, "values": {"m0": 2, "m200": 2}}')
    points = tail.peek()
    assert len(points) == 201
    assert points[-1] == point("m0", 2, 2.0)
    [problem] = tail.new_problems()
    assert "more than 200 different metrics" in problem


def test_file_begun_anew_is_read_anew(file: Path, tail: MetricsTail) -> None:
    """Training that opens the file with "w" after a restart is heard again."""
    append(file, *(json.dumps({"step": step, "values": {"loss": 1}}) for step in range(50)))
    assert len(tail.peek()) == 50
    tail.commit()
    file.write_text('{"step": 50, "values": {"loss": 0.5}}\n')
    assert tail.peek() == (point("loss", 50, 0.5),)


@pytest.mark.parametrize("kind", ["fifo", "endless"])
def test_what_is_no_file_is_left_alone(file: Path, tail: MetricsTail, kind: str) -> None:
    """A FIFO would wait for its writer, and /dev/zero never ends."""
    if kind == "fifo":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    assert tail.peek() == ()


def test_line_of_gigabytes_is_read_in_pieces(file: Path, tail: MetricsTail) -> None:
    """A line that hardly ends takes neither memory nor, at one time, more than a moment."""
    with file.open("wb") as out:
        out.truncate(1 << 40)
    assert tail.peek() == ()
    tail.commit()
    assert tail.new_problems() == [f"{file} has lines that are no metrics; skipped"]
