"""`slurmwrap submit` on a real Slurm: what is typed is what arrives, and what runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slurmwrap.submit.sbatch_options import SHIPPED_OPTIONS, Argument

if TYPE_CHECKING:
    from testbed.cluster import Testbed

pytestmark = pytest.mark.cluster

USER = "swt-alice"
SLURMWRAP = str(Path(sys.executable).parent / "slurmwrap")
HOSTILE_NAMES = [
    "run#3",
    "my job",
    "a\\b",
    "o'brien",
    "$HOME",
    "测试",
    'say "hi"',
    "`id`; echo x",
    "  blanks",
    "ends\\",
    "-x",
    "caf\udce9",
]


class User:
    """A user of the testbed with a folder of his own, whose jobs end with the test."""

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        self.testbed = testbed
        self.folder = folder
        self.jobs: list[int] = []

    def slurmwrap(
        self, *arguments: str, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        munge = {"SLURMWRAP_MUNGE_SOCKET": str(self.testbed.facts["munge_socket"])}
        return self.testbed.run_as(
            USER, [SLURMWRAP, *arguments], env=munge | (env or {}), cwd=self.folder
        )

    def submit(self, *arguments: str, **options: Any) -> dict[str, Any]:
        done = self.slurmwrap("submit", "--time", "5", "--json", *arguments, **options)
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        self.jobs.append(report["job_id"])
        return report

    def ask(self, job: int, fields: str) -> str:
        argv = ["squeue", "-h", "-t", "all", "-j", str(job), "-o", fields]
        return self.testbed.run_as(USER, argv, check=True).stdout.removesuffix("\n")

    def wait_for_end(self, job: int | str) -> str:
        """The state in which a job has ended."""
        over = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}

        def ended() -> str:
            state = self.testbed.job_state(job)
            return state if state in over else ""

        return self.testbed.wait_for(ended, 60, f"the end of job {job}")

    def read_log(self, report: dict[str, Any]) -> str:
        return Path(report["output"]).read_text(encoding="utf-8", errors="surrogateescape")

    def run_to_end(self, *arguments: str, **options: Any) -> str:
        """The log of a job that has completed."""
        report = self.submit(*arguments, **options)
        state = self.wait_for_end(report["job_id"])
        log = self.read_log(report)
        assert state == "COMPLETED", log
        return log


@pytest.fixture
def alice(testbed: Testbed, request: pytest.FixtureRequest) -> Iterator[User]:
    folder = Path(testbed.environment(USER)["HOME"]) / f"submit-{os.getpid()}-{id(request)}"
    testbed.run_as(USER, ["mkdir", folder], check=True)
    user = User(testbed, folder)
    yield user
    if user.jobs:
        testbed.run_as(USER, ["scancel", *map(str, user.jobs)])
    testbed.run_as(USER, ["rm", "-rf", folder])


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_name_arrives_as_written(alice: User, name: str) -> None:
    """S9: the name and the comment that slurmctld has are the ones that were typed."""
    report = alice.submit("--name", name, "--sbatch", "hold", "--sbatch", f"comment={name}", "true")
    assert alice.ask(report["job_id"], "%j\x1f%k") == f"{name}\x1f{name}"


def test_a_log_lies_where_it_was_said(alice: User) -> None:
    """S10: spaces, #, quotes and patterns in --output name the file that slurmd opens."""
    alice.testbed.run_as(USER, ["mkdir", "my logs #1"], cwd=alice.folder, check=True)
    report = alice.submit("--output", 'my logs #1/o\'b "x" %%j-%j.out', "echo", "here")
    assert alice.wait_for_end(report["job_id"]) == "COMPLETED"
    job_id = report["job_id"]
    assert report["output"] == f'{alice.folder}/my logs #1/o\'b "x" %j-{job_id}.out'
    assert "here\n" in alice.read_log(report)


def test_a_command_arrives_exactly(alice: User) -> None:
    """S11: substitutions, quotes, line breaks, EOF, CR LF and other bytes reach the program."""
    words = [
        "$(touch made)",
        "`touch made`",
        "it's",
        'a "b"',
        "one\nEOF\ntwo",
        "dos\r\nline",
        "\n#SBATCH --hold",
        "",
        "\udcff",
        "测试",
        "--dry-run",
        "$HOME",
        "*",
        "tail\\",
    ]
    program = "import os, sys; print('got', [os.fsencode(word) for word in sys.argv[1:]])"
    log = alice.run_to_end("--", "/usr/bin/python3", "-c", program, *words)
    assert f"got {[os.fsencode(word) for word in words]}\n" in log
    assert not (alice.folder / "made").exists()


def test_an_array_runs_every_task(alice: User) -> None:
    """--array is Slurm's own; each task has its own log."""
    report = alice.submit("--array", "3,5", "--", "bash", "-c", "echo task $SLURM_ARRAY_TASK_ID")
    assert report["array"] == "3,5"
    assert report["cluster"] == alice.testbed.facts["cluster"]
    for task in (3, 5):
        assert alice.wait_for_end(f"{report['job_id']}_{task}") == "COMPLETED"
        log = report["output"].replace("%a", str(task))
        assert f"task {task}\n" in Path(log).read_text(encoding="utf-8")


