"""Room: refused with numbers, reserved for real, made by eviction of what nobody uses."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from slurmwrap.errors import NoRoomError, StagingError
from slurmwrap.staging.stage_in import StagedData

from .conftest import MakeStager, make_job

MEBI = 2**20


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Path]:
    """Files of 10, 10, 16 and 40 MiB for a disk of 32 MiB."""
    paths = {}
    for name, mebibytes in (("a", 10), ("b", 10), ("c", 16), ("large", 40)):
        paths[name] = tmp_path / name
        paths[name].write_bytes(os.urandom(1024) * 1024 * mebibytes)
    return paths


def exists(staged: StagedData) -> bool:
    return Path(os.fsdecode(staged.path)).exists()


def test_too_little_room_is_refused_with_numbers(
    sources: dict[str, Path], small_disk: Path, make_stager: MakeStager
) -> None:
    """The message says what is needed, what is free and what stays free; nothing was written."""
    stager = make_stager(cache=small_disk, headroom=0.25)
    with pytest.raises(NoRoomError) as caught:
        stager.stage_in(os.fsencode(sources["large"]))
    assert "on n1 in" in caught.value.message
    assert "it needs 40.1 MiB, free are 3" in caught.value.message
    assert "8.0 MiB (25%) stay free" in caught.value.message
    assert list(small_disk.rglob("large")) == []


def test_headroom_is_left(
    sources: dict[str, Path], small_disk: Path, make_stager: MakeStager
) -> None:
    """16 MiB fit on 32 MiB, but not when 60 % of it shall stay free."""
    with pytest.raises(NoRoomError):
        make_stager(cache=small_disk, headroom=0.6).stage_in(os.fsencode(sources["c"]))
    make_stager(cache=small_disk, headroom=0.3).stage_in(os.fsencode(sources["c"]))


def test_least_recently_used_copy_makes_room(
    sources: dict[str, Path], small_disk: Path, make_stager: MakeStager
) -> None:
    """The copy that was used longest ago goes, and no more than is needed."""
    stagers = [make_stager(cache=small_disk, holder=make_job(number)) for number in range(4)]
    a = stagers[0].stage_in(os.fsencode(sources["a"]))
    b = stagers[1].stage_in(os.fsencode(sources["b"]))
    for staged, moment in ((a, 2_000_000_000), (b, 1_000_000_000)):
        record = Path(os.fsdecode(staged.path)).parent.parent / "record.json"
        os.utime(record, (moment, moment))
    c = stagers[2].stage_in(os.fsencode(sources["c"]))
    assert (exists(a), exists(b), exists(c)) == (True, False, True)


def test_leased_copies_stay(
    sources: dict[str, Path], small_disk: Path, make_stager: MakeStager
) -> None:
    """S25: copies of live jobs are kept; when that leaves too little room, nothing is removed."""
    options = {"cache": small_disk, "live_jobs": lambda: frozenset({11, 12})}
    a = make_stager(holder=make_job(11), **options).stage_in(os.fsencode(sources["a"]))
    b = make_stager(holder=make_job(12), **options).stage_in(os.fsencode(sources["b"]))
    with pytest.raises(NoRoomError, match="in use by job 11, job 12"):
        make_stager(holder=make_job(13), **options).stage_in(os.fsencode(sources["c"]))
    assert exists(a)
    assert exists(b)


def test_silent_slurm_frees_nothing(
    sources: dict[str, Path], small_disk: Path, make_stager: MakeStager
) -> None:
    """S25: while Slurm does not answer, every job's lease counts."""
    options = {"cache": small_disk, "live_jobs": lambda: None}
    a = make_stager(holder=make_job(11), **options).stage_in(os.fsencode(sources["a"]))
    make_stager(holder=make_job(12), **options).stage_in(os.fsencode(sources["b"]))
    with pytest.raises(NoRoomError):
        make_stager(holder=make_job(13), **options).stage_in(os.fsencode(sources["c"]))
    assert exists(a)


def test_copy_of_a_live_process_stays(
    sources: dict[str, Path], small_disk: Path, make_stager: MakeStager
) -> None:
    """Outside jobs the lease is the process's: this test itself holds both copies."""
    make_stager(cache=small_disk).stage_in(os.fsencode(sources["a"]))
    make_stager(cache=small_disk).stage_in(os.fsencode(sources["b"]))
    with pytest.raises(NoRoomError, match=f"in use by process {os.getpid()}"):
        make_stager(cache=small_disk).stage_in(os.fsencode(sources["c"]))


def test_room_is_taken_before_the_copy(
    sources: dict[str, Path], small_disk: Path, make_stager: MakeStager
) -> None:
    """S24: while one copies 16 of 32 MiB, nobody else on the node can take the room it needs."""
    refusals: list[tuple[int | None, int]] = []

    def fill_the_disk() -> bool:
        if not refusals and list(small_disk.glob("*/partial/*/data")):
            descriptor = os.open(small_disk / "filler", os.O_WRONLY | os.O_CREAT)
            filled = 0
            try:
                while filled < 32 * MEBI:
                    filled += os.write(descriptor, b"x" * MEBI)
            except OSError as error:
                refusals.append((error.errno, filled))
            os.close(descriptor)
        return False

    stager = make_stager(cache=small_disk, workers=1, is_cancelled=fill_the_disk)
    staged = stager.stage_in(os.fsencode(sources["c"]))
    assert Path(os.fsdecode(staged.path)).read_bytes() == sources["c"].read_bytes()
    [(code, filled)] = refusals
    assert code == errno.ENOSPC
    assert filled <= 16 * MEBI  # what is left beside the 16 MiB and the cache's own files


def test_full_disk_leaves_no_ruins(
    sources: dict[str, Path], small_disk: Path, make_stager: MakeStager
) -> None:
    """A disk that is full in spite of everything: NoRoomError, and the partial copy is removed."""
    said: list[str] = []

    def steal_the_reservation() -> bool:
        for room in small_disk.glob("*/partial/*/room"):
            os.truncate(room, 0)
            (small_disk / "filler").write_bytes(b"x" * 20 * MEBI)
            said.append("stolen")
        return False

    stager = make_stager(cache=small_disk, workers=1, is_cancelled=steal_the_reservation)
    with pytest.raises(NoRoomError, match="No space left on device"):
        stager.stage_in(os.fsencode(sources["c"]))
    assert said
    assert list(small_disk.glob("*/partial/*")) == []
    assert list(small_disk.glob("*/entries/*")) == []


def test_abandoned_copy_makes_room(
    sources: dict[str, Path], small_disk: Path, make_stager: MakeStager
) -> None:
    """What a killed copy of other data left goes first when room is needed."""

    def stop_when_reserved() -> bool:
        return bool(list(small_disk.glob("*/partial/*/room")))

    a = make_stager(cache=small_disk, holder=make_job(1)).stage_in(os.fsencode(sources["a"]))
    with pytest.raises(StagingError, match="interrupted"):
        make_stager(cache=small_disk, is_cancelled=stop_when_reserved).stage_in(
            os.fsencode(sources["b"])
        )
    [left] = small_disk.glob("*/partial/*")
    (left / "data" / "b").write_bytes(b"x" * 10 * MEBI)
    c = make_stager(cache=small_disk, holder=make_job(2)).stage_in(os.fsencode(sources["c"]))
    assert not left.exists()
    assert exists(a)
    assert exists(c)
