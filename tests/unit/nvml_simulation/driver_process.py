"""A child process that reads the simulated driver through the real pynvml."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass

MINORS = (3, 2, 1, 0)
# Answers each line, a Python expression, with one line of JSON: [value] or {"error": code}.
READER = """
import json, sys, threading
import pynvml as n
def plain(value):
    if isinstance(value, bytes): return value.decode()
    if isinstance(value, (list, tuple)): return [plain(item) for item in value]
    if hasattr(value, "_fields_"): return {f: plain(getattr(value, f)) for f, _ in value._fields_}
    if isinstance(value, n.c_uint): return value.value
    return value if isinstance(value, (int, float, str, dict, type(None))) else str(value)
def card(index): return n.nvmlDeviceGetHandleByIndex(index)
for line in sys.stdin:
    try:
        answer = [plain(eval(line))]
    except n.NVMLError as error:
        answer = {"error": error.value}
    print(json.dumps(answer), flush=True)
"""


class Reader:
    """A child process that has loaded the simulated driver through the real pynvml."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", READER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": os.environ["PATH"], **environment},
        )

    def ask(self, expression: str) -> Any:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(expression + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline()
        assert answer, f"the reader died of {expression}"
        decoded = json.loads(answer)
        return decoded["error"] if isinstance(decoded, dict) else decoded[0]

    def close(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.close()
        assert self.child.wait(10) == 0


def utils(driver: Reader) -> list[int]:
    return list(driver.ask("[n.nvmlDeviceGetUtilizationRates(card(i)).gpu for i in range(4)]"))
