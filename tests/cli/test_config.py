"""`slurmwrap config` as a user calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def config(
    *arguments: str, file: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    options = [] if file is None else ["--config", str(file)]
    return subprocess.run(
        [sys.executable, "-m", "slurmwrap", *options, "config", *arguments],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_every_setting_has_its_value_and_origin(tmp_path: Path) -> None:
    """Environment comes before the file, the file before the default, and each is said."""
    file = tmp_path / "my.toml"
    file.write_text(
        "[collect]\ninterval = '40s'\n[staging]\nworkers = 4\n"
        "[[budget]]\naccount = 'lab'\ncard_hours = 100\n"
    )
    done = config("list", "--json", file=file, SLURMWRAP_STAGING_WORKERS="2")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    rows = {row["name"]: (row["value"], row["origin"]) for row in document["settings"]}
    assert rows["collect.interval"] == ("40s", f"file {file}")
    assert rows["staging.workers"] == (2, "environment SLURMWRAP_STAGING_WORKERS")
    assert rows["billing.currency"] == ("CNY", "default")
    assert document["budgets"][0]["account"] == "lab"
    assert document["budgets"][0]["card_hours"] == "100"


def test_the_list_is_readable() -> None:
    """One line per setting: name, value as in the file, origin."""
    lines = config().stdout.splitlines()
    backfill = next(line for line in lines if line.startswith("accounting.backfill"))
    assert backfill.split(maxsplit=2)[1:] == ["=", '"62d"  (default)']
    assert config("list").stdout.splitlines() == lines


def test_check_says_what_was_read(tmp_path: Path) -> None:
    """A valid file is named; a wrong setting is refused with a suggestion."""
    file = tmp_path / "my.toml"
    file.write_text("[staging]\nworkers = 4\n")
    done = config("check", file=file)
    assert done.returncode == 0
    assert done.stdout == f"valid: {file}; settings that are not the default: 1\n"
    file.write_text("[staging]\nworker = 4\n")
    done = config("check", file=file)
    assert done.returncode == 11
    assert "did you mean 'staging.workers'" in done.stderr
