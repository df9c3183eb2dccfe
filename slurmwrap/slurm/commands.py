"""Running one Slurm command: which program, in which environment, and what its end means."""

from __future__ import annotations

from collections.abc import Mapping

from slurmwrap.config.settings import SlurmSettings


class SlurmCommands:
    """Slurm's command-line programs, whatever the caller's environment says.

    Args:
        environment: the environment to start from; the process's own when None.
    """

    def __init__(
        self, settings: SlurmSettings, environment: Mapping[str, str] | None = None
    ) -> None:
        raise NotImplementedError

    def run(self, program: str, *arguments: str) -> str:
        """What the program printed on stdout. Bytes that are no UTF-8 become U+FFFD.

        Raises:
            SlurmUnavailableError: the program is missing, or a daemon of Slurm is away.
            SlurmCommandError: it failed otherwise, or did not end within
                ``slurm.command_timeout`` (status None).
        """
        raise NotImplementedError

    def cluster_name(self) -> str:
        """``slurm.cluster`` if set, else ClusterName as slurmctld says; asked once.

        Raises:
            SlurmUnavailableError, SlurmCommandError, SlurmOutputError.
        """
        raise NotImplementedError
