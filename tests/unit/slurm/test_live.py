"""The runs on nodes now, from a real listing and from failing commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurmwrap.clock import SteppedClock
from slurmwrap.errors import SlurmCommandError, SlurmOutputError, SlurmUnavailableError
from slurmwrap.model import JobRun, RunKey
from slurmwrap.slurm.live import LiveJobs, parse_listing

RECORDED_AT = 1796063806
"""When the recorded listing was printed, by `date +%s`."""


def cards(run: JobRun) -> list[tuple[str, int, str]]:
    return [(item.card.node, item.card.index, item.gpu_type) for item in run.cards]


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock(RECORDED_AT)


@pytest.fixture
def live(slurm, recorded: Path, clock: SteppedClock) -> LiveJobs:
    slurm.answer("squeue", recorded / "squeue-listing.txt")
    slurm.answer("squeue", recorded / "squeue.json", when="--json")
    return LiveJobs(slurm.commands(), ("gpu",), clock)


def line(
    job_id: int = 1,
    *,
    start: int = 1000,
    state: str = "RUNNING",
    used: str = "0:10",
    nodes: str = "n1",
    limit: str = "10:00",
) -> str:
    """One line of the listing."""
    fields = [job_id, job_id, "N/A", state, start, 990, used, limit, 1001, "alice", "vision"]
    return "\x1f".join(map(str, [*fields, "gpu", "normal", "(null)", nodes])) + "\n"


def details(job_id: int = 1, *, start: int = 1000, **changes: Any) -> str:
    """squeue's JSON with one job."""
    job = {
        "job_id": job_id,
        "job_state": "RUNNING",
        "start_time": start,
        "name": "train",
        "comment": "",
        "nodes": "n1",
        "job_resources": {"nodes": "n1"},
        "gres_detail": ["gpu:a100:1(IDX:0)"],
        "suspend_time": 0,
        "pre_sus_time": 0,
    }
    return json.dumps({"jobs": [job | changes]})


def set_answers(slurm, listing: str, answer: str) -> None:
    slurm.answer("squeue", listing)
    slurm.answer("squeue", answer, when="--json")


def test_real_runs_with_their_cards(live: LiveJobs) -> None:
    """A1, A7, A8: host cards as slurmctld gave them; a job on two nodes has cards on both."""
    runs = {run.key.job_id: run for run in live.list_runs()}
    assert list(runs) == [10, 11, 12, 13, 14, 15, 16, 17]
    assert cards(runs[10]) == [("gpu1", 0, "a100")]
    assert cards(runs[15]) == [("gpu1", 2, "a100"), ("gpu2", 3, "h800")]
    assert runs[15].nodes == ("gpu1", "gpu2")
    assert cards(runs[16]) == []
    assert all(run.cards_known for run in runs.values())


def test_a_real_run_in_full(live: LiveJobs) -> None:
    """Every field of the run that was suspended for 4 s and goes on."""
    run = next(run for run in live.list_runs() if run.key.job_id == 17)
    assert run.key == RunKey(cluster="testbed", job_id=17, start=1796063798)
    assert (run.state, run.suspended_seconds) == ("RUNNING", 4)
    assert (run.user, run.uid, run.account) == ("swt-bob", 1002, "nlp")
    assert (run.partition, run.qos, run.reservation) == ("gpu", "normal", "")
    assert (run.name, run.comment) == ("susp", "")
    assert (run.submit, run.time_limit_seconds) == (1796063798, 600)
    assert (run.array_job_id, run.array_task_id, run.het_job_id) == (None, None, None)


def test_every_run_has_a_name_that_means_it_alone(live: LiveJobs) -> None:
    """A10: raw id 11 is the array's own id; its task is 11_1, and never 11."""
    names = {run.key.job_id: run.action_id for run in live.list_runs()}
    assert names == {
        10: "10",
        11: "11_1",
        14: "11_0",
        12: "12+0",
        13: "12+1",
        15: "15",
        16: "16",
        17: "17",
    }


def test_a_hostile_name_breaks_nothing(live: LiveJobs) -> None:
    """B13: the listing has no free text; the name is made safe to show."""
    run = next(run for run in live.list_runs() if run.key.job_id == 16)
    mark = "\N{REPLACEMENT CHARACTER}"
    assert run.name == f'bad{mark}|x{mark}{mark}y{mark}z "q"'
    assert run.comment == '{"a": "b c=1"}\nJobId=99'
    assert (run.state, run.time_limit_seconds) == ("SUSPENDED", 7 * 86400)


def test_details_are_read_once_per_run(live: LiveJobs, slurm) -> None:
    """One small query per call; the expensive one only while something is new."""
    first = live.list_runs()
    assert live.list_runs() == first
    assert ["--json" in call for call in slurm.calls("squeue")] == [False, True, False]
    assert "--jobs=15,17,10,14,12,13,11,16" in slurm.calls("squeue")[1]


