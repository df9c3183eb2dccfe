"""Messages that wait for slurmwrapd: a bounded folder that outlives the agent.

Every message is written before it is sent and removed after it was accepted, so neither a
daemon that is away nor an agent that is killed loses it. Messages are kept as plain JSON:
the credential is made when they are sent, since it lives for 60 s only.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import msgspec

from slurmwrap.api import MAX_MESSAGE_BYTES, Readings
from slurmwrap.errors import AlreadyRunningError, ConfigError

CARDS_FILE = "cards.json"
"""Beside the messages: what CardMemory keeps."""

_UNWRITTEN_LIMIT = 20
"""Messages held in memory when the disk takes none."""


class Spool:
    """The folder, oldest message first. Used by the loop (add) and the sender (the rest)."""

    def __init__(self, folder: Path, limit: int) -> None:
        """Take possession of the folder.

        Raises:
            AlreadyRunningError: another agent uses it.
            ConfigError: it can't be made or written.
        """
        self._folder = folder
        self._limit = max(1, limit)
        self._changing = threading.Lock()
        self._unwritten: dict[str, bytes] = {}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_file = os.open(
                folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError as error:
            raise ConfigError(
                f"the spool folder {folder} can't be used: {error.strerror}",
                hint="agents.spool_dir must be writable by the agent's user",
            ) from error
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock_file)
            raise AlreadyRunningError(
                f"another agent uses the spool folder {folder}",
                hint="one agent per node; several nodes on one host need a spool_dir each",
            ) from None
        for leftover in folder.glob("*.tmp"):
            leftover.unlink(missing_ok=True)
        self._dropped = self._read_dropped()

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def dropped_messages(self) -> int:
        """Messages that were lost so far, over all runs of the agent on this folder."""
        return self._dropped

    def close(self) -> None:
        """Let another agent have the folder."""
        os.close(self._lock_file)

    def add(self, message: Readings, ended_at: int) -> OSError | None:
        """Keep a message of the interval that ended then; the oldest go when it gets full.

        A message too large for one credential is kept in parts. Returns why the disk did not
        take it; it is then held in memory.
        """
        trouble: OSError | None = None
        with self._changing:
            taken = set(self._names())
            for part in _in_parts(message):
                number = 0
                while (name := f"{ended_at:012d}-{number:03d}.json") in taken:
                    number += 1
                taken.add(name)
                trouble = self._keep(name, part) or trouble
            for name in self._names()[: -self._limit]:
                self._discard(name)
                self._count_dropped()
        return trouble

    def names(self) -> list[str]:
        """The messages that wait, oldest first."""
        with self._changing:
            return self._names()

    def load(self, name: str) -> Readings | None:
        """A message as it is to be sent; None: it is gone, or unreadable and now dropped."""
        with self._changing:
            try:
                content = self._unwritten.get(name) or (self._folder / name).read_bytes()
                message = msgspec.json.decode(content, type=Readings)
            except FileNotFoundError:
                return None
            except (msgspec.DecodeError, OSError):
                # A machine that lost power can leave a file without content.
                self._discard(name)
                self._count_dropped()
                return None
        return msgspec.structs.replace(message, dropped_messages=self._dropped)

    def remove(self, name: str) -> None:
        """A message was accepted."""
        with self._changing:
            self._discard(name)

    def drop(self, name: str) -> None:
        """A message will never be accepted: it is a known gap from now on."""
        with self._changing:
            self._discard(name)
            self._count_dropped()

    def _names(self) -> list[str]:
        try:
            on_disk = [name for name in os.listdir(self._folder) if name.endswith(".json")]
        except OSError:
            on_disk = []
        return sorted({*on_disk, *self._unwritten} - {CARDS_FILE})

    def _keep(self, name: str, content: bytes) -> OSError | None:
        try:
            write_file(self._folder / name, content)
        except OSError as error:
            self._unwritten[name] = content
            for oldest in sorted(self._unwritten)[:-_UNWRITTEN_LIMIT]:
                del self._unwritten[oldest]
                self._count_dropped()
            return error
        return None

    def _discard(self, name: str) -> None:
        self._unwritten.pop(name, None)
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError:
            # It will be sent again, which changes nothing at the daemon.
            return

    def _count_dropped(self) -> None:
        self._dropped += 1
        try:
            write_file(self._folder / "dropped", str(self._dropped).encode())
        except OSError:
            return  # the number of this run still counts

    def _read_dropped(self) -> int:
        try:
            text = (self._folder / "dropped").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return 0
        return int(text) if text.isdecimal() else 0


def write_file(path: Path, content: bytes) -> None:
    """The whole file or none of it, readable by its owner alone.

    Raises:
        OSError: the disk does not take it; what was there before is still there.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        handle = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        with open(handle, "wb") as file:
            file.write(content)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _in_parts(message: Readings) -> list[bytes]:
    """The message as JSON, in as many parts as it takes to stay well below the limit."""
    content = msgspec.json.encode(message)
    if len(content) <= MAX_MESSAGE_BYTES // 2 or len(message.readings) < 2:
        return [content]
    half = len(message.readings) // 2
    return [
        part
        for readings in (message.readings[:half], message.readings[half:])
        for part in _in_parts(msgspec.structs.replace(message, readings=readings))
    ]
