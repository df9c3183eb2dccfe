"""The runs that slurmctld has on nodes now, with the cards it gave them."""

from __future__ import annotations

from slurmwrap.clock import Clock
from slurmwrap.model import JobRun
from slurmwrap.slurm.commands import SlurmCommands


class LiveJobs:
    """Asks slurmctld; one object lives as long as the service and remembers what it read.

    Args:
        card_gres: the generic resources that are cards (``accounting.card_gres``).
    """

    def __init__(self, commands: SlurmCommands, card_gres: tuple[str, ...], clock: Clock) -> None:
        raise NotImplementedError

    def list_runs(self) -> tuple[JobRun, ...]:
        """Every run that holds nodes now, ordered by raw job id.

        States: RUNNING, SUSPENDED, COMPLETING, CONFIGURING and the like; the caller decides
        which of them count. One small query per call, and one more when a run is new, was
        suspended or changed its nodes. A run whose cards slurmctld's answer does not name has
        ``cards_known`` False.

        Raises:
            SlurmUnavailableError, SlurmCommandError, SlurmOutputError: nothing is known then;
            the runs of the last call are still the best guess.
        """
        raise NotImplementedError

    def read_run(self, run: JobRun) -> JobRun | None:
        """The same run as it is this moment; None when it has left its nodes or was requeued.

        Identity is the raw id and the start. Asks slurmctld every time.

        Raises:
            SlurmUnavailableError, SlurmCommandError, SlurmOutputError.
        """
        raise NotImplementedError
