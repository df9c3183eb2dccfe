"""`slurmwrap submit` as a user calls it, on a machine without Slurm or with one that refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SLURMWRAP = [sys.executable, "-m", "slurmwrap"]


def slurmwrap(
    folder: Path, *arguments: str | bytes, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """The command in a folder of its own; unless the variables say where, there is no sbatch."""
    (folder / "no-slurm").mkdir(exist_ok=True)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "SLURMWRAP_SLURM_BIN_DIR": str(folder / "no-slurm"),
        **variables,
    }
    return subprocess.run(
        [*SLURMWRAP, *arguments], cwd=folder, env=environment, capture_output=True, timeout=60
    )


def write_sbatch(folder: Path, text: str) -> dict[str, str]:
    """A stand-in for an sbatch that fails; the variables that make slurmwrap use it."""
    folder.mkdir()
    program = folder / "sbatch"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return {"SLURMWRAP_SLURM_BIN_DIR": str(folder)}


def test_a_dry_run_prints_the_script_and_nothing_else(tmp_path: Path) -> None:
    """stdout is the script, ready to be read or kept; no Slurm is needed."""
    done = slurmwrap(tmp_path, "submit", "--gpus", "a100:2", "--dry-run", "--", "hostname", "-f")
    assert done.returncode == 0
    assert done.stderr == b""
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "#!/bin/bash"
    assert "#SBATCH --gres=gpu:a100:2" in lines
    assert lines[-1].endswith(" run -- hostname -f")


def test_arguments_are_kept_as_bytes(tmp_path: Path) -> None:
    """S11: an argument that is no UTF-8 stands in the script as typed; options after -- too."""
    done = slurmwrap(
        tmp_path, b"submit", b"--dry-run", b"--", b"x", b"\xff", b"--dry-run", b"$(id)"
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].endswith(b" run -- x '\xff' --dry-run '$(id)'")


def test_the_configuration_is_passed_on(tmp_path: Path) -> None:
    """The supervisor on the node reads the same settings, from a named file and the environment."""
    (tmp_path / "my.toml").write_text("[submit]\nsignal_before_limit = '90s'\n")
    for way, variables in (
        (["--config", "my.toml"], {}),
        ([], {"SLURMWRAP_CONFIG": "my.toml"}),
    ):
        done = slurmwrap(
            tmp_path,
            *way,
            "submit",
            "--dry-run",
            "x",
            SLURMWRAP_STAGING_CACHE_DIR="/nvme/a b",
            SLURMWRAP_NOTIFY_ADMIN_URLS="mailto://secret@example.org",
            **variables,
        )
        lines = done.stdout.decode().splitlines()
        assert "#SBATCH --signal=B:USR1@90" in lines
        assert "export SLURMWRAP_STAGING_CACHE_DIR='/nvme/a b'" in lines
        assert lines[-1].endswith(f" --config {tmp_path}/my.toml run -- x")
        assert "secret" not in done.stdout.decode()


def test_json_holds_the_script(tmp_path: Path) -> None:
    """--json of a dry run has the script and no job."""
    done = slurmwrap(tmp_path, "submit", "--dry-run", "--json", "--array", "0-3", "x")
    report = json.loads(done.stdout)
    assert report["job_id"] is None
    assert report["array"] == "0-3"
    assert report["script"].startswith("#!/bin/bash\n")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--template", "singel"], 11, "did you mean 'single'"),
        (["--sbatch", "mailtype=END"], 11, "did you mean 'mail-type'"),
        (["--param", "set=x"], 11, "known: setup"),
        (["--memory", "1.5G"], 2, "write --memory 1536M"),
        (["--time", "2h"], 2, "write --time 02:00:00"),
        (["--array", "9-1"], 2, "write 1-9"),
        (["--name", "a\nb"], 2, "control character"),
        (["--gpu", "2"], 2, "--gpus"),
        (["--cpus", "0"], 2, "cpus"),
    ],
)
def test_mistakes_end_with_their_own_code_and_a_hint(
    tmp_path: Path, arguments: list[str], status: int, words: str
) -> None:
    """A mistake of form is refused before sbatch, in words, without a traceback."""
    done = slurmwrap(tmp_path, "submit", *arguments, "--", "x")
    assert done.returncode == status
    assert done.stdout == b""
    assert words in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_without_a_command_it_says_how(tmp_path: Path) -> None:
    """The command is what nobody can guess."""
    done = slurmwrap(tmp_path, "submit", "--gpus", "1")
    assert done.returncode == 2
    assert "-- python train.py" in done.stderr.decode()


def test_without_slurm_it_does_not_submit(tmp_path: Path) -> None:
    """Exit 22, and the hint names --dry-run."""
    done = slurmwrap(tmp_path, "submit", "x")
    assert done.returncode == 22
    assert "--dry-run" in done.stderr.decode()


def test_on_a_laptop_missing_paths_are_notices(tmp_path: Path) -> None:
    """A dry run far from the cluster can't know its file systems."""
    done = slurmwrap(tmp_path, "submit", "--stage", "/cluster/data", "--dry-run", "x")
    assert done.returncode == 0
    assert "/cluster/data does not exist here" in done.stderr.decode()
    assert b"--stage /cluster/data" in done.stdout


