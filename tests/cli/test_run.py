"""`slurmwrap run` with real processes: exit codes, arguments, signals, data, reports."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmwrap.api import RunEvents, RunWarnings
from slurmwrap.model import RunKey, WatchedMetric
from slurmwrap.staging.manifest import scan_source

from .conftest import StandIn

SLURMWRAP = [sys.executable, "-P", "-m", "slurmwrap"]

Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Outside any job, with a cache and a temporary folder of the test's own."""
    (tmp_path / "tmp").mkdir()
    return {
        "PATH": os.environ["PATH"],
        "LC_ALL": "C.UTF-8",
        "TMPDIR": str(tmp_path / "tmp"),
        "SLURMWRAP_STAGING_CACHE_DIR": str(tmp_path / "cache"),
        "SLURMWRAP_STAGING_HEADROOM": "0",
        "SLURMD_NODENAME": "n1",
    }


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Run:
    def start(*words: str | bytes, **variables: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*SLURMWRAP, "run", *words],
            cwd=tmp_path,
            env={**environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
        )

    return start


@pytest.fixture
def start(
    tmp_path: Path, environment: dict[str, str]
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a supervisor and leaves it running."""
    running: list[subprocess.Popen[str]] = []

    def begin(*words: str, **variables: str) -> subprocess.Popen[str]:
        running.append(
            subprocess.Popen(
                [*SLURMWRAP, "run", *words],
                cwd=tmp_path,
                env={**environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


@pytest.mark.parametrize("status", [0, 1, 7, 60, 255])
def test_exit_status_is_the_commands(run: Run, status: int) -> None:
    """S13: whatever the supervisor does afterwards, the command's status is the job's."""
    assert run("--", "sh", "-c", f"exit {status}").returncode == status


def test_death_by_signal_is_128_and_its_number(run: Run) -> None:
    """S13: as a shell has it: 137 for SIGKILL, 139 for SIGSEGV."""
    assert run("--", "sh", "-c", "kill -KILL $$").returncode == 137
    assert run("--", "sh", "-c", "kill -SEGV $$").returncode == 139


def test_commands_that_can_not_be_started(run: Run, tmp_path: Path) -> None:
    """127 for a command that does not exist, 126 for one that is no program; both are named."""
    missing = run("--", "no-such-program", "x")
    assert missing.returncode == 127
    assert missing.stderr == b"slurmwrap: no-such-program: command not found\n"
    (tmp_path / "text").write_text("hello")
    not_executable = run("--", "./text")
    assert not_executable.returncode == 126
    assert b"./text: Permission denied" in not_executable.stderr


def test_mistyped_command_is_noticed_before_staging(run: Run, tmp_path: Path) -> None:
    """Nobody waits for an hour of copying to learn that python is spelt otherwise."""
    (tmp_path / "data").write_text("x")
    assert run("--stage", "data", "--", "pyhton", "train.py").returncode == 127
    assert not (tmp_path / "cache").exists()


HOSTILE = [
    b"",
    b"a b",
    b"a'; echo x",
    b'say "hi"',
    b"a|b",
    b"two\nlines",
    b"EOF",
    b"$(touch /tmp/no) `id` $HOME",
    b"\\back\\slash",
    b"#3",
    "测试".encode(),
    b"\xff\xfe",
    b"--stage",
    b"--",
    b"-h",
]


def test_arguments_arrive_exactly_as_typed(run: Run) -> None:
    """S11: newlines, quotes, dollars, options of ours, empty words and non-UTF-8 bytes."""
    script = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"
    done = run("--", sys.executable, "-c", script, *HOSTILE)
    assert done.returncode == 0
    assert done.stdout.split(b"\0") == HOSTILE


def test_double_dash_may_be_left_out(run: Run) -> None:
    """The first word that is no option begins the command; its options are its own."""
    assert run("sh", "-c", "exit 3", "--stage", "x").returncode == 3


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), b"no command"),
        (("--patience", "3", "--", "true"), b"--patience needs --watch"),
        (("--launcher-arg", "x", "--", "true"), b"needs --launcher torchrun"),
        (("--watch", "loss:down", "--", "true"), b"known: max, min"),
        (("--launcher", "torchrun", "--", "train.py"), b"torchrun: command not found"),
    ],
)
def test_contradictions_are_refused(run: Run, words: tuple[str, ...], reason: bytes) -> None:
    """What can't be meant is refused before anything runs."""
    done = run(*words, PATH="/usr/bin:/bin")
    assert done.returncode in (2, 11, 127)
    assert reason in done.stderr


CHILD = """
import os, signal, sys
def note(number, frame):
    # print() is not reentrant: the signal may come while "ready" is being flushed.
    os.write(1, (signal.Signals(number).name + "\\n").encode())
    if number == signal.SIGTERM:
        sys.exit(5)
for name in sys.argv[1:]:
    signal.signal(signal.Signals[name], note)
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_term_is_passed_on_and_waited_for(start: Callable[..., subprocess.Popen[str]]) -> None:
    """S2: the supervisor hears SIGTERM at once, tells the command, and ends with its status."""
    process = start("--", sys.executable, "-c", CHILD, "SIGTERM")
    assert read_line(process) == "ready"
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=30)
    assert (output, process.returncode) == ("SIGTERM\n", 5)
    assert "asked to end (SIGTERM)" in errors


def test_command_without_a_handler_dies_of_term(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    """143 = 128 + SIGTERM, as Slurm's users know it."""
    process = start("--", "sh", "-c", "echo ready; exec sleep 100")
    assert read_line(process) == "ready"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143


def test_whole_group_hears_term(start: Callable[..., subprocess.Popen[str]]) -> None:
    """S2: a shell waits for its foreground child before its trap runs; the child is told too."""
    process = start("--", "sh", "-c", "trap 'echo trapped' TERM; sh -c 'echo ready; sleep 100'")
    assert read_line(process) == "ready"
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=30)
    assert output == "trapped\n"


