"""Jobs of one test on the testbed, and slurmwrap's way to its Slurm."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from slurmwrap.clock import SystemClock
from slurmwrap.config.settings import Duration, SlurmSettings
from slurmwrap.model import JobRun
from slurmwrap.slurm.accounting import AccountingRecords
from slurmwrap.slurm.commands import SlurmCommands
from slurmwrap.slurm.control import JobControl
from slurmwrap.slurm.live import LiveJobs
from testbed.cluster import Testbed

ALICE, BOB, CAROL = "swt-alice", "swt-bob", "swt-carol"
HOSTILE_NAME = os.fsdecode(b"a|b\r\nJobId=1 x=\xff \x1fy")


@dataclass
class Jobs:
    """Submits, finds and finally removes the jobs of one test."""

    testbed: Testbed
    submitted: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = SlurmSettings(conf=str(self.testbed.facts["slurm_conf"]))
        self.commands = SlurmCommands(settings)
        self.live = LiveJobs(self.commands, ("gpu",), SystemClock())
        self.control = JobControl(self.commands, self.live)
        self.records = AccountingRecords(self.commands, ("gpu",))

    def impatient_commands(self, seconds: int) -> SlurmCommands:
        conf = str(self.testbed.facts["slurm_conf"])
        return SlurmCommands(SlurmSettings(conf=conf, command_timeout=Duration(seconds)))

    def submit(self, *arguments: str, user: str = ALICE, seconds: int = 600, **options: str) -> int:
        """A sleeping job; its raw id (of an array: the array's)."""
        wrap = options.pop("wrap", f"exec sleep {seconds}")
        standard = ("--output=/dev/null", "--time=10", "--mem=50")
        job = self.testbed.submit(user, *standard, *arguments, wrap=wrap, **options)
        self.submitted.append(job)
        return job

    def runs(self, *jobs: int) -> dict[str, JobRun]:
        """The test's runs by the name that means each alone."""
        wanted = set(jobs or self.submitted)
        return {
            run.action_id: run
            for run in self.live.list_runs()
            if {run.key.job_id, run.array_job_id, run.het_job_id} & wanted
        }

    def wait_for_runs(self, count: int, *jobs: int) -> dict[str, JobRun]:
        """Once that many runs of the test are on nodes."""

        def listed() -> dict[str, JobRun]:
            runs = self.runs(*jobs)
            return runs if len(runs) == count else {}

        return self.testbed.wait_for(listed, 40, f"{count} runs of {jobs or self.submitted}")

    def run_as_root(self, *argv: str) -> str:
        return self.testbed.run_as("root", argv, check=True).stdout

    def remove(self) -> None:
        if not self.submitted:
            return
        names = [str(job) for job in self.submitted]
        self.testbed.run_as("root", ["scancel", *names])
        listing = ["squeue", "-h", "-t", "PD,R,S,CG,CF", "-o", "%A %F"]
        self.testbed.wait_for(
            lambda: not {*names} & set(self.testbed.run_as("root", listing).stdout.split()),
            30,
            f"{names} are gone",
        )


def listed_cards(run: JobRun) -> list[tuple[str, int, str]]:
    """The run's cards as node, index and type."""
    return [(item.card.node, item.card.index, item.gpu_type) for item in run.cards]
