"""Copying one file: the ways to do it, and what happens when one is refused."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmwrap.staging import filecopy
from slurmwrap.staging.filecopy import SMALL_BYTES, CopyCall, FileCopier, SourceChangedError
from slurmwrap.staging.manifest import Entry, scan_source

CONTENT = bytes(range(256)) * 9000
WAYS = {
    "copy_file_range": filecopy._copy_in_kernel,
    "sendfile": filecopy._send_file,
    "read and write": filecopy._read_and_write,
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


def entry_of(path: Path) -> Entry:
    return scan_source(os.fsencode(path), workers=1).entries[0]


def refuse(code: int) -> CopyCall:
    def call(reading: int, writing: int, offset: int, length: int) -> int:
        raise OSError(code, os.strerror(code))

    return call


@pytest.mark.parametrize("way", WAYS)
def test_each_way_copies_every_byte(source: Path, tmp_path: Path, way: str) -> None:
    """copy_file_range, sendfile and read/write give the same file with mode and time."""
    source.chmod(0o640)
    copier = FileCopier(calls=(WAYS[way],))
    assert copier.copy(os.fsencode(source), os.fsencode(tmp_path / "copy"), entry_of(source))
    copy = tmp_path / "copy"
    assert copy.read_bytes() == CONTENT
    assert copy.stat().st_mtime_ns == source.stat().st_mtime_ns
    assert copy.stat().st_mode == source.stat().st_mode


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_refused_way_falls_back(source: Path, tmp_path: Path, code: int) -> None:
    """S23: a call that this pair of file systems refuses is replaced by the next one."""
    copier = FileCopier(calls=(refuse(code), refuse(errno.EINVAL), filecopy._read_and_write))
    copier.copy(os.fsencode(source), os.fsencode(tmp_path / "copy"), entry_of(source))
    assert (tmp_path / "copy").read_bytes() == CONTENT


def test_way_refused_in_the_middle_goes_on_there(source: Path, tmp_path: Path) -> None:
    """S23: bytes copied before the refusal are kept, not doubled."""

    def copy_some(reading: int, writing: int, offset: int, length: int) -> int:
        if offset >= 1000:
            raise OSError(errno.EXDEV, "cross-device")
        return os.copy_file_range(reading, writing, 500, offset, offset)

    copier = FileCopier(calls=(copy_some, filecopy._send_file))
    copier.copy(os.fsencode(source), os.fsencode(tmp_path / "copy"), entry_of(source))
    assert (tmp_path / "copy").read_bytes() == CONTENT


def test_way_that_copies_nothing_is_left(source: Path, tmp_path: Path) -> None:
    """Some kernels answer 0 bytes for files that have some: that is no end of file."""
    copier = FileCopier(calls=(lambda *_: 0, filecopy._read_and_write))
    copier.copy(os.fsencode(source), os.fsencode(tmp_path / "copy"), entry_of(source))
    assert (tmp_path / "copy").read_bytes() == CONTENT


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_real_failure_is_not_hidden(source: Path, tmp_path: Path, code: int) -> None:
    """A broken disk or a full one is an error at once, whatever other way there is."""
    copier = FileCopier(calls=(refuse(code), filecopy._read_and_write))
    with pytest.raises(OSError, match=os.strerror(code)) as caught:
        copier.copy(os.fsencode(source), os.fsencode(tmp_path / "copy"), entry_of(source))
    assert caught.value.errno == code
    with pytest.raises(AssertionError):
        assert (tmp_path / "copy").read_bytes() == CONTENT


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no second file system at /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def test_between_two_file_systems(memory_folder: Path, tmp_path: Path) -> None:
    """S23: from memory to disk, where copy_file_range really answers EXDEV."""
    source = memory_folder / "source"
    source.write_bytes(CONTENT)
    FileCopier().copy(os.fsencode(source), os.fsencode(tmp_path / "copy"), entry_of(source))
    assert (tmp_path / "copy").read_bytes() == CONTENT


def test_shortened_source_is_noticed(source: Path, tmp_path: Path) -> None:
    """S33: a file that is not what the scan saw is not copied as if it were."""
    entry = entry_of(source)
    source.write_bytes(b"short")
    with pytest.raises(SourceChangedError, match="source has changed"):
        FileCopier().copy(os.fsencode(source), os.fsencode(tmp_path / "copy"), entry)


def test_fifo_in_the_place_of_a_file_does_not_hang(source: Path, tmp_path: Path) -> None:
    """S34: between scan and copy the file became a FIFO that nobody writes to."""
    entry = entry_of(source)
    source.unlink()
    os.mkfifo(source)
    with pytest.raises(SourceChangedError):
        FileCopier().copy(os.fsencode(source), os.fsencode(tmp_path / "copy"), entry)


def test_whole_file_is_not_copied_again(source: Path, tmp_path: Path) -> None:
    """Resuming: a target with size, time and mode of the source is whole; any other is not."""
    target = tmp_path / "copy"
    copier = FileCopier()
    copier.copy(os.fsencode(source), os.fsencode(target), entry_of(source))
    assert not copier.copy(os.fsencode(source), os.fsencode(target), entry_of(source))
    target.write_bytes(CONTENT[:-1] + b"X")
    assert copier.copy(os.fsencode(source), os.fsencode(target), entry_of(source))
    assert target.read_bytes() == CONTENT


def copy_bytes(folder: Path, data: bytes, mode: int = 0o644, umask: int = 0o022) -> Path:
    """Copy a new file with these bytes and mode; the copy."""
    path = folder / f"of-{len(data)}-{mode:o}"
    path.write_bytes(data)
    path.chmod(mode)
    os.utime(path, ns=(1, 1_700_000_000_123_456_789))
    [entry] = scan_source(os.fsencode(path), workers=1).entries
    target = folder / "copy"
    before = os.umask(umask)
    try:
        assert FileCopier().copy(os.fsencode(path), os.fsencode(target), entry)
    finally:
        os.umask(before)
    return target


@pytest.mark.parametrize("size", [0, 1, SMALL_BYTES - 1, SMALL_BYTES, SMALL_BYTES + 1])
def test_both_sides_of_small(tmp_path: Path, size: int) -> None:
    """The short way for small files ends at the right byte."""
    data = os.urandom(size)
    assert copy_bytes(tmp_path, data).read_bytes() == data


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o277])
@pytest.mark.parametrize("mode", [0o644, 0o400, 0o755, 0o666])
@pytest.mark.parametrize("size", [5, SMALL_BYTES + 5])
def test_mode_and_time_whatever_the_umask(tmp_path: Path, size: int, mode: int, umask: int) -> None:
    """The copy's mode is the source's, also a read-only one, and its time to the nanosecond."""
    status = copy_bytes(tmp_path, b"x" * size, mode, umask).stat()
    assert (status.st_mode & 0o7777, status.st_mtime_ns) == (mode, 1_700_000_000_123_456_789)


def test_link_in_the_place_of_a_file_is_not_followed(source: Path, tmp_path: Path) -> None:
    """S33: between scan and copy the file became a link to one of the same size and time."""
    [entry] = scan_source(os.fsencode(source), workers=1).entries
    other = tmp_path / "other"
    source.rename(other)
    source.symlink_to(other)
    with pytest.raises(SourceChangedError):
        FileCopier().copy(os.fsencode(source), os.fsencode(tmp_path / "copy"), entry)


def test_small_file_that_grew_is_noticed(tmp_path: Path) -> None:
    """S33: one byte more, with the old time put back."""
    path = tmp_path / "small"
    path.write_bytes(b"four")
    [entry] = scan_source(os.fsencode(path), workers=1).entries
    path.write_bytes(b"fives")
    os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))
    with pytest.raises(SourceChangedError):
        FileCopier().copy(os.fsencode(path), os.fsencode(tmp_path / "copy"), entry)