def test_with_slurm_missing_paths_are_refused(tmp_path: Path) -> None:
    """S10: where sbatch is, a missing folder or source costs a second, not a wait in the queue."""
    variables = write_sbatch(tmp_path / "bin", "echo 12")
    for arguments in (["--stage", "missing"], ["--output", "missing/%j.out"]):
        done = slurmwrap(tmp_path, "submit", *arguments, "x", **variables)
        assert done.returncode == 51
        assert "missing" in done.stderr.decode()


def test_sbatchs_refusal_is_shown(tmp_path: Path) -> None:
    """S12: sbatch's own words, our hint, exit 51."""
    words = "sbatch: error: invalid partition specified: nope"
    variables = write_sbatch(tmp_path / "bin", f"echo '{words}' >&2; exit 1")
    done = slurmwrap(tmp_path, "submit", "--partition", "nope", "x", **variables)
    assert done.returncode == 51
    assert words in done.stderr.decode()
    assert "hint: `sinfo -s`" in done.stderr.decode()


def test_a_blocked_sbatch_ends_in_time(tmp_path: Path) -> None:
    """S21: the time-out is a setting."""
    variables = write_sbatch(tmp_path / "bin", "exec sleep 60")
    done = slurmwrap(tmp_path, "submit", "x", SLURMWRAP_SUBMIT_SBATCH_TIMEOUT="1s", **variables)
    assert done.returncode == 51
    assert "did not answer within 1 s" in done.stderr.decode()


def test_the_users_template_comes_first(tmp_path: Path) -> None:
    """S18: a template of the user's own, with DOS line ends, wins and is read with a notice."""
    folder = tmp_path / ".config/slurmwrap/templates"
    folder.mkdir(parents=True)
    header = '{# slurmwrap:\ndescription = "Mine."\n#}\n'
    text = header + "#!/bin/bash\n# mine\n{{ run }} -- {{ command }}\n"
    (folder / "single.sbatch.j2").write_bytes(text.replace("\n", "\r\n").encode())
    done = slurmwrap(tmp_path, "submit", "--dry-run", "x")
    assert done.stdout.splitlines()[1] == b"# mine"
    assert b"\r" not in done.stdout
    assert "DOS line ends" in done.stderr.decode()


def test_a_single_command_on_several_nodes_is_pointed_to_ddp(tmp_path: Path) -> None:
    """Cards on nodes that nobody starts anything on would be paid for nothing."""
    done = slurmwrap(tmp_path, "submit", "--nodes", "2", "--dry-run", "python", "train.py")
    assert done.returncode == 0
    assert "--template ddp" in done.stderr.decode()
    silent = slurmwrap(tmp_path, "submit", "--nodes", "2", "--dry-run", "srun", "hostname")
    assert silent.stderr == b""
