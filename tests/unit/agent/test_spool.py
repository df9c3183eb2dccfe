"""The spool: what is kept, what is dropped, what survives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmwrap.api import MAX_MESSAGE_BYTES, Readings
from slurmwrap.errors import AlreadyRunningError, ConfigError
from slurmwrap.model import CardProcess, CardReading, ReadStatus
from slurmwrapd.agent.spool import Spool


def message(ended_at: int, *, cards: int = 1, processes: int = 0) -> Readings:
    readings = tuple(
        CardReading(
            node="gpu1",
            index=index,
            started_at=ended_at - 30,
            ended_at=ended_at,
            status=ReadStatus.NO_ANSWER,
            reads=0,
            processes=tuple(CardProcess(pid=10**6 + number) for number in range(processes)),
        )
        for index in range(cards)
    )
    return Readings(node="gpu1", readings=readings)


def ends(spool: Spool) -> list[int]:
    loaded = [spool.load(name) for name in spool.names()]
    return [one.readings[0].ended_at for one in loaded if one is not None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def spool(folder: Path) -> Iterator[Spool]:
    made = Spool(folder, 3)
    yield made
    made.close()


def test_what_is_added_is_loaded_oldest_first(spool: Spool) -> None:
    """Also when the order of adding was another, as after a clock was set."""
    for ended_at in (90, 30, 60):
        spool.add(message(ended_at), ended_at)
    assert ends(spool) == [30, 60, 90]
    assert spool.load(spool.names()[0]) == message(30)


def test_the_oldest_are_dropped_and_counted(spool: Spool) -> None:
    """Room for three of five: two are a known gap, told in every message."""
    for ended_at in (30, 60, 90, 120, 150):
        spool.add(message(ended_at), ended_at)
    assert ends(spool) == [90, 120, 150]
    assert spool.dropped_messages == 2
    loaded = spool.load(spool.names()[0])
    assert loaded is not None
    assert loaded.dropped_messages == 2


def test_messages_and_count_survive_a_restart(spool: Spool, folder: Path) -> None:
    """The next agent finds what the last one left; half-written files are not messages."""
    for ended_at in (30, 60, 90, 120):
        spool.add(message(ended_at), ended_at)
    (folder / "000000000150-000.json.tmp").write_text("{half")
    spool.close()
    again = Spool(folder, 3)
    assert ends(again) == [60, 90, 120]
    assert again.dropped_messages == 1
    assert not list(folder.glob("*.tmp"))
    # Leave a lock for the fixture to release.
    spool._lock_file = again._lock_file


def test_an_interval_twice_is_two_messages(spool: Spool) -> None:
    """A clock that was set back names an end again: neither message replaces the other."""
    spool.add(message(30), 30)
    spool.add(message(30, cards=2), 30)
    loaded = [spool.load(name) for name in spool.names()]
    assert [len(one.readings) for one in loaded if one is not None] == [1, 2]


def test_a_message_too_large_is_kept_in_parts(folder: Path) -> None:
    """64 slices with 128 processes each do not fit one credential."""
    spool = Spool(folder, 100)
    whole = message(30, cards=64, processes=128)
    spool.add(whole, 30)
    names = spool.names()
    assert len(names) > 1
    assert all((folder / name).stat().st_size < MAX_MESSAGE_BYTES / 2 for name in names)
    parts = [spool.load(name) for name in names]
    readings = tuple(reading for part in parts if part is not None for reading in part.readings)
    assert readings == whole.readings
    spool.close()


def test_a_file_that_is_no_message_is_dropped(spool: Spool, folder: Path) -> None:
    """After a power loss a file may be empty: it is counted, and does not block the others."""
    spool.add(message(30), 30)
    spool.add(message(60), 60)
    (folder / spool.names()[0]).write_text("")
    assert spool.load(spool.names()[0]) is None
    assert ends(spool) == [60]
    assert spool.dropped_messages == 1


def test_a_disk_that_takes_nothing(spool: Spool, folder: Path) -> None:
    """The message is held in memory, in its place in the order, until it is removed."""
    spool.add(message(30), 30)
    (folder / "000000000060-000.json.tmp").mkdir()  # the disk refuses this one name
    trouble = spool.add(message(60), 60)
    spool.add(message(90), 90)
    assert isinstance(trouble, OSError)
    assert ends(spool) == [30, 60, 90]
    spool.remove(spool.names()[1])
    assert ends(spool) == [30, 90]


def test_one_agent_per_folder(spool: Spool, folder: Path) -> None:
    """A second agent would send everything twice."""
    with pytest.raises(AlreadyRunningError) as caught:
        Spool(folder, 3)
    assert str(folder) in caught.value.message


def test_only_its_owner_may_read(spool: Spool, folder: Path) -> None:
    """Processes of users are in it."""
    spool.add(message(30), 30)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / spool.names()[0]).stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    """A file in its place: named in the error, with the setting to change."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as caught:
        Spool(tmp_path / "file", 3)
    assert "agents.spool_dir" in (caught.value.hint or "")
    assert os.listdir(tmp_path) == ["file"]
