"""Identities of jobs and cards."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slurmwrap.model import (
    UTILISATION_BINS,
    UTILISATION_EDGES,
    Card,
    CardReading,
    JobRun,
    ReadStatus,
    RunKey,
)


def make_run(**changes: Any) -> JobRun:
    run = JobRun(
        key=RunKey(cluster="c1", job_id=12, start=100),
        state="RUNNING",
        user="alice",
        uid=1001,
        account="physics",
        partition="gpu",
        qos="normal",
        name="train",
        comment="",
        reservation="",
        submit=90,
        time_limit_seconds=None,
        nodes=("gpu1",),
        cards=(),
    )
    return msgspec.structs.replace(run, **changes)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        pytest.param({}, "12", id="plain"),
        pytest.param(
            {"array_job_id": 12, "array_task_id": 3}, "12_3", id="S1: task with the array's id"
        ),
        pytest.param({"array_job_id": 10, "array_task_id": 0}, "10_0", id="task zero"),
        pytest.param({"het_job_id": 11, "het_offset": 0}, "11+0", id="A11: leader"),
        pytest.param({"het_job_id": 11, "het_offset": 2}, "11+2", id="A11: component"),
        pytest.param({"array_job_id": 12}, "12", id="array without a task"),
    ],
)
def test_actions_name_one_job_alone(changes: dict[str, int], name: str) -> None:
    """A10, S1: what is given to scancel never names the other tasks of an array."""
    assert make_run(**changes).action_id == name


def test_the_same_id_later_is_another_run() -> None:
    """B21: ids are recycled; cluster, id and start together are the run."""
    first = RunKey(cluster="c1", job_id=12, start=100)
    assert first == RunKey(cluster="c1", job_id=12, start=100)
    assert (
        len(
            {
                first,
                RunKey(cluster="c1", job_id=12, start=101),
                RunKey(cluster="c2", job_id=12, start=100),
            }
        )
        == 3
    )


def test_cards_sort_by_node_and_index() -> None:
    """Listings have one order."""
    assert sorted([Card("n2", 0), Card("n1", 10), Card("n1", 2)]) == [
        Card("n1", 2),
        Card("n1", 10),
        Card("n2", 0),
    ]


def test_bins_lie_between_rising_edges_over_the_whole_scale() -> None:
    """Every percentage from 0 to 100 has a bin."""
    assert UTILISATION_EDGES[0] == 0
    assert UTILISATION_EDGES[-1] == 100
    assert list(UTILISATION_EDGES) == sorted(set(UTILISATION_EDGES))
    assert len(UTILISATION_EDGES) - 1 == UTILISATION_BINS


def test_a_reading_that_failed_travels_as_unknown() -> None:
    """What could not be read arrives as null with its status, never as 0."""
    reading = CardReading(
        node="gpu1", index=0, started_at=0, ended_at=30, status=ReadStatus.NOT_SUPPORTED, reads=0
    )
    document = msgspec.json.decode(msgspec.json.encode(reading))
    assert document["status"] == "not_supported"
    assert document["utilisation_mean"] is None
    assert document["memory_used_bytes"] is None
    assert msgspec.json.decode(msgspec.json.encode(reading), type=CardReading) == reading
