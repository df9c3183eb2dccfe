"""Starting a command costs little: heavy things load inside the command that needs them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection

import pytest

from slurmwrap.cli import COMMANDS

HEAVY = (
    "apprise",
    "apscheduler",
    "asyncio",
    "minijinja",
    "msgspec",
    "plotext",
    "prometheus_client",
    "pynvml",
    "rich",
    "sqlite3",
    "sqlite_utils",
    "starlette",
    "urllib3",
    "uvicorn",
)


def heavy_modules_after(statement: str, heavy: Collection[str] = HEAVY) -> list[str]:
    """Heavy top-level modules that a fresh interpreter holds after the statement."""
    # What is there is noted before json is loaded to say it.
    program = f"{statement}\nimport sys; loaded = sorted(sys.modules); import json"
    program += "; print(json.dumps(loaded))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    return sorted(name for name in heavy if name in loaded)


def test_the_command_line_loads_nothing_heavy() -> None:
    """`slurmwrap --help` needs click and the standard library."""
    assert heavy_modules_after("import slurmwrap.cli") == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_module_loads_nothing_heavy(name: str) -> None:
    """`slurmwrap NAME --help` needs click and the standard library."""
    assert heavy_modules_after(f"import slurmwrap.cli.{name}") == []


def test_training_code_pays_nothing_for_the_import() -> None:
    """`import slurmwrap` in a training script loads no dependency of ours."""
    assert heavy_modules_after("import slurmwrap") == []


def test_logging_metrics_stays_light() -> None:
    """`slurmwrap.log_metrics` in a training script loads no dependency of ours."""
    assert heavy_modules_after("from slurmwrap import log_metrics") == []


DRY_RUN = """
import sys
sys.argv = ["slurmwrap", "submit", "--dry-run", "--gpus", "1", "--time", "1:00:00", "--", "x"]
from slurmwrap.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""


def test_a_dry_run_loads_the_template_engine_alone() -> None:
    """`slurmwrap submit --dry-run` starts about as fast as an import of click."""
    slow = {"difflib", "json", "shutil", "subprocess", "sysconfig", "zoneinfo"}
    assert heavy_modules_after(DRY_RUN, {*HEAVY, *slow}) == ["minijinja"]