def test_time_limit_warning_is_kept_from_the_command(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    """S2, S30: USR1 is written into the log; a program without a handler would die of it."""
    process = start("--", sys.executable, "-c", CHILD, "SIGTERM")
    assert read_line(process) == "ready"
    process.send_signal(signal.SIGUSR1)
    assert process.stderr is not None
    assert process.stderr.readline() == (
        "slurmwrap: the time limit is near (SIGUSR1); it is kept from the command\n"
    )
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=30)
    assert (output, process.returncode) == ("SIGTERM\n", 5)


def test_time_limit_warning_is_passed_on_when_asked(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    """S30: --forward-signal USR1 for programs that handle it."""
    process = start(
        "--forward-signal", "USR1", "--", sys.executable, "-c", CHILD, "SIGTERM", "SIGUSR1"
    )
    assert read_line(process) == "ready"
    process.send_signal(signal.SIGUSR1)
    assert read_line(process) == "SIGUSR1"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 5


def test_what_the_command_leaves_behind_is_ended(run: Run) -> None:
    """A background process must not hold the cards after the command has ended."""
    done = run("--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!; exit 4")
    assert done.returncode == 4
    assert b"left processes behind" in done.stderr
    status = Path(f"/proc/{int(done.stdout)}/stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_data_are_staged_and_named(run: Run, tmp_path: Path) -> None:
    """--stage: the command finds its copies in SLURMWRAP_DATA_1, _2; the first without number."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "f").write_text("first")
    (tmp_path / "two.bin").write_text("second")
    script = 'cat "$SLURMWRAP_DATA/f" "$SLURMWRAP_DATA_1/f" "$SLURMWRAP_DATA_2"'
    words = ("--stage", "one", "--stage", "two.bin", "--", "sh", "-c", script)
    first = run(*words, SLURMWRAP_DATA_3="from an outer run")
    assert first.stdout == b"firstfirstsecond"
    assert first.stderr.count(b"copied in") == 2
    second = run(*words)
    assert second.stdout == b"firstfirstsecond"
    assert second.stderr.count(b"already on the node") == 2
    left = run("--", "sh", "-c", "env", SLURMWRAP_DATA_3="from an outer run")
    assert b"SLURMWRAP_DATA" not in left.stdout


def test_command_does_not_run_without_its_data(run: Run, tmp_path: Path) -> None:
    """A source that can't be staged ends the job with the error's own code."""
    done = run("--stage", "nowhere", "--", "sh", "-c", "echo ran")
    assert (done.returncode, done.stdout) == (12, b"")
    assert b"nowhere: No such file or directory" in done.stderr
    os.mkfifo(tmp_path / "pipe")
    assert run("--stage", "pipe", "--", "sh", "-c", "echo ran").returncode == 60


def test_term_ends_staging(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    """A job cancelled while it waits for another one's copy ends at once, as of SIGTERM."""
    (tmp_path / "data").write_text("x")
    assert subprocess.run(
        [*SLURMWRAP, "stage", "in", str(tmp_path), "--cache", str(tmp_path / "cache")],
        capture_output=True,
        timeout=60,
    ).returncode  # refused, but the cache is there now
    [locks] = (tmp_path / "cache").glob("*/locks")
    key = scan_source(os.fsencode(tmp_path / "data"), workers=1).key
    with (locks / key).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start("--stage", "data", "--", "sh", "-c", "echo ran")
        assert process.stderr is not None
        assert process.stderr.readline().endswith("another job copies it; waiting\n")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    assert (output, process.returncode) == ("", 143)


def test_nothing_is_left_in_the_temporary_folder(run: Run, tmp_path: Path) -> None:
    """The metrics file is private, exists for the command's time, and goes with it."""
    done = run("--", "sh", "-c", 'stat -c %a "$(dirname "$SLURMWRAP_METRICS")"')
    assert done.stdout == b"700\n"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_hostile_command_name_is_one_line_of_the_log(run: Run) -> None:
    """A name with a newline and an escape sequence forges nothing in the log."""
    done = run("--", "x\n\x1b[2Jslurmwrap: all is well")
    assert done.returncode == 127
    assert done.stderr.count(b"\n") == 1
    assert b"\x1b" not in done.stderr


def report_of(stand_in: StandIn) -> dict[str, list[Any]]:
    """All that was pushed, put together."""
    events = [question for _, question in stand_in.questions if isinstance(question, RunEvents)]
    return {
        "runs": [event.run for event in events],
        "phases": [phase for event in events for phase in event.phases],
        "metrics": [point for event in events for point in event.metrics],
        "watch": [event.watch for event in events],
    }


def test_events_reach_the_daemon(stand_in: StandIn, tmp_path: Path) -> None:
    """Phases with node and times, metrics, what is watched; warnings land in the job's log."""
    stand_in.answers["push_run_events"] = RunWarnings(warnings=("your cards idle",))
    (tmp_path / "data").write_text("x")
    script = "import slurmwrap; slurmwrap.log_metrics(epoch=3, val_acc=0.71)"
    words = ["--stage", str(tmp_path / "data"), "--watch", "val_acc:max:0.01", "--patience", "4"]
    done = stand_in.run(
        "slurmwrap",
        "run",
        *words,
        "--",
        sys.executable,
        "-c",
        script,
        SLURM_JOB_ID="12",
        SLURM_CLUSTER_NAME="testbed",
        SLURM_JOB_START_TIME="1700000000",
        SLURMD_NODENAME="gpu1",
        SLURMWRAP_STAGING_CACHE_DIR=str(tmp_path / "cache"),
        TMPDIR=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    report = report_of(stand_in)
    assert set(report["runs"]) == {RunKey(cluster="testbed", job_id=12, start=1700000000)}
    assert report["watch"][0] == WatchedMetric(
        name="val_acc", mode="max", min_delta=0.01, patience=4
    )
    ended = [phase for phase in report["phases"] if phase.ended_at is not None]
    assert [(phase.name, phase.node) for phase in ended] == [
        ("staging", "gpu1"),
        ("running", "gpu1"),
        ("ending", "gpu1"),
    ]
    assert all(phase.started_at <= phase.ended_at for phase in ended)
    assert "1 file, 1 B, copied" in ended[0].detail
    assert [(p.name, p.step, p.value) for p in report["metrics"]] == [("val_acc", 3, 0.71)]
    assert done.stderr.count("WARNING: your cards idle") == 1


def test_job_works_without_the_daemon(run: Run) -> None:
    """Nobody listens: one line in the log, the command's status, no delay worth the name."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        done = run(
            "--",
            "sh",
            "-c",
            "exit 9",
            SLURM_JOB_ID="12",
            SLURM_JOB_START_TIME="1700000000",
            SLURMWRAP_DAEMON_URL=f"http://127.0.0.1:{port}",
            SLURMWRAP_DAEMON_USER="root",
            SLURMWRAP_MUNGE_SOCKET="/nonexistent/munge.socket",
        )
    assert done.returncode == 9
    assert done.stderr.count(b"the job goes on") == 1


def test_task_finds_the_copies_of_its_node(run: Run) -> None:
    """--task inside srun: SLURMWRAP_DATA is this node's, and the command is the process."""
    paths = json.dumps({"n1": ["/nvme1/data", "/nvme1/more"], "n2": ["/nvme2/data", "/x"]})
    script = 'echo "$SLURMWRAP_DATA $SLURMWRAP_DATA_2 ${SLURMWRAP_DATA_BY_NODE-gone}"; exit 6'
    words = ("--task", "--", "sh", "-c", script)
    done = run(*words, SLURMWRAP_DATA_BY_NODE=paths, SLURMD_NODENAME="n2")
    assert (done.returncode, done.stdout) == (6, b"/nvme2/data /x gone\n")
    same = run(*words, SLURMWRAP_DATA="/nvme/data", SLURMWRAP_DATA_2="/x")
    assert same.stdout == b"/nvme/data /x gone\n"
    unknown = run(*words, SLURMWRAP_DATA_BY_NODE=paths, SLURMD_NODENAME="n3")
    assert unknown.returncode == 60
    assert b"nothing was staged for node 'n3'" in unknown.stderr
