"""Copying one file's bytes with the fastest call that the two file systems allow."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator

from slurmwrap.staging.manifest import Entry, shown

PIECE_BYTES = 64 * 1024 * 1024
_BUFFER_BYTES = 1024 * 1024
# Up to here a read and a write cost less than the kernel's own copying and the questions before it.
SMALL_BYTES = 128 * 1024
# O_NONBLOCK: a FIFO that has taken the file's place must not hang the job. O_NOFOLLOW: the scan
# saw a file, not a link.
_READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
_CREATING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# What a call answers when it can't serve this pair of file systems or kernels: the next one is
# tried. Everything else (EIO, ENOSPC, EDQUOT, ...) is a real failure.
_NOT_THIS_WAY = frozenset(
    {
        errno.EXDEV,
        errno.ENOSYS,
        errno.EOPNOTSUPP,
        errno.EINVAL,
        errno.EPERM,
        errno.EBADF,
        errno.ETXTBSY,
        errno.EOVERFLOW,
    }
)
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

CopyCall = Callable[[int, int, int, int], int]
"""(from, to, offset, length) → bytes copied; 0 at the end of the file."""


class SourceChangedError(Exception):
    """A file is no longer what the scan saw. Not for users: the staging handles it."""


class CancelledError(Exception):
    """The copy was told to stop. Not for users: the staging handles it."""


class FileCopier:
    """Copies files between two file systems; remembers which call they refused.

    Safe in several threads.

    Args:
        calls: the ways to copy, best first.
        announce: told the number of bytes before each piece is written.
    """

    def __init__(
        self,
        *,
        calls: tuple[CopyCall, ...] | None = None,
        announce: Callable[[int], None] = lambda count: None,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._calls = calls or (_copy_in_kernel, _send_file, _read_and_write)
        self._best = 0
        self._umask = _read_umask()
        self.expects_copies = True
        """Whether an interrupted copy may have left files where this one writes."""
        self._announce = announce
        self._is_cancelled = is_cancelled

    def copy(self, source: bytes, target: bytes, entry: Entry) -> bool:
        """Make ``target`` a copy; False when it was one already, from an interrupted copy.

        The modification time is set last, so a file that has it is whole.

        Raises:
            SourceChangedError: the source is not, or does not stay, what ``entry`` says.
            CancelledError: told to stop.
            OSError: reading or writing failed; ``filename`` says which.
        """
        if self.expects_copies and _is_copied(target, entry):
            return False
        reading = _open_source(source)
        try:
            if entry.size > SMALL_BYTES or not self._copy_small(reading, source, target, entry):
                self._copy_large(reading, source, target, entry)
        finally:
            os.close(reading)
        return True

    def _copy_small(self, reading: int, source: bytes, target: bytes, entry: Entry) -> bool:
        """Copy a file in one piece; False when it has holes, which are to stay holes."""
        try:
            data = os.read(reading, entry.size + 1)
        except OSError as error:
            error.filename = source
            raise
        # After reading: whatever was changed since the scan, or meanwhile, has another time.
        status = _check_unchanged(reading, source, entry)
        if status.st_blocks * 512 < entry.size:
            return False
        if len(data) != entry.size:
            raise SourceChangedError(f"{shown(source)} has changed")
        self._announce(entry.size)
        writing = os.open(target, _CREATING, entry.mode | stat.S_IWUSR)
        try:
            if data and os.write(writing, data) != entry.size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)
            if self._needs_mode(entry.mode):
                os.fchmod(writing, entry.mode)
            os.utime(writing, ns=(entry.mtime_ns, entry.mtime_ns))
        except OSError as error:
            error.filename = target
            raise
        finally:
            os.close(writing)
        return True

    def _copy_large(self, reading: int, source: bytes, target: bytes, entry: Entry) -> None:
        _check_unchanged(reading, source, entry)
        writing = os.open(target, _CREATING, 0o600)
        try:
            self._copy_bytes(reading, writing, entry.size, source, target)
            _check_unchanged(reading, source, entry)
            os.fchmod(writing, entry.mode)
            os.utime(writing, ns=(entry.mtime_ns, entry.mtime_ns))
        finally:
            os.close(writing)

    def _needs_mode(self, mode: int) -> bool:
        """Whether a file made with this mode gets another one: by our umask, or being read-only."""
        return bool(mode & self._umask) or not mode & stat.S_IWUSR

    def _copy_bytes(
        self, reading: int, writing: int, size: int, source: bytes, target: bytes
    ) -> None:
        for start, end in _data_ranges(reading, size):
            for piece in range(start, end, PIECE_BYTES):
                piece_end = min(piece + PIECE_BYTES, end)
                if self._is_cancelled():
                    raise CancelledError
                self._announce(piece_end - piece)
                try:
                    self._copy_piece(reading, writing, piece, piece_end)
                except OSError as error:
                    error.filename = target if error.errno in _DISK_FULL else source
                    raise
        if os.fstat(writing).st_size != size:
            # Only a hole at the end is still missing.
            os.ftruncate(writing, size)

    def _copy_piece(self, reading: int, writing: int, offset: int, end: int) -> None:
        while offset < end:
            count = self._copy_some(reading, writing, offset, end - offset)
            if count == 0:
                raise SourceChangedError("a file of the source has become shorter")
            offset += count

    def _copy_some(self, reading: int, writing: int, offset: int, length: int) -> int:
        while True:
            best = self._best
            is_last = best == len(self._calls) - 1
            try:
                count = self._calls[best](reading, writing, offset, length)
            except OSError as error:
                if is_last or error.errno not in _NOT_THIS_WAY:
                    raise
            else:
                # Some kernels answer 0 for files that do have bytes (copy_file_range).
                if count or is_last:
                    return count
            self._best = max(self._best, best + 1)


def _is_copied(target: bytes, entry: Entry) -> bool:
    """Whether an interrupted copy left it whole; what it left of it otherwise is removed."""
    try:
        status = os.lstat(target)
    except FileNotFoundError:
        return False
    if (
        stat.S_ISREG(status.st_mode)
        and status.st_size == entry.size
        and status.st_mtime_ns == entry.mtime_ns
        and stat.S_IMODE(status.st_mode) == entry.mode
    ):
        return True
    os.unlink(target)
    return False


def _open_source(source: bytes) -> int:
    try:
        return os.open(source, _READING)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            raise SourceChangedError(f"{shown(source)} has gone") from error
        raise


def _check_unchanged(reading: int, source: bytes, entry: Entry) -> os.stat_result:
    status = os.fstat(reading)
    if (
        not stat.S_ISREG(status.st_mode)
        or status.st_size != entry.size
        or status.st_mtime_ns != entry.mtime_ns
    ):
        raise SourceChangedError(f"{shown(source)} has changed")
    return status


def _read_umask() -> int:
    """This process's umask, without changing it for a moment under the other threads."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    return 0o777


def _data_ranges(reading: int, size: int) -> Iterator[tuple[int, int]]:
    """Ranges that hold data: holes of a sparse file stay holes."""
    if os.fstat(reading).st_blocks * 512 >= size:
        yield 0, size
        return
    offset = 0
    while offset < size:
        try:
            start = os.lseek(reading, offset, os.SEEK_DATA)
            end = os.lseek(reading, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return
            yield offset, size  # this file system knows no holes
            return
        yield start, min(end, size)
        offset = end


def _copy_in_kernel(reading: int, writing: int, offset: int, length: int) -> int:
    return os.copy_file_range(reading, writing, length, offset, offset)


def _send_file(reading: int, writing: int, offset: int, length: int) -> int:
    os.lseek(writing, offset, os.SEEK_SET)
    return os.sendfile(writing, reading, offset, length)


def _read_and_write(reading: int, writing: int, offset: int, length: int) -> int:
    data = os.pread(reading, min(length, _BUFFER_BYTES), offset)
    view = memoryview(data)
    written = 0
    while written < len(data):
        written += os.pwrite(writing, view[written:], offset + written)
    return len(data)