def test_hidden_partitions_and_ended_jobs(live: LiveJobs, slurm) -> None:
    """--all shows hidden partitions too; jobs that complete have ended and are not asked for."""
    live.list_runs()
    words = slurm.calls("squeue")[0].split()
    assert {"--all", "--local", "--noheader"} <= set(words)
    states = next(word for word in words if word.startswith("--states=")).split("=")[1].split(",")
    assert {"RUNNING", "SUSPENDED"} <= set(states)
    assert not {"PENDING", "COMPLETING", "COMPLETED"} & set(states)


def test_no_runs_is_an_answer(slurm, clock: SteppedClock) -> None:
    """An empty cluster has no runs, and no details are asked for."""
    slurm.answer("squeue", "")
    assert LiveJobs(slurm.commands(), ("gpu",), clock).list_runs() == ()
    assert len(slurm.calls("squeue")) == 1


def test_a_failure_is_never_no_runs(live: LiveJobs, slurm) -> None:
    """slurmctld away, a refusal, a hang or garbage: an error each time, not an empty answer."""
    words = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    slurm.answer("squeue", status=1, stderr=words)
    with pytest.raises(SlurmUnavailableError):
        live.list_runs()
    slurm.answer("squeue", status=1, stderr="squeue: error: something else")
    with pytest.raises(SlurmCommandError):
        live.list_runs()
    slurm.answer("squeue", "None\n")
    with pytest.raises(SlurmOutputError, match="1 columns instead of 15"):
        live.list_runs()


def test_details_that_fail_are_no_runs_without_cards(live: LiveJobs, slurm, recorded) -> None:
    """The listing came, the details did not: the call fails as a whole."""
    slurm.answer("squeue", recorded / "squeue-slurmctld-away.json", when="--json")
    with pytest.raises(SlurmUnavailableError):
        live.list_runs()


@pytest.mark.parametrize("broken", ["x", "", "12.5", "Unknown"])
def test_a_line_without_a_start_is_refused(broken: str) -> None:
    """A run without a start has no identity; who lists the runs is told."""
    text = line().replace("1000", broken, 1)
    with pytest.raises(SlurmOutputError):
        parse_listing(text)


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("10:00", 600), ("7-00:00:00", 604800), ("UNLIMITED", None), ("INVALID", None), ("N/A", None)],
)
def test_time_limits(limit: str, seconds: int | None) -> None:
    """Limits as squeue prints them; None is no limit."""
    assert parse_listing(line(limit=limit))[0].time_limit_seconds == seconds


def test_a_requeued_job_is_another_run(slurm, clock: SteppedClock) -> None:
    """V5: same id, new start: another key, and its details are read again."""
    clock.set(1010)
    live = LiveJobs(slurm.commands(), ("gpu",), clock)
    set_answers(slurm, line(), details())
    (first,) = live.list_runs()
    set_answers(slurm, line(start=2000), details(start=2000, gres_detail=["gpu:a100:1(IDX:3)"]))
    clock.set(2010)
    (second,) = live.list_runs()
    assert (first.key.start, second.key.start) == (1000, 2000)
    assert (cards(first), cards(second)) == ([("n1", 0, "a100")], [("n1", 3, "a100")])


@pytest.mark.parametrize(
    "changes",
    [
        {"job_state": "COMPLETED", "gres_detail": []},
        {"job_state": ["CANCELLED", "COMPLETING"]},
        {"job_state": "NODE_FAIL"},
        {"job_state": "PENDING", "start_time": 0},
        {"start_time": 2000},
    ],
)
def test_a_run_that_ended_between_two_queries_is_left_out(
    slurm, clock: SteppedClock, changes: dict[str, Any]
) -> None:
    """The details show another state or start than the listing: it is no longer on nodes."""
    set_answers(slurm, line(), details(**changes))
    assert LiveJobs(slurm.commands(), ("gpu",), clock).list_runs() == ()


def test_a_run_that_was_purged_between_two_queries_is_left_out(slurm, clock) -> None:
    """slurmctld forgot the job after the listing (small MinJobAge)."""
    slurm.answer("squeue", line())
    words = "slurm_load_jobs error: Invalid job id specified"
    slurm.answer("squeue", status=1, stderr=words, when="--json")
    assert LiveJobs(slurm.commands(), ("gpu",), clock).list_runs() == ()


def test_unknown_cards_are_said_and_asked_for_again(slurm, clock: SteppedClock) -> None:
    """Unknown cards are flagged; they are asked for three times, not at every tick for ever."""
    set_answers(slurm, line(), details(gres_detail=["gpu:a100:1(CNT:1)"]))
    clock.set(1010)
    live = LiveJobs(slurm.commands(), ("gpu",), clock)
    for _ in range(5):
        (run,) = live.list_runs()
        assert (run.cards, run.cards_known) == ((), False)
    assert sum("--json" in call for call in slurm.calls("squeue")) == 3


