"""What slurmctld says of single jobs in JSON, in the forms of several versions."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from slurmwrap.errors import SlurmOutputError, SlurmUnavailableError
from slurmwrap.slurm.jobs import JobDetails, parse_gres_detail, parse_jobs

RECORDED = Path(__file__).parents[2] / "data/slurm/22.05"


def cards(details: JobDetails) -> list[tuple[str, int, str]]:
    return [(item.card.node, item.card.index, item.gpu_type) for item in details.cards]


def recorded_jobs() -> dict[int, JobDetails]:
    text = (RECORDED / "squeue.json").read_text(encoding="utf-8", errors="replace")
    return parse_jobs(text, range(100), ("gpu",))


def one(**changes: Any) -> JobDetails:
    """A job of two nodes in the form of 22.05, with some fields changed."""
    job = {
        "job_id": 7,
        "job_state": "RUNNING",
        "start_time": 1796063798,
        "name": "wide",
        "nodes": "gpu[1-2]",
        "gres_detail": ["gpu:a100:1(IDX:2)", "gpu:h800:1(IDX:3)"],
        "job_resources": {"nodes": "gpu[1-2]"},
        "tres_alloc_str": "cpu=2,gres/gpu=2,gres/gpu:a100=1,gres/gpu:h800=1",
    }
    return parse_jobs(json.dumps({"jobs": [job | changes]}), (7,), ("gpu",))[7]


def test_every_running_job_has_the_cards_that_scontrol_shows() -> None:
    """A real 22.05: cards as `scontrol -d show job` printed them at the same moment."""
    jobs = recorded_jobs()
    assert cards(jobs[10]) == [("gpu1", 0, "a100")]
    assert cards(jobs[12]) == [("gpu1", 1, "a100")]
    assert cards(jobs[13]) == [("gpu2", 2, "h800")]
    assert cards(jobs[14]) == [("gpu2", 0, "h800")]
    assert cards(jobs[11]) == [("gpu2", 1, "h800")]
    assert cards(jobs[15]) == [("gpu1", 2, "a100"), ("gpu2", 3, "h800")]
    assert cards(jobs[16]) == []
    assert cards(jobs[17]) == [("gpu1", 3, "a100")]
    assert [job for job in range(10, 18) if jobs[job].unknown_cards] == []


def test_an_ended_job_has_unknown_cards() -> None:
    """slurmctld has taken them back (gres_detail is empty) but still says how many they were."""
    assert "1 cards" in recorded_jobs()[1].unknown_cards


def test_components_of_a_heterogeneous_job_know_their_leader() -> None:
    """Leader and offset as squeue's %i shows them (12+0, 12+1); other jobs have neither."""
    jobs = recorded_jobs()
    assert [(jobs[job].het_job_id, jobs[job].het_offset) for job in (12, 13, 10)] == [
        (12, 0),
        (12, 1),
        (None, None),
    ]


def test_hostile_text_stays_text() -> None:
    """B13: a name with |, CR, newline, a control character and a broken byte, and a comment
    that imitates Slurm's own output."""
    details = recorded_jobs()[16]
    assert details.name == 'bad\N{REPLACEMENT CHARACTER}|x\r\ny\x1fz "q"'
    assert details.comment == '{"a": "b c=1"}\nJobId=99'


def test_only_the_wanted_jobs_are_read() -> None:
    """22.05 prints every job whatever was asked for."""
    text = (RECORDED / "squeue.json").read_text(encoding="utf-8", errors="replace")
    assert set(parse_jobs(text, {15, 999}, ("gpu",))) == {15}


def test_an_error_inside_json_is_an_error() -> None:
    """With slurmctld stopped squeue 22.05 exits with 0, an empty list of jobs and an error."""
    text = (RECORDED / "squeue-slurmctld-away.json").read_text()
    with pytest.raises(SlurmUnavailableError, match="Failed while looking for jobs"):
        parse_jobs(text, {1}, ("gpu",))


def test_a_job_that_nobody_knows_is_no_error() -> None:
    """A job that was purged meanwhile is missing from the answer."""
    text = '{"jobs": [], "errors": [{"error": "Invalid job id specified", "error_number": 2017}]}'
    assert parse_jobs(text, {1}, ("gpu",)) == {}


@pytest.mark.parametrize(
    "text", ["", "slurm", "[]", '{"jobs": {}}', '{"errors": []}', '{"jobs": [']
)
def test_what_is_not_squeues_json_is_refused(text: str) -> None:
    """Something else than the answer is never taken for `no jobs`."""
    with pytest.raises(SlurmOutputError):
        parse_jobs(text, {1}, ("gpu",))


def test_a_job_of_unknown_form_has_unknown_cards() -> None:
    """One job that can't be read does not hide the others, and is not dropped."""
    text = json.dumps(
        {
            "jobs": [
                {"job_id": 1, "gres_detail": {"new": "form"}},
                {"job_id": 2, "nodes": "n1", "gres_detail": ["gpu:1(IDX:0)"]},
            ]
        }
    )
    jobs = parse_jobs(text, {1, 2}, ("gpu",))
    assert "unknown form" in jobs[1].unknown_cards
    assert cards(jobs[2]) == [("n1", 0, "")]


