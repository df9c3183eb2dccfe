"""Scripts that slurmwrap submits pass shellcheck, whatever names they hold."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from source import ROOT

TEMPLATES = sorted(
    path.name.removesuffix(".sbatch.j2") for path in ROOT.glob("sbatch_templates/*.j2")
)
SLURMWRAP = str(Path(sys.prefix) / "bin/slurmwrap")

PLAIN = ["python", "train.py", "--epochs", "3"]
HOSTILE = ["sh", "-c", 'echo $(date) `id` "it\'s" a\\b; exit 3\nEOF\n', "测试", "a b", "#x", "*"]


@pytest.mark.parametrize("command", [PLAIN, HOSTILE], ids=["plain", "hostile"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_rendered_script_is_clean(template: str, command: list[str]) -> None:
    """Every shipped template renders to a script that shellcheck has nothing to say about."""
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    words = ["submit", "--dry-run", "--template", template, "--name", "a b'c #1 测试"]
    words += ["--gpus", "1", "--time", "1:00:00", "--"]
    rendered = subprocess.run(
        [SLURMWRAP, *words, *command],
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    assert rendered.returncode == 0, rendered.stderr.decode()
    checked = subprocess.run(
        ["shellcheck", "--shell=bash", "-"],
        input=rendered.stdout,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout.decode()