def test_any_sbatch_option_can_be_passed(alice: User) -> None:
    """Options without a name of their own reach Slurm, flags as well as values."""
    report = alice.submit(
        "--sbatch",
        "hold",
        "--sbatch",
        "nice=7",
        "--sbatch",
        "exclude=gpu2",
        "--gpus",
        "a100:2",
        "x",
    )
    shown = alice.testbed.run_as(USER, ["scontrol", "show", "job", str(report["job_id"])]).stdout
    assert "Nice=7" in shown
    assert "ExcNodeList=gpu2" in shown
    assert "TresPerNode=gres:gpu:a100:2" in shown
    assert "Requeue=1" in shown


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--sbatch", "mailtype=END"), 11, "did you mean 'mail-type'"),
        (("--gpus", "a10:1"), 11, "did you mean 'a100'"),
        (("--partition", "nope"), 51, "invalid partition specified: nope"),
        (("--account", "nope"), 51, "sacctmgr show assoc"),
        (("--gpus", "64"), 51, "no node has that much"),
        (("--array", "0-99999999"), 51, "MaxArraySize"),
    ],
)
def test_what_can_not_run_is_refused_in_words(
    alice: User, arguments: tuple[str, ...], status: int, words: str
) -> None:
    """S12: our refusals list what there is; Slurm's are shown with a hint."""
    done = alice.slurmwrap("submit", *arguments, "--", "true")
    assert done.returncode == status
    assert words in done.stderr
    assert done.stdout == ""


def test_the_users_environment_does_not_override_the_script(alice: User) -> None:
    """S19: SBATCH_PARTITION and its like have no effect; other variables reach the job."""
    stray = {"SBATCH_PARTITION": "debug", "SBATCH_TIMELIMIT": "1", "SLURM_NTASKS": "7"}
    report = alice.submit("--sbatch", "hold", "true", env=stray)
    assert alice.ask(report["job_id"], "%P %l %C") == "gpu 5:00 1"
    assert "MINE=kept\n" in alice.run_to_end("--", "env", env={"MINE": "kept"})


def test_a_job_submitted_from_a_step_is_a_job_of_its_own(alice: User) -> None:
    """S20: the outer step's SLURM_* do not break srun in the inner job."""
    inner = [SLURMWRAP, "submit", "--output", "inner.out", "--time", "5"]
    inner += ["--", "srun", "--ntasks=1", "echo", "inner step"]
    outer = alice.run_to_end("--", "srun", "--ntasks=1", *inner)
    job_id = next(int(line) for line in outer.splitlines() if line.isdecimal())
    alice.jobs.append(job_id)
    assert alice.wait_for_end(job_id) == "COMPLETED"
    assert "inner step\n" in (alice.folder / "inner.out").read_text(encoding="utf-8")


def test_a_dependency_that_can_not_come_true_ends_the_job(alice: User) -> None:
    """S17: afterok on a job that failed does not wait for ever."""
    first = alice.submit("false")["job_id"]
    second = alice.submit("--dependency", f"afterok:{first}", "true")["job_id"]
    assert alice.wait_for_end(first) == "FAILED"
    assert alice.wait_for_end(second) == "CANCELLED"


def test_a_command_without_an_environment_still_has_its_steps(alice: User) -> None:
    """--sbatch export=NONE gives a bare environment, in which srun works."""
    step = ("srun", "--ntasks=1", "bash", "-c", "echo step $SLURM_STEP_ID, mine is $MINE.")
    log = alice.run_to_end("--sbatch", "export=NONE", "--", *step, env={"MINE": "kept"})
    assert "step 0, mine is .\n" in log


def test_a_requeued_job_keeps_its_log(alice: User) -> None:
    """S6: the second run appends to the log of the first."""
    program = "echo run ${SLURM_RESTART_COUNT:-0}; [[ $SLURM_RESTART_COUNT ]] || sleep 120"
    report = alice.submit("--", "bash", "-c", program)
    job_id = report["job_id"]
    log = Path(report["output"])
    alice.testbed.wait_for(
        lambda: log.exists() and "run 0\n" in alice.read_log(report), 60, "the first run"
    )
    alice.testbed.run_as(USER, ["scontrol", "requeue", str(job_id)], check=True)
    assert alice.wait_for_end(job_id) == "COMPLETED"
    assert [line for line in alice.read_log(report).splitlines() if line.startswith("run ")] == [
        "run 0",
        "run 1",
    ]


def test_the_table_of_options_is_sbatchs_own(testbed: Testbed) -> None:
    """sbatch 22.05 itself has every option of the table, and takes a value where we say so."""
    version = testbed.run_as(USER, ["sbatch", "--version"]).stdout
    if "22.05" not in version:
        pytest.skip(f"the table is that of 22.05; this is {version.strip()}")
    # Nothing is submitted: there is no script, neither in a file nor on standard input.
    said = {name: testbed.run_as(USER, ["sbatch", f"--{name}"]).stderr for name in SHIPPED_OPTIONS}
    assert [
        name for name in said if "unrecognized" in said[name] or "ambiguous" in said[name]
    ] == []
    needs = {name for name in said if "requires an argument" in said[name]}
    assert needs == {name for name, kind in SHIPPED_OPTIONS.items() if kind is Argument.VALUE}
    refuses = {
        name
        for name in SHIPPED_OPTIONS.keys() - needs
        if "doesn't allow" in testbed.run_as(USER, ["sbatch", f"--{name}=zz"]).stderr
    }
    assert refuses == {name for name, kind in SHIPPED_OPTIONS.items() if kind is Argument.FLAG}
