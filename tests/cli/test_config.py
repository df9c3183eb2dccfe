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


def test_secrets_are_masked(tmp_path: Path) -> None:
    """Neither list shows a password or token, wherever it came from."""
    file = tmp_path / "my.toml"
    file.write_text(
        "[notify]\nuser_urls = ['mailtos://bot:hunter2@smtp.org?to={user}@example.org']\n"
        "admin_urls = ['feishu://hunter2']\n"
    )
    for arguments in (["list"], ["list", "--json"]):
        done = config(*arguments, file=file, SLURMWRAP_NOTIFY_ACCOUNT_URLS="json://x/hunter2")
        assert done.returncode == 0
        assert "hunter2" not in done.stdout
    rows = {row["name"]: row["value"] for row in json.loads(done.stdout)["settings"]}
    assert rows["notify.user_urls"] == ["mailtos://smtp.org?to={user}@example.org"]
    assert rows["notify.admin_urls"] == ["feishu://****"]


def test_a_user_needs_no_secrets(tmp_path: Path) -> None:
    """Commands of users work though they may not read the secrets file."""
    file = tmp_path / "my.toml"
    secrets = tmp_path / "secrets.toml"
    secrets.mkdir()  # not even root could read it
    file.write_text(f"[notify]\nsecrets_file = '{secrets}'\n")
    assert config("list", file=file).returncode == 0


def test_the_service_refuses_secrets_that_everybody_can_read(tmp_path: Path) -> None:
    """`slurmwrapd serve` does not start, and `slurmwrapd check` says why."""
    file = tmp_path / "my.toml"
    secrets = tmp_path / "secrets.toml"
    secrets.write_text("[notify]\nuser_urls = ['feishu://hunter2']\n")
    secrets.chmod(0o644)
    file.write_text(
        f"[notify]\nsecrets_file = '{secrets}'\nadmin_urls = ['mailto://a:hunter3@smtp.org']\n"
    )
    file.chmod(0o644)
    program = [sys.executable, "-c", "from slurmwrapd.cli import main; main()"]
    done = subprocess.run(
        [*program, "--config", str(file), "serve", "--once"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 10
    assert f"the secrets file {secrets} is open to everybody (mode 0644)" in done.stderr
    done = subprocess.run(
        [*program, "--config", str(file), "check", "--json"],
        env={"PATH": "/nowhere", "SLURMWRAP_DAEMON_URL": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 70
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert "notify.admin_urls may hold a password" in checks["secrets"]["detail"]
    assert "open to everybody" in checks["notify targets"]["detail"]
    assert "hunter" not in done.stdout + done.stderr
