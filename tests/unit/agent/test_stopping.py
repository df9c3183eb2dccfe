"""Being asked to stop, with real signals."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

LOOP = """
from slurmwrapd.agent.stopping import StopRequest
stop = StopRequest()
stop.install()
print("ready", flush=True)
print(stop.wait(60), flush=True)
{after}
"""


def start(after: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", LOOP.format(after=after)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks(number: signal.Signals) -> None:
    """The waiting ends at once and says so; the process goes on to its own end."""
    child = start("")
    child.send_signal(number)
    output, _ = child.communicate(timeout=20)
    assert (output, child.returncode) == ("True\n", 0)


def test_the_second_signal_ends_the_process() -> None:
    """A loop that does not come to its end is left at once, with the signal in the status."""
    child = start("import time; time.sleep(60)")
    assert child.stdout is not None
    child.send_signal(signal.SIGTERM)
    assert child.stdout.readline() == "True\n"
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=20)
    assert child.returncode == 128 + signal.SIGTERM
