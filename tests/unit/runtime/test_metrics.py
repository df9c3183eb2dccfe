"""log_metrics: what training code may hand over, and what is written."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import slurmwrap
from slurmwrap.runtime import metrics
from slurmwrap.runtime.metrics import log_metrics


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "metrics.jsonl"
    monkeypatch.setenv("SLURMWRAP_METRICS", str(path))
    monkeypatch.setattr(metrics, "_said", set())
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


def test_call_of_the_documentation(file: Path) -> None:
    """slurmwrap.log_metrics(epoch=3, val_acc=0.71) is one line with step 3."""
    slurmwrap.log_metrics(epoch=3, val_acc=0.71)
    [line] = read(file)
    assert (line["step"], line["values"]) == (3, {"val_acc": 0.71})
    assert abs(line["time"] - file.stat().st_mtime) < 60
    assert file.stat().st_mode & 0o077 == 0


def test_where_the_step_comes_from(file: Path) -> None:
    """The first argument, else step=, else epoch=; beside a step, epoch is a metric."""
    log_metrics(7, loss=1.0)
    log_metrics(step=8, loss=1.0)
    log_metrics(step=9, epoch=1, loss=1.0)
    log_metrics(loss=1.0)
    assert [line.get("step") for line in read(file)] == [7, 8, 9, None]
    assert read(file)[2]["values"] == {"epoch": 1.0, "loss": 1.0}


class Scalar:
    """As NumPy's and PyTorch's scalars do, it only knows how to become a float."""

    def __float__(self) -> float:
        return 2.5


def test_numbers_of_any_kind(file: Path) -> None:
    """Whatever float() reads is a number; NaN and infinity are written down as words."""
    log_metrics(1, a=2, b=Decimal("0.5"), c=Scalar(), d=math.nan, e=math.inf, f=-math.inf)
    assert read(file)[0]["values"] == {
        "a": 2.0,
        "b": 0.5,
        "c": 2.5,
        "d": "NaN",
        "e": "Infinity",
        "f": "-Infinity",
    }


@pytest.mark.parametrize("value", [True, "0.5", b"1", None, [1.0], 10**400])
def test_what_is_no_number_is_refused(file: Path, value: object) -> None:
    """A bool or text is a mistake in the script, and is said so at once."""
    with pytest.raises(TypeError, match="val_acc"):
        log_metrics(1, val_acc=value)
    assert not file.exists()


@pytest.mark.parametrize("name", ["", "x" * 129, "a\nb", "\udcff"])
def test_bad_names_are_refused(file: Path, name: str) -> None:
    """A name is 1 to 128 printable characters."""
    with pytest.raises(ValueError, match="name"):
        log_metrics(1, **{name: 1.0})
    log_metrics(1, **{"测试/acc a'b": 1.0, "x" * 128: 2.0})
    assert list(read(file)[0]["values"]) == ["测试/acc a'b", "x" * 128]


@pytest.mark.parametrize("step", [-1, 1.5, True, 2**63])
def test_bad_steps_are_refused(file: Path, step: Any) -> None:
    """A step is a whole number from 0."""
    with pytest.raises(ValueError, match="step"):
        log_metrics(step, loss=1.0)


def test_many_values_become_several_short_lines(file: Path) -> None:
    """Lines stay below 4096 bytes, so that ranks never mix; nothing is lost."""
    log_metrics(4, **{f"{'测' * 100}{number}": number for number in range(256)})
    assert all(len(line) < 4096 for line in file.read_bytes().splitlines(keepends=True))
    values = {name: value for line in read(file) for name, value in line["values"].items()}
    assert values == {f"{'测' * 100}{number}": float(number) for number in range(256)}
    with pytest.raises(ValueError, match="257 metrics"):
        log_metrics(4, **{f"m{number}": number for number in range(257)})


def test_several_processes_write_whole_lines(file: Path) -> None:
    """Four ranks write 200 lines each at once: 800 whole lines arrive."""
    script = "import slurmwrap\nfor n in range(200): slurmwrap.log_metrics(n, **{'x'*100: n})"
    ranks = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(4)]
    assert [rank.wait(timeout=60) for rank in ranks] == [0, 0, 0, 0]
    steps = sorted(line["step"] for line in read(file))
    assert steps == sorted(list(range(200)) * 4)


def test_without_a_supervisor_it_says_so_once(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Outside `slurmwrap run` the script works as before, with one line on stderr."""
    monkeypatch.delenv("SLURMWRAP_METRICS")
    log_metrics(1, loss=1.0)
    log_metrics(2, loss=1.0)
    assert capsys.readouterr().err.count("log_metrics does nothing") == 1


def test_broken_file_does_not_stop_training(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On another node the folder isn't there: said once, and training goes on."""
    monkeypatch.setenv("SLURMWRAP_METRICS", "/nowhere/at/all/metrics.jsonl")
    log_metrics(1, loss=1.0)
    log_metrics(2, loss=1.0)
    assert capsys.readouterr().err.count("No such file or directory; metrics are lost") == 1


def test_fifo_does_not_stop_training(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A FIFO that nobody reads: said once, and training goes on."""
    os.mkfifo(file)
    log_metrics(1, loss=1.0)
    assert "metrics are lost" in capsys.readouterr().err


def test_import_is_light() -> None:
    """Training scripts pay for the standard library only."""
    script = (
        "import sys; from slurmwrap import log_metrics;"
        "print([m for m in ('msgspec', 'click', 'torch', 'numpy', 'urllib3') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.stdout == "[]\n"
