"""Which job, node and step this process is part of, as Slurm's environment variables say.

They name the run in messages and tell where to look. Nothing is allowed because of them: users
can set them to anything, and the daemon asks slurmctld.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class JobIdentity:
    """The process's place in Slurm. Everything is None or empty outside a job."""

    job_id: int | None
    """The raw job id."""
    shown_id: str
    """The job as its user writes it: 12, 12_3."""
    cluster: str
    start: int | None
    """When the run began, where this release of Slurm says so."""
    node: str
    """This node's name in Slurm; the host's own name outside a job."""
    node_list: str
    """Slurm's host list expression of the job's nodes."""
    node_count: int
    is_step: bool
    """Started by srun, not the batch script itself."""
    task_rank: int
    cards_on_node: int | None

    @property
    def spans_nodes(self) -> bool:
        """Whether this process speaks for several nodes: it is the batch script of them."""
        return self.job_id is not None and self.node_count > 1 and not self.is_step


def read_identity(environment: Mapping[str, str]) -> JobIdentity:
    """The identity that the environment gives."""
    job_id = _whole(environment.get("SLURM_JOB_ID"))
    array_id = environment.get("SLURM_ARRAY_JOB_ID")
    task_id = environment.get("SLURM_ARRAY_TASK_ID")
    shown_id = f"{array_id}_{task_id}" if array_id and task_id else str(job_id or "")
    return JobIdentity(
        job_id=job_id,
        shown_id=shown_id,
        cluster=environment.get("SLURM_CLUSTER_NAME", ""),
        start=_whole(environment.get("SLURM_JOB_START_TIME")) or None,
        node=environment.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0],
        node_list=environment.get("SLURM_JOB_NODELIST", ""),
        node_count=_whole(environment.get("SLURM_JOB_NUM_NODES")) or 1,
        is_step=_whole(environment.get("SLURM_STEP_ID")) is not None,
        task_rank=_whole(environment.get("SLURM_PROCID")) or 0,
        cards_on_node=_whole(environment.get("SLURM_GPUS_ON_NODE")),
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() else None
