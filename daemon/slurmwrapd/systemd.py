"""What a service tells systemd: that it is ready, that it is alive, what it is doing.

The protocol is a few words on a datagram socket (source: sd_notify(3)); without systemd
nothing is said and nothing fails.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"


def notify(*states: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Tell systemd, e.g. ``notify(READY, "STATUS=4 cards")``; False: nobody was told."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    text = "\n".join(state.replace("\n", " ") for state in states)
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    with socket.socket(socket.AF_UNIX, kind) as channel:
        try:
            channel.sendto(text.encode(errors="replace"), address)
        except OSError:
            # A service must neither die of a supervisor that went away, nor wait for one that
            # does not listen.
            return False
    return True


def watchdog_seconds(environment: Mapping[str, str] = os.environ) -> float | None:
    """How often WATCHDOG must be said: half of systemd's patience; None: not watched."""
    text = environment.get("WATCHDOG_USEC", "")
    watched = environment.get("WATCHDOG_PID", "")
    if not text.isdecimal() or (watched and watched != str(os.getpid())):
        return None
    return int(text) / 2_000_000 or None
