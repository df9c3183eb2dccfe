"""`slurmwrap templates` as a user calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def templates(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "slurmwrap", "templates", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def write_template(folder: Path, name: str, text: str) -> None:
    path = folder / ".config/slurmwrap/templates" / f"{name}.sbatch.j2"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_templates_are_listed_with_their_parameters(tmp_path: Path) -> None:
    """With and without the word `list`, for people and as JSON."""
    done = templates(tmp_path)
    assert done.returncode == 0
    assert "single" in done.stdout
    assert "--param setup:" in done.stdout
    assert templates(tmp_path, "list").stdout == done.stdout
    names = [entry["name"] for entry in json.loads(templates(tmp_path, "list", "--json").stdout)]
    assert names == ["ddp", "single"]


def test_one_template_is_explained(tmp_path: Path) -> None:
    """Every parameter with its form, meaning and default; then the template itself."""
    done = templates(tmp_path, "show", "ddp")
    assert "--param processes_per_node=WHOLE" in done.stdout
    assert "default 0" in done.stdout
    assert "exec {{ run }}" in done.stdout
    described = json.loads(templates(tmp_path, "show", "ddp", "--json").stdout)
    assert described["runs_on"] == "every-node"
    assert {parameter["name"] for parameter in described["parameters"]} >= {"setup", "interface"}


def test_an_unknown_template_is_refused(tmp_path: Path) -> None:
    """Exit 11, with the known names."""
    done = templates(tmp_path, "show", "dpd")
    assert done.returncode == 11
    assert "did you mean 'ddp'" in done.stderr


def test_a_broken_template_does_not_hide_the_others(tmp_path: Path) -> None:
    """The good ones are listed, the broken one is named, and the exit code says so."""
    write_template(tmp_path, "broken", "#!/bin/bash\n")
    write_template(tmp_path, "mine", '{# slurmwrap:\ndescription = "Mine."\n#}\n#!/bin/bash\n')
    done = templates(tmp_path)
    assert done.returncode == 41
    assert "Mine." in done.stdout
    assert "single" in done.stdout
    assert "broken.sbatch.j2" in done.stderr
