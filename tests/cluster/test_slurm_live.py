"""The runs on nodes now, on a real Slurm."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from slurmwrap.display import clean_text
from slurmwrap.slurm.associations import read_associations
from slurmwrap.slurm.nodeset import expand_nodes
from testbed.cluster import Testbed
from tests.cluster.jobs import ALICE, BOB, HOSTILE_NAME, Jobs, listed_cards

pytestmark = pytest.mark.cluster


@pytest.fixture
def jobs(testbed: Testbed) -> Iterator[Jobs]:
    made = Jobs(testbed)
    yield made
    made.remove()


def cards_by_scontrol(jobs: Jobs, job: str) -> list[tuple[str, int, str]]:
    """The cards of one job whose text fields are harmless, read from scontrol."""
    found = []
    text = jobs.run_as_root("scontrol", "-d", "show", "job", job)
    for nodes, gpu_type, indexes in re.findall(
        r"^ +Nodes=(\S+) .*GRES=gpu:(\w+):\d+\(IDX:([0-9,-]+)\)", text, re.MULTILINE
    ):
        for node in jobs.run_as_root("scontrol", "show", "hostnames", nodes).split():
            for span in indexes.split(","):
                first, _, last = span.partition("-")
                found += [
                    (node, index, gpu_type) for index in range(int(first), int(last or first) + 1)
                ]
    return found


def test_two_jobs_on_one_node_have_a_card_each(jobs: Jobs) -> None:
    """A1, A7: host indexes as slurmctld gave them, and never the same one twice."""
    first, second = (str(jobs.submit("--gres=gpu:a100:1")) for _ in range(2))
    runs = jobs.wait_for_runs(2)
    assert listed_cards(runs[first]) == cards_by_scontrol(jobs, first) != []
    assert listed_cards(runs[second]) == cards_by_scontrol(jobs, second) != []
    assert runs[first].cards[0].card != runs[second].cards[0].card
    assert runs[second].cards[0].card.index > 0


def test_a_job_on_two_nodes_has_cards_on_both(jobs: Jobs) -> None:
    """A8: different indexes on the two nodes are not mixed up."""
    jobs.submit("--gres=gpu:h800:1")
    jobs.wait_for_runs(1)
    wide = str(jobs.submit("-N2", "--gres=gpu:2"))
    run = jobs.wait_for_runs(2)[wide]
    assert listed_cards(run) == cards_by_scontrol(jobs, wide)
    assert [(item.card.node, item.gpu_type) for item in run.cards] == [
        ("gpu1", "a100"),
        ("gpu1", "a100"),
        ("gpu2", "h800"),
        ("gpu2", "h800"),
    ]
    assert run.nodes == ("gpu1", "gpu2")


def test_the_environment_of_a_job_forges_nothing(jobs: Jobs) -> None:
    """A3: SLURM_JOB_GPUS and CUDA_VISIBLE_DEVICES of the job's own making have no effect."""
    forged = "--export=ALL,SLURM_JOB_GPUS=3,CUDA_VISIBLE_DEVICES=NoDevFiles"
    job = str(jobs.submit("--gres=gpu:a100:1", forged))
    run = jobs.wait_for_runs(1)[job]
    assert listed_cards(run) == cards_by_scontrol(jobs, job)
    assert len(run.cards) == 1


def test_the_allocation_is_used_not_the_request(jobs: Jobs) -> None:
    """A13: --gpus and --gpus-per-task, where squeue's %b says N/A."""
    first = str(jobs.submit("--gpus=a100:1"))
    second = str(jobs.submit("--ntasks=2", "--gpus-per-task=h800:1"))
    runs = jobs.wait_for_runs(2)
    assert [item.gpu_type for item in runs[first].cards] == ["a100"]
    assert [item.gpu_type for item in runs[second].cards] == ["h800", "h800"]


def test_an_allocation_without_a_process_is_a_run(jobs: Jobs) -> None:
    """A4: salloc --no-shell holds cards with nothing running on them."""
    words = ["salloc", "--no-shell", "--gres=gpu:a100:1", "--time=5", "--mem=50"]
    done = jobs.testbed.run_as(ALICE, words, check=True)
    match = re.search(r"Granted job allocation (\d+)", done.stderr)
    assert match
    jobs.submitted.append(int(match[1]))
    run = jobs.wait_for_runs(1)[match[1]]
    assert (run.state, len(run.cards)) == ("RUNNING", 1)


