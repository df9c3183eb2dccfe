"""What can go wrong while a testbed is brought up, used or taken down."""

from __future__ import annotations


class TestbedError(Exception):
    """Something the person at the keyboard can act on; the message says what and where."""

    __test__ = False  # pytest collects classes by their name


class NotSupported(TestbedError):
    """This machine can't carry a testbed (not root, not Debian)."""


class DaemonFailed(TestbedError):
    """A daemon ended or did not become ready; carries the tail of its log."""

    def __init__(self, daemon: str, reason: str, log_tail: str = "") -> None:
        self.daemon = daemon
        self.log_tail = log_tail
        text = f"{daemon} {reason}"
        if log_tail:
            text += f"; its log ends with:\n{log_tail}"
        super().__init__(text)


class WaitTimeout(TestbedError):
    """What was awaited did not come true in time."""
