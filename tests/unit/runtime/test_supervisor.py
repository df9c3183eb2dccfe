"""The supervisor in this process: what it reports of many nodes, and what it does without."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from slurmwrap.clock import SteppedClock
from slurmwrap.model import Phase
from slurmwrap.runtime.identity import read_identity
from slurmwrap.runtime.node_staging import NodeCopy
from slurmwrap.runtime.supervisor import RunPlan, Supervisor


class RecordedReporter:
    """Keeps the phases that it is told, as the daemon would: one per name, node and start."""

    def __init__(self) -> None:
        self.phases: dict[tuple[str, str, int], Phase] = {}

    def start(self) -> None:
        pass

    def note_phases(self, phases: list[Phase]) -> None:
        self.phases.update({(p.name, p.node, p.started_at): p for p in phases})

    def finish(self, timeout_seconds: float) -> bool:
        return True


def supervise(
    command: Sequence[str], nodes: Sequence[str], log: list[str], sources: tuple[str, ...] = ()
) -> tuple[int, list[Phase]]:
    reporter = RecordedReporter()

    def stage(source: str, is_cancelled: Callable[[], bool]) -> dict[str, NodeCopy]:
        return {node: NodeCopy(node, f"/nvme/{source}", False, f"{node}: copied") for node in nodes}

    supervisor = Supervisor(
        RunPlan(command=tuple(command), sources=sources),
        read_identity({"SLURM_JOB_ID": "12", "SLURMD_NODENAME": nodes[0]}),
        nodes,
        stage=stage,
        prepare_start=lambda words, environment: (list(words), environment),
        make_reporter=lambda metrics: reporter,
        clock=SteppedClock(1000),
        talk=log.append,
    )
    return supervisor.run(), list(reporter.phases.values())


def test_phases_of_few_nodes_name_each() -> None:
    """Every node's staging has a row of its own."""
    status, phases = supervise(["true"], ["n1", "n2"], [], ("data",))
    assert status == 0
    assert [(p.node, p.detail) for p in phases if p.name == "staging"] == [
        ("n1", "n1: copied"),
        ("n2", "n2: copied"),
    ]


def test_phases_of_two_thousand_nodes_are_merged() -> None:
    """The daemon keeps 500 phases of a run: more nodes than that must not lose the staging."""
    nodes = [f"n{number}" for number in range(2000)]
    _, phases = supervise(["true"], nodes, [], ("data",))
    [staging] = [phase for phase in phases if phase.name == "staging"]
    assert (staging.node, staging.detail) == ("2000 nodes", "first node: n0: copied")
    assert staging.ended_at is not None
    assert [phase.name for phase in phases] == ["staging", "running", "ending"]


def test_flood_of_signals_leaves_room_for_the_end() -> None:
    """A program that signals its supervisor for ever is reported 100 times at most."""
    script = f"i=0; while [ $i -lt 300 ]; do kill -{int(signal.SIGUSR2)} $PPID; i=$((i+1)); done"
    log: list[str] = []
    status, phases = supervise(["sh", "-c", script], ["n1"], log)
    assert status == 0
    assert len(phases) <= 102
    assert phases[-1].name == "ending"


def test_no_room_for_metrics_does_not_end_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A temporary folder that can't be written: one line, no metrics, and the command runs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    log: list[str] = []
    monkeypatch.setenv("SLURMWRAP_METRICS", "/somebody/elses")
    status, _ = supervise(["sh", "-c", 'exit "0$SLURMWRAP_METRICS"'], ["n1"], log)
    assert status == 0
    assert log == ["can't make a folder for metrics (No such file or directory): they are not kept"]
