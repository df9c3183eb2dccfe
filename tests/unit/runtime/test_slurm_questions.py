"""What Slurm's answers mean for the supervisor."""

from __future__ import annotations

from slurmwrap.errors import SlurmUnavailableError
from slurmwrap.runtime.identity import read_identity
from slurmwrap.runtime.slurm_questions import (
    ask_node_address,
    ask_node_names,
    ask_start,
    live_job_ids,
)


def away(program: str, *arguments: str) -> str:
    raise SlurmUnavailableError("slurmctld is away")


def test_live_jobs_are_those_on_nodes() -> None:
    """Ended and waiting jobs hold nothing; states nobody knows do, to be on the safe side."""
    answer = (
        "1|RUNNING\n2|COMPLETED\n3|SUSPENDED\n4|PENDING\n5|COMPLETING\n6|BRAND_NEW\n7|TIMEOUT\n"
    )
    assert live_job_ids(lambda *words: answer) == frozenset({1, 3, 5, 6})


def test_silence_is_not_an_empty_answer() -> None:
    """When Slurm does not answer, nothing is known; an empty list means that there are none."""
    assert live_job_ids(away) is None
    assert live_job_ids(lambda *words: "") == frozenset()


def test_start_is_that_of_this_task_alone() -> None:
    """Raw id 40 is also the id of the array: squeue lists its other tasks, which don't count."""
    assert ask_start(lambda *words: "38|1700000000\n40|1700000123\n39|N/A\n", 40) == 1700000123
    assert ask_start(lambda *words: "40|N/A\n", 40) is None
    assert ask_start(away, 40) is None


def test_node_names_and_address() -> None:
    """Names come in Slurm's order; the address is NodeAddr."""
    assert ask_node_names(lambda *words: "gpu1\ngpu2\n", "gpu[1-2]") == ("gpu1", "gpu2")
    node = "NodeName=gpu1 Arch=x86_64 NodeAddr=10.0.0.1 NodeHostName=vm"
    assert ask_node_address(lambda *words: node, "gpu1") == "10.0.0.1"
    assert ask_node_address(away, "gpu1") is None


def test_identity_outside_a_job_is_empty() -> None:
    """Without Slurm's variables there is no job, and one node: this one."""
    identity = read_identity({})
    assert (identity.job_id, identity.node_count, identity.spans_nodes) == (None, 1, False)
    assert identity.node


def test_identity_in_the_batch_script_of_an_array_task() -> None:
    """The raw id is the key; people see ARRAY_TASK."""
    identity = read_identity(
        {
            "SLURM_JOB_ID": "41",
            "SLURM_ARRAY_JOB_ID": "40",
            "SLURM_ARRAY_TASK_ID": "1",
            "SLURM_CLUSTER_NAME": "testbed",
            "SLURMD_NODENAME": "gpu1",
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_JOB_NODELIST": "gpu[1-2]",
            "SLURM_PROCID": "0",
            "SLURM_GPUS_ON_NODE": "4",
        }
    )
    assert (identity.job_id, identity.shown_id, identity.node) == (41, "40_1", "gpu1")
    assert identity.spans_nodes
    assert identity.cards_on_node == 4


def test_step_speaks_for_its_own_node() -> None:
    """Inside srun the process is one of several: it must not start steps for all nodes."""
    identity = read_identity(
        {"SLURM_JOB_ID": "41", "SLURM_JOB_NUM_NODES": "2", "SLURM_STEP_ID": "0"}
    )
    assert not identity.spans_nodes
