"""The paths of logs, staging sources and of slurmwrap itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from slurmwrap.errors import SubmitError
from slurmwrap.submit import paths
from slurmwrap.submit.request import JobRequest, SubmitOptions, build_request


def make_request(**options: Any) -> JobRequest:
    return build_request(SubmitOptions(**{"command": ("x",), **options}))


def make_program(folder: Path) -> Path:
    folder.mkdir()
    program = folder / "slurmwrap"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def test_the_script_calls_the_slurmwrap_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program started by a relative path is called by its absolute one."""
    program = make_program(tmp_path / "bin")
    monkeypatch.chdir(tmp_path)
    assert paths.find_program("bin/slurmwrap", "/usr/bin/python3") == (str(program),)


def test_otherwise_the_one_beside_the_interpreter(tmp_path: Path) -> None:
    """Started in another way (a test, python -c), the installed command is called."""
    program = make_program(tmp_path / "bin")
    assert paths.find_program("-c", str(tmp_path / "bin/python")) == (str(program),)


def test_otherwise_the_interpreter_itself(tmp_path: Path) -> None:
    """Without an installed command the interpreter in use is told to run the module."""
    interpreter = str(tmp_path / "python")
    assert paths.find_program("-c", interpreter) == (interpreter, "-P", "-m", "slurmwrap")


def test_a_missing_log_folder_is_refused(tmp_path: Path) -> None:
    """S10: slurmd would end the job with 0:53 and no log; the hint makes the folder."""
    with pytest.raises(SubmitError) as caught:
        paths.check_log_folders(make_request(output="my logs/%j.out"), tmp_path, "alice")
    assert caught.value.hint is not None
    subprocess.run(["bash", "-c", caught.value.hint], cwd=tmp_path, timeout=20, check=True)
    assert paths.check_log_folders(make_request(output="my logs/%j.out"), tmp_path, "alice") == []


@pytest.mark.parametrize("output", ["a b/#%%1 %j.out", "a b/x\\%j"])
def test_a_folder_that_is_there_is_taken(tmp_path: Path, output: str) -> None:
    """S10: spaces, # and %% in paths are no obstacle."""
    (tmp_path / "a b").mkdir()
    assert paths.check_log_folders(make_request(output=output), tmp_path, "alice") == []


def test_patterns_known_before_the_job_are_filled_in(tmp_path: Path) -> None:
    """%u and %x in the folder stand for the user and the job's name."""
    (tmp_path / "alice/run").mkdir(parents=True)
    request = make_request(name="run", output="%u/%x/%j.out")
    assert paths.check_log_folders(request, tmp_path, "alice") == []
    with pytest.raises(SubmitError, match="bob/run"):
        paths.check_log_folders(request, tmp_path, "bob")


def test_a_folder_named_after_the_job_is_refused(tmp_path: Path) -> None:
    """S10: nobody can have made the folder %j before the job has its id."""
    with pytest.raises(SubmitError, match="id"):
        paths.check_log_folders(make_request(output="%j/log"), tmp_path, "alice")


def test_a_folder_that_only_the_node_knows_is_a_notice(tmp_path: Path) -> None:
    """What can't be known here is said, not refused."""
    notices = paths.check_log_folders(make_request(output="%N/log"), tmp_path, "alice")
    assert len(notices) == 1
    assert "%N" in notices[0]


def test_the_error_file_and_the_working_folder_are_looked_at(tmp_path: Path) -> None:
    """--sbatch error and chdir count as well: the log lies relative to the job's folder."""
    (tmp_path / "work/logs").mkdir(parents=True)
    options = (f"chdir={tmp_path}/work", "error=logs/e")
    request = make_request(sbatch=options, output="logs/o")
    assert paths.check_log_folders(request, Path("/"), "alice") == []
    with pytest.raises(SubmitError, match="--error"):
        paths.check_log_folders(make_request(sbatch=("error=logs/e",)), Path("/"), "alice")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "/w/slurm-12.out"),
        ({"array": "0-3"}, "/w/slurm-12_%a.out"),
        ({"name": "run", "output": "%u/%x-%6j.out"}, "/w/alice/run-000012.out"),
        ({"output": "/abs/%%j"}, "/abs/%j"),
        ({"output": "a\\%j"}, "/w/a%j"),
        ({"sbatch": ("chdir=/c",)}, "/c/slurm-12.out"),
    ],
)
def test_the_log_is_named_as_slurm_will(options: dict[str, Any], expected: str) -> None:
    """The path printed after submission is the one that slurmd opens."""
    assert paths.log_path(make_request(**options), Path("/w"), "alice", 12) == expected


def test_staging_sources_are_absolute_and_there(tmp_path: Path) -> None:
    """A relative source is found from where submit runs; a missing one is refused."""
    (tmp_path / "data set").mkdir()
    request = make_request(stage=("data set", "/etc/hostname"))
    assert paths.absolute_sources(request, tmp_path) == (
        str(tmp_path / "data set"),
        "/etc/hostname",
    )
    paths.check_sources(make_request(stage=("data set",)), tmp_path)
    with pytest.raises(SubmitError, match="missing"):
        paths.check_sources(make_request(stage=("missing",)), tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_can_not_be_written_is_refused() -> None:
    """A log folder of somebody else is refused."""
    with pytest.raises(SubmitError, match="may not write"):
        paths.check_log_folders(make_request(output="/etc/x"), Path("/"), "alice")