def test_cards_that_become_known(slurm, clock: SteppedClock) -> None:
    """The second answer names the cards."""
    live = LiveJobs(slurm.commands(), ("gpu",), clock)
    set_answers(slurm, line(), details(gres_detail=[], tres_alloc_str="gres/gpu=1"))
    assert not live.list_runs()[0].cards_known
    set_answers(slurm, line(), details(tres_alloc_str="gres/gpu=1"))
    assert live.list_runs()[0].cards_known


def test_a_resized_run_has_its_new_cards(slurm, clock: SteppedClock) -> None:
    """B7: fewer nodes of the same run: cards are read anew."""
    live = LiveJobs(slurm.commands(), ("gpu",), clock)
    both = {"job_resources": {"nodes": "n[1-2]"}, "gres_detail": ["gpu:1(IDX:0)", "gpu:1(IDX:1)"]}
    set_answers(slurm, line(nodes="n[1-2]"), details(**both))
    assert len(live.list_runs()[0].cards) == 2
    set_answers(slurm, line(nodes="n1"), details(gres_detail=["gpu:1(IDX:0)"]))
    assert cards(live.list_runs()[0]) == [("n1", 0, "")]


def test_suspended_time(slurm, clock: SteppedClock) -> None:
    """V6: while suspended, what passed without being run time; afterwards what slurmctld says
    to the second. A second between two clocks is no suspension."""
    live = LiveJobs(slurm.commands(), ("gpu",), clock)
    resumed = {"suspend_time": 1060, "pre_sus_time": 20}
    twice = {"suspend_time": 1110, "pre_sus_time": 30}
    seen = []
    for now, used, state, changes in [
        (1011, "0:10", "RUNNING", {"suspend_time": 0, "pre_sus_time": 0}),
        (1021, "0:20", "RUNNING", {"suspend_time": 0, "pre_sus_time": 0}),
        (1060, "0:20", "SUSPENDED", {"suspend_time": 1020, "pre_sus_time": 20}),
        (1066, "0:25", "RUNNING", resumed),
        (1070, "0:30", "RUNNING", resumed),
        (1121, "0:41", "RUNNING", twice),
    ]:
        clock.set(now)
        job_state = "SUSPENDED" if state == "SUSPENDED" else ["RUNNING"]
        set_answers(slurm, line(used=used, state=state), details(job_state=job_state, **changes))
        seen.append(live.list_runs()[0].suspended_seconds)
    assert seen == [0, 0, 40, 40, 40, 80]
    assert sum("--json" in call for call in slurm.calls("squeue")) == 3


def test_a_clock_that_is_off_invents_no_suspension(slurm, clock: SteppedClock) -> None:
    """Two hours between our clock and squeue's: slurmctld's own word counts."""
    set_answers(slurm, line(), details(suspend_time=0, pre_sus_time=0))
    clock.set(1010 + 7200)
    assert LiveJobs(slurm.commands(), ("gpu",), clock).list_runs()[0].suspended_seconds == 0


def test_a_run_is_read_again_by_its_own_name(live: LiveJobs, slurm) -> None:
    """X4: the same run this moment; of an array only the task that was named."""
    task = next(run for run in live.list_runs() if run.action_id == "11_1")
    assert live.read_run(task) == task
    assert "--jobs=11_1" in slurm.calls("squeue")[-1]


@pytest.mark.parametrize("listing", ["", line(11, start=2000)])
def test_a_run_that_ended_or_was_requeued_is_none(live: LiveJobs, slurm, listing: str) -> None:
    """X4: gone from the nodes, or another start under the same id."""
    task = next(run for run in live.list_runs() if run.action_id == "11_1")
    slurm.answer("squeue", listing, when="--jobs=11_1")
    assert live.read_run(task) is None


def test_a_purged_run_is_none(live: LiveJobs, slurm) -> None:
    """slurmctld no longer knows the id: nothing runs under it."""
    run = live.list_runs()[0]
    words = "slurm_load_jobs error: Invalid job id specified"
    slurm.answer("squeue", status=1, stderr=words, when="--jobs=10")
    assert live.read_run(run) is None


def test_a_failed_look_is_not_an_ended_run(live: LiveJobs, slurm) -> None:
    """slurmctld away while re-reading: an error, since nothing is known."""
    run = live.list_runs()[0]
    words = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    slurm.answer("squeue", status=1, stderr=words)
    with pytest.raises(SlurmUnavailableError):
        live.read_run(run)


def test_many_new_runs_fit_on_a_command_line(slurm, clock: SteppedClock) -> None:
    """Any number of ids is not put on the command line, whose length is bounded."""
    jobs = [json.loads(details(job_id))["jobs"][0] for job_id in range(100000, 101000)]
    listing = "".join(line(job["job_id"]) for job in jobs)
    set_answers(slurm, listing, json.dumps({"jobs": jobs}))
    runs = LiveJobs(slurm.commands(), ("gpu",), clock).list_runs()
    assert len(runs) == 1000
    assert "--jobs" not in slurm.calls("squeue")[1]
