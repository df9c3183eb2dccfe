"""`slurmwrap stage in`: what it prints, and how it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SLURMWRAP = [sys.executable, "-P", "-m", "slurmwrap"]


def stage_in(
    folder: Path, *words: str | bytes, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*SLURMWRAP, "stage", "in", *words],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",
            "SLURMWRAP_STAGING_HEADROOM": "0",
            "SLURMD_NODENAME": "gpu1",
            **variables,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )


def test_path_is_the_last_line_on_stdout(tmp_path: Path) -> None:
    """stdout has the path and nothing else; stderr says what was done, and from where."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "f").write_bytes(b"hello")
    first = stage_in(tmp_path, "data", "--cache", str(tmp_path / "cache"))
    assert first.returncode == 0
    assert first.stdout.count(b"\n") == 1
    path = Path(os.fsdecode(first.stdout[:-1]))
    assert (path / "f").read_bytes() == b"hello"
    assert first.stderr.startswith(b"slurmwrap: gpu1: data: 1 file, 5 B, copied in ")
    second = stage_in(tmp_path, "data", "--cache", str(tmp_path / "cache"))
    assert second.stdout == first.stdout
    assert b"already on the node" in second.stderr


def test_path_of_a_name_that_is_no_text(tmp_path: Path) -> None:
    """The printed bytes are the path's, also where they are no UTF-8."""
    (tmp_path / os.fsdecode(b"d\xff")).write_bytes(b"hello")
    done = stage_in(tmp_path, b"d\xff", "--cache", str(tmp_path / "cache"))
    assert done.returncode == 0
    assert Path(os.fsdecode(done.stdout[:-1])).read_bytes() == b"hello"
    assert done.stdout.endswith(b"/d\xff\n")


def test_json_event_comes_before_the_path(tmp_path: Path) -> None:
    """--json: one event with bytes, files, seconds, rate, source and hit; then the path."""
    (tmp_path / "data").write_bytes(b"x" * 1000)
    cache = str(tmp_path / "cache")
    lines = stage_in(tmp_path, "data", "--cache", cache, "--json").stdout.splitlines()
    event = json.loads(lines[0])
    assert len(lines) == 2
    assert lines[1] == os.fsencode(event["path"])
    assert (event["event"], event["node"], event["source"]) == ("stage-in", "gpu1", "data")
    assert (event["bytes"], event["files"], event["hit"]) == (1000, 1, False)
    assert event["seconds"] > 0
    assert event["bytes_per_second"] > 0
    again = json.loads(
        stage_in(tmp_path, "data", "--cache", cache, "--json").stdout.splitlines()[0]
    )
    assert (again["hit"], again["bytes_per_second"]) == (True, None)


def test_cache_of_the_settings_is_filled_in(tmp_path: Path) -> None:
    """staging.cache_dir with {node} is the default; --cache beats it."""
    (tmp_path / "data").write_bytes(b"x")
    done = stage_in(tmp_path, "data", SLURMWRAP_STAGING_CACHE_DIR=str(tmp_path / "{node}" / "nvme"))
    assert done.stdout.startswith(os.fsencode(tmp_path / "gpu1" / "nvme"))


@pytest.mark.parametrize("as_json", [False, True])
def test_failures_have_their_own_codes(tmp_path: Path, as_json: bool) -> None:
    """No room: 61 with the numbers; with --json also as an event, for whoever reads many nodes."""
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**42)  # 4 TiB, all of it a hole
    options = ["--json"] if as_json else []
    done = stage_in(tmp_path, "huge", "--cache", str(tmp_path / "cache"), *options)
    assert done.returncode == 61
    assert b"no room for" in done.stderr
    assert b"it needs 4.0 TiB" in done.stderr
    if as_json:
        event = json.loads(done.stdout)
        assert (event["event"], event["kind"], event["node"]) == (
            "stage-in-failed",
            "NoRoomError",
            "gpu1",
        )
    else:
        assert done.stdout == b""


def test_option_out_of_range_is_refused(tmp_path: Path) -> None:
    """A headroom of 1 would leave no room for anything."""
    assert stage_in(tmp_path, "x", "--headroom", "1").returncode == 2
    assert stage_in(tmp_path, "x", "--workers", "0").returncode == 2
    assert stage_in(tmp_path, "x", "--cache", "relative").returncode == 60
