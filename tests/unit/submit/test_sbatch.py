"""sbatch's environment, and what is made of its failures. Success is tested on a real Slurm."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from slurmwrap.errors import SlurmUnavailableError, SubmitError
from slurmwrap.submit.sbatch import SubmittedJob, find_sbatch, sbatch_environment, submit


def write_program(folder: Path, text: str) -> str:
    """A stand-in for an sbatch that fails, in ways the real one can't be made to."""
    program = folder / "sbatch"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


def test_nothing_beats_the_script() -> None:
    """S19, S20: what would override the script or break srun is gone, no more."""
    environment = {
        "PATH": "/usr/bin",
        "SBATCH_PARTITION": "debug",
        "SLURM_JOB_ID": "7",
        "SLURM_NTASKS": "4",
        "SRUN_DEBUG": "3",
        "SALLOC_QOS": "x",
        "SLURM_CONF": "/etc/slurm/slurm.conf",
        "SLURM_JWT": "token",
        "SLURMWRAP_METRICS": "/of/the/outer/job",
        "SLURMWRAP_DATA": "/of/the/outer/job",
        "SLURMWRAP_DATA_1": "/of/the/outer/job",
        "SLURMWRAP_DAEMON_URL": "http://daemon:8642",
        "MY_VARIABLE": "x",
    }
    assert sbatch_environment(environment) == {
        "PATH": "/usr/bin",
        "SLURM_CONF": "/etc/slurm/slurm.conf",
        "SLURM_JWT": "token",
        "SLURMWRAP_DAEMON_URL": "http://daemon:8642",
        "MY_VARIABLE": "x",
    }


def test_the_setting_says_where_slurm_is() -> None:
    """slurm.conf of the settings comes before the environment's."""
    assert sbatch_environment({"SLURM_CONF": "/a"}, "/b") == {"SLURM_CONF": "/b"}


def test_without_sbatch_it_is_said(tmp_path: Path) -> None:
    """A machine without Slurm's programs is told so, with what to do."""
    assert find_sbatch(str(tmp_path), {}) is None
    with pytest.raises(SlurmUnavailableError, match="not found") as caught:
        submit("#!/bin/sh\n", sbatch=None, environment={}, timeout_seconds=5)
    assert "--dry-run" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("stderr", "hint"),
    [
        ("sbatch: error: invalid partition specified: nope", "sinfo -s"),
        ("Batch job submission failed: Invalid account or account/partition", "sacctmgr"),
        ("Batch job submission failed: Invalid job array specification", "MaxArraySize"),
        ("something new", "--dry-run"),
    ],
)
def test_sbatchs_words_are_shown_with_our_hint(tmp_path: Path, stderr: str, hint: str) -> None:
    """S12: stderr is never hidden."""
    program = write_program(tmp_path, f"echo '{stderr}' >&2; exit 1")
    with pytest.raises(SubmitError) as caught:
        submit("#!/bin/sh\n", sbatch=program, environment=os.environ, timeout_seconds=20)
    assert stderr in caught.value.message
    assert hint in str(caught.value.hint)
    assert caught.value.exit_code == 51


def test_an_sbatch_that_blocks_is_stopped(tmp_path: Path) -> None:
    """S21: at MaxJobCount sbatch retries for minutes; it ends in time, with what it said."""
    program = write_program(tmp_path, "echo 'retrying' >&2; exec sleep 60")
    began = time.monotonic()
    with pytest.raises(SubmitError, match=r"did not answer within 1 s.*retrying") as caught:
        submit("#!/bin/sh\n", sbatch=program, environment=os.environ, timeout_seconds=1)
    assert time.monotonic() - began < 20
    assert "squeue --me" in str(caught.value.hint)


def test_the_script_and_the_answer_pass_unchanged(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 reach sbatch; id, cluster and warnings come back."""
    program = write_program(tmp_path, f"cat >'{tmp_path}/got'; echo '12;east'; echo warned >&2")
    script = "#!/bin/sh\n# \udcff 测试\n"
    job = submit(script, sbatch=program, environment=os.environ, timeout_seconds=20)
    assert job == SubmittedJob(job_id=12, cluster="east", stderr="warned")
    assert (tmp_path / "got").read_bytes() == b"#!/bin/sh\n# \xff \xe6\xb5\x8b\xe8\xaf\x95\n"


def test_an_answer_without_an_id_is_an_error(tmp_path: Path) -> None:
    """Something that is no job id is never taken for one."""
    program = write_program(tmp_path, "echo Submitted")
    with pytest.raises(SubmitError, match="no job id"):
        submit("#!/bin/sh\n", sbatch=program, environment=os.environ, timeout_seconds=20)
