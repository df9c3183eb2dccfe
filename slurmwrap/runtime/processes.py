"""The command's process: started as typed, signalled as a group, waited for until all is gone."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from slurmwrap.display import clean_text

NOT_FOUND = 127
NOT_EXECUTABLE = 126
_POLL_SECONDS = 1.0
_LEFTOVER_POLL_SECONDS = 0.02
_SETTLING_SECONDS = 0.5
_HANDLED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
    signal.SIGCHLD,
)


class SignalInbox:
    """Turns signals into bytes in a pipe, so that they are handled one by one in the main loop.

    Handlers are in place from construction to ``close``. Main thread only.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._old_wakeup = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._old = {number: signal.signal(number, _ignore) for number in _HANDLED}

    def wait(self, timeout_seconds: float = _POLL_SECONDS) -> list[signal.Signals]:
        """Signals since the last call, in order; waits for one, but not longer than told."""
        select.select([self._reading], [], [], timeout_seconds)
        try:
            data = os.read(self._reading, 512)
        except BlockingIOError:
            return []
        return [signal.Signals(number) for number in data if number]

    def wake(self) -> None:
        """End a wait from another thread."""
        with contextlib.suppress(BlockingIOError):  # full: the wait ends anyway
            os.write(self._writing, b"\0")

    def close(self) -> None:
        """Put the handlers back that were there before."""
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_wakeup)
        os.close(self._reading)
        os.close(self._writing)


class CommandProcess:
    """The command as a child in a session and process group of its own."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it.

        Raises:
            OSError: it can't be started.
        """
        self._process = subprocess.Popen(argv, env=dict(environment), start_new_session=True)

    def poll(self) -> int | None:
        """The exit status as a shell gives it (128+n for signal n); None: it still runs."""
        status = self._process.poll()
        if status is None:
            return None
        return 128 - status if status < 0 else status

    def signal_group(self, number: signal.Signals) -> bool:
        """Send a signal to the command and what it started; False when nothing is left."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            # Only processes of another user are left (a set-uid program): not ours to end.
            return False
        return True

    def signal_command(self, number: signal.Signals) -> None:
        """Send a signal to the command alone."""
        self._process.send_signal(number)

    def end_leftovers(self, grace_seconds: float, talk: Callable[[str], None]) -> None:
        """After the command has ended: end what it left in its process group."""
        if self._group_ends_within(_SETTLING_SECONDS):
            return
        talk("the command has ended, but left processes behind; they are ended too")
        self.signal_group(signal.SIGCONT)
        self.signal_group(signal.SIGTERM)
        if not self._group_ends_within(grace_seconds):
            self.signal_group(signal.SIGKILL)

    def _group_ends_within(self, seconds: float) -> bool:
        # Nothing tells of the end of processes that are not our children: only asking does.
        deadline = time.monotonic() + seconds
        while _group_is_alive(self._process.pid):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LEFTOVER_POLL_SECONDS)
        return True


def start_failure(error: OSError, program: str) -> tuple[int, str]:
    """Exit status and words for a command that can't be started, as shells have them."""
    if error.errno == errno.ENOENT:
        return NOT_FOUND, f"{clean_text(program)}: command not found"
    return NOT_EXECUTABLE, f"{clean_text(program)}: {error.strerror}"


def _ignore(number: int, frame: FrameType | None) -> None:
    """The wake-up pipe has it."""


def _group_is_alive(group: int) -> bool:
    """Whether a process group has a process that is more than a zombie (proc(5)).

    The dead stay in it until their new parent takes notice, which can be long.
    """
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            text = Path(f"/proc/{name}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has gone meanwhile
        # Behind the program's name, which may hold anything: state, parent, group.
        state, _, of_group = text.rpartition(")")[2].split()[:3]
        if int(of_group) == group and state not in "ZX":
            return True
    return False
