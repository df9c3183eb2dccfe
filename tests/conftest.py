"""What several kinds of test need: a private munged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# The testbed is no part of what is installed. At the end of the path, it does not put the
# checkout's slurmwrap before an installed one.
sys.path.append(str(Path(__file__).parent.parent))

MUNGED_START_SECONDS = 20


@pytest.fixture(scope="session")
def munged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a munged of our own, run by the current user with a key of its own."""
    program = shutil.which("munged", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        pytest.skip("munged is not installed (Debian: munge)")
    folder = tmp_path_factory.mktemp("munge")
    folder.chmod(0o711)
    key = folder / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    # A socket path is limited to 107 bytes; pytest's folders stay well below that.
    socket = folder / "socket"
    process = subprocess.Popen(
        [
            program,
            "--foreground",
            "--force",
            f"--socket={socket}",
            f"--key-file={key}",
            f"--pid-file={folder / 'pid'}",
            f"--log-file={folder / 'log'}",
            f"--seed-file={folder / 'seed'}",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        _wait_for_socket(process, socket)
        yield socket
    finally:
        process.terminate()
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _wait_for_socket(process: subprocess.Popen[bytes], socket: Path) -> None:
    deadline = time.monotonic() + MUNGED_START_SECONDS
    while not socket.exists():
        if process.poll() is not None:
            output = process.communicate()[0].decode(errors="replace")
            pytest.fail(f"munged ended with {process.returncode}: {output}")
        if time.monotonic() > deadline:
            pytest.fail(f"munged has no socket after {MUNGED_START_SECONDS} s")
        time.sleep(0.02)


@pytest.fixture(scope="session")
def driver_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated libnvidia-ml.so.1, compiled: its folder belongs on LD_LIBRARY_PATH."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed: the simulated driver can't be compiled")
    from testbed.driver_build import build_library

    return build_library(tmp_path_factory.mktemp("driver"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write golden files anew from what the code gives now; then read the difference",
    )


@pytest.fixture
def compare_golden(request: pytest.FixtureRequest) -> Callable[[str, Path], None]:
    """Compares a whole text with a golden file; --update-golden writes the file instead."""

    def compare(text: str, golden: Path) -> None:
        if request.config.getoption("--update-golden"):
            golden.parent.mkdir(parents=True, exist_ok=True)
            golden.write_bytes(os.fsencode(text))
            return
        assert golden.is_file(), f"no {golden}; make it with --update-golden"
        assert text == os.fsdecode(golden.read_bytes())

    return compare
