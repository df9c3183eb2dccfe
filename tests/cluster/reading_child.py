"""Reads slurmdbd's records over and over, as a process that a test kills: CONFIG AT."""

from __future__ import annotations

import sys
from pathlib import Path

from slurmwrap.clock import SteppedClock
from slurmwrap.config import load_config
from slurmwrapd.accounting import read_accounting
from slurmwrapd.service import Service


def main() -> None:
    config, at = Path(sys.argv[1]), int(sys.argv[2])
    service = Service.start(load_config(config).config, SteppedClock(at))
    print("ready", flush=True)
    while True:
        read_accounting(service)


if __name__ == "__main__":
    main()