def test_number_objects_and_state_lists_are_read() -> None:
    """23.02 and later: {"set", "infinite", "number"}, lists of states, nodes as an object."""
    details = one(
        job_state=["RUNNING", "CONFIGURING"],
        start_time={"set": True, "infinite": False, "number": 1796063798},
        het_job_id={"set": True, "infinite": False, "number": 0},
        het_job_offset={"set": True, "infinite": False, "number": 0},
        job_resources={"nodes": {"count": 2, "list": "gpu[1-2]", "allocation": []}},
    )
    assert (details.state, details.start) == ("RUNNING CONFIGURING", 1796063798)
    assert (details.het_job_id, details.het_offset) == (None, None)
    assert cards(details) == [("gpu1", 2, "a100"), ("gpu2", 3, "h800")]


def test_the_allocations_own_node_list_decides() -> None:
    """While a job completes, `nodes` loses those that are done; the cards still belong to all."""
    assert cards(one(nodes="gpu2")) == [("gpu1", 2, "a100"), ("gpu2", 3, "h800")]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gres_detail": ["gpu:a100:1(IDX:2)"]}, "1 entries of gres_detail for 2 nodes"),
        ({"gres_detail": []}, "2 cards"),
        ({"gres_detail": ["gpu:a100:1(CNT:1)", "gpu:h800:1(IDX:3)"]}, "names 0"),
        ({"gres_detail": ["gpu:a100:2(IDX:2)", "gpu:h800:1(IDX:3)"]}, "names 1"),
        ({"gres_detail": ["gpu:a100:1(IDX:2)", ""]}, "indexes of 1"),
        ({"gres_detail": ["something new", ""]}, "no list of generic resources"),
        ({"job_resources": {"nodes": "gpu[1-"}}, "not closed"),
        ({"tres_alloc_str": "gres/gpu=8"}, "8 cards"),
    ],
)
def test_cards_that_are_not_sure_are_unknown(changes: dict[str, Any], reason: str) -> None:
    """An allocation that contradicts itself names no card, and says why."""
    details = one(**changes)
    assert details.cards == ()
    assert reason in details.unknown_cards


def test_a_cluster_that_does_not_track_cards_is_believed() -> None:
    """B31: without gres/gpu in the allocated TRES the live indexes stand alone."""
    assert len(one(tres_alloc_str="cpu=2,mem=200M,node=2").cards) == 2


def test_memory_of_a_card_is_no_card() -> None:
    """gres/gpumem in the allocated TRES is not compared with the number of cards."""
    assert len(one(tres_alloc_str="cpu=2,gres/gpumem=80G,gres/gpuutil=100").cards) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:a100:2(IDX:0,3)", [("a100", 0), ("a100", 3)]),
        ("gpu:2(IDX:0-1)", [("", 0), ("", 1)]),
        (
            "gpu:h100:2(IDX:0-1),gpu:h200:4(IDX:2-5)",
            [("h100", 0), ("h100", 1), ("h200", 2), ("h200", 3), ("h200", 4), ("h200", 5)],
        ),
        ("gpu:a100_3g.20gb:1(IDX:5)", [("a100_3g.20gb", 5)]),
        ("gpu:a100:3(IDX:0-1,3),shard:a100:2(0/4,2/4)", [("a100", 0), ("a100", 1), ("a100", 3)]),
        ("shard:4(CNT:4)", []),
        ("gpu:a100:0(IDX:)", []),
        ("", []),
    ],
)
def test_the_indexes_of_one_node(text: str, expected: list[tuple[str, int]]) -> None:
    """Ranges, types, slices and other resources in one node's entry."""
    assert parse_gres_detail(text, ("gpu",)) == expected


def test_which_resources_are_cards_is_a_setting() -> None:
    """accounting.card_gres: npu elsewhere."""
    assert parse_gres_detail("npu:910b:1(IDX:4),gpu:1(IDX:0)", ("npu",)) == [("910b", 4)]


REAL = os.environ.get("SLURMWRAP_REAL_DATA", "")


@pytest.mark.skipif(not REAL, reason="SLURMWRAP_REAL_DATA names no folder of real output")
@pytest.mark.parametrize("version", ["24.05", "24.11", "25.11"])
@pytest.mark.parametrize(
    "kind", ["completed", "gres", "multi-nodes", "multi-types", "pending", "running", "type"]
)
def test_real_answers_of_other_versions(version: str, kind: str) -> None:
    """Public output of three versions: every index, written out from the file by hand."""
    h100 = [(index, "h100") for index in range(4)]
    mixed = [(0, "h100"), (1, "h100"), *[(index, "h200") for index in range(2, 6)]]
    everything = mixed if version == "24.11" else h100
    first, second = ("ia1", "ia2") if version == "24.11" else ("gpu1", "gpu2")
    running_on = second if version == "25.11" else first
    expected = {
        "completed": [],
        "pending": [],
        "gres": [(first, *card) for card in everything],
        "running": [(running_on, *card) for card in everything],
        "multi-nodes": [(node, *card) for node in (first, second) for card in everything],
        "multi-types": [(first, 0, "h100"), *([(first, 2, "h200")] if version == "24.11" else [])],
        "type": [(first, 0, "h100")],
    }[kind]
    text = (Path(REAL) / f"slurmrestd/{version}/slurm-job-gpus-{kind}.json").read_text()
    job_id = json.loads(text)["jobs"][0]["job_id"]
    details = parse_jobs(text, {job_id}, ("gpu",))[job_id]
    assert cards(details) == expected
    assert details.unknown_cards == ""
    assert (details.het_job_id, details.het_offset) == (None, None)
    assert details.start is not None
    assert details.start > 1762000000