def test_array_tasks_and_components_have_their_own_names(jobs: Jobs) -> None:
    """A10, A11: one of the tasks has the array's own raw id; components count from 0."""
    array = jobs.submit("--array=0-2", "--gres=gpu:a100:1")
    leader = jobs.submit("--gres=gpu:a100:1", ":", "--gres=gpu:h800:2", "--mem=50")
    runs = jobs.wait_for_runs(5)
    assert sorted(runs) == sorted(
        [f"{array}_0", f"{array}_1", f"{array}_2", f"{leader}+0", f"{leader}+1"]
    )
    assert sum(run.key.job_id == array for run in runs.values()) == 1
    assert [len(runs[f"{leader}+{number}"].cards) for number in (0, 1)] == [1, 2]
    for name, run in runs.items():
        assert jobs.live.read_run(run) == run, name


def test_hostile_names_and_comments_stay_text(jobs: Jobs) -> None:
    """B13: |, CR, newline, control characters, bytes that are no UTF-8, forged fields."""
    comment = '{"a": 1}\nUserId=root(0) GRES=gpu:a100:4(IDX:0-3)'
    job = jobs.submit("--gres=gpu:a100:1", f"--job-name={HOSTILE_NAME}", f"--comment={comment}")
    other = jobs.submit("--gres=gpu:a100:1", user=BOB)
    runs = jobs.wait_for_runs(2)
    run = runs[str(job)]
    assert run.name == clean_text("a|b\r\nJobId=1 x=\N{REPLACEMENT CHARACTER} \x1fy")
    assert (run.comment, run.user, len(run.cards)) == (comment, ALICE, 1)
    assert runs[str(other)].user == BOB


def test_a_run_in_full(jobs: Jobs) -> None:
    """Account, partition, limit, uid and times of a real run."""
    before = int(time.time())
    job = jobs.submit("--account=nlp", "--qos=high", "--partition=spot", "--time=2-0")
    run = jobs.wait_for_runs(1)[str(job)]
    assert (run.key.cluster, run.account, run.qos, run.partition) == (
        "testbed",
        "nlp",
        "high",
        "spot",
    )
    assert (run.uid, run.time_limit_seconds) == (jobs.testbed.facts["users"][ALICE], 172800)
    assert before <= run.submit <= run.key.start <= int(time.time()) + 1
    assert (run.cards, run.cards_known, run.reservation) == ((), True, "")


def test_a_suspension_is_counted_to_the_second(jobs: Jobs) -> None:
    """V6: as long as sacct says, and still a run with its cards meanwhile."""
    job = str(jobs.submit("--gres=gpu:a100:1"))
    jobs.wait_for_runs(1)
    jobs.run_as_root("scontrol", "suspend", job)
    jobs.testbed.wait_for(lambda: jobs.runs()[job].suspended_seconds >= 3, 20, "3 s of suspension")
    suspended = jobs.runs()[job]
    assert (suspended.state, len(suspended.cards)) == ("SUSPENDED", 1)
    jobs.run_as_root("scontrol", "resume", job)
    run = jobs.runs()[job]
    (row,) = jobs.testbed.sacct("-X", "-j", job, "--format=Suspended")
    assert row["Suspended"] == f"00:00:{run.suspended_seconds:02d}"
    assert run.state == "RUNNING"


def test_a_completing_job_has_ended(jobs: Jobs) -> None:
    """slurmctld has set its end and taken its cards back while a process still lingers."""
    wrap = 'trap "" TERM CONT; while :; do sleep 1; done'
    job = str(jobs.submit("--gres=gpu:a100:1", wrap=f"srun bash -c '{wrap}'"))
    run = jobs.wait_for_runs(1)[job]
    jobs.testbed.wait_for(
        lambda: ".0|" in jobs.run_as_root("sacct", "-nP", "-j", job, "--format=JobID,State"),
        20,
        "the step is there",
    )
    jobs.run_as_root("scancel", job)
    jobs.testbed.wait_for(lambda: jobs.testbed.job_state(job) == "COMPLETING", 10, "COMPLETING")
    assert jobs.live.read_run(run) is None
    assert jobs.runs() == {}


def test_who_may_do_what(jobs: Jobs) -> None:
    """Levels, coordinators and the tree of accounts as the testbed entered them."""
    associations = read_associations(jobs.commands)
    assert associations.is_administrator("swt-admin")
    assert not associations.is_administrator(ALICE)
    assert associations.coordinated_accounts("swt-dave") >= {"lab", "vision", "nlp"}
    assert associations.accounts_of(ALICE) >= {"vision", "nlp"}
    assert "root" in associations.ancestors("vision")


@pytest.mark.parametrize(
    "expression",
    [
        "gpu[1-2,05-07]",
        "rack[1-2]n[08-11]",
        "a[1-3,7]b[09-10]",
        "n[001-2],m,n[9-10]",
        "x1y[0-3]",
        "n[1,1,3]",
    ],
)
def test_node_lists_expand_as_scontrol_does(jobs: Jobs, expression: str) -> None:
    """The same names in the same order as Slurm's own expansion."""
    names = jobs.run_as_root("scontrol", "show", "hostnames", expression).split()
    assert list(expand_nodes(expression)) == names
