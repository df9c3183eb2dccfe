"""Finding what would silently ruin accounting or evidence, each with the next step."""

from __future__ import annotations

from slurmwrap.api import HealthCheck
from slurmwrap.clock import Clock
from slurmwrap.config import Config
from slurmwrap.slurm.commands import SlurmCommands


def check_slurm(config: Config, commands: SlurmCommands, clock: Clock) -> tuple[HealthCheck, ...]:
    """One line per thing that was looked at; never raises for what Slurm says or does not say."""
    raise NotImplementedError
