"""--watch: how a job names the metric that shall improve."""

from __future__ import annotations

import pytest

from slurmwrap.errors import UnknownNameError, UsageError
from slurmwrap.model import WatchedMetric
from slurmwrap.runtime.watching import parse_watch


@pytest.mark.parametrize(
    ("text", "name", "mode", "min_delta"),
    [
        ("val_acc", "val_acc", "max", 0.0),
        ("loss:min", "loss", "min", 0.0),
        ("loss:min:0.001", "loss", "min", 0.001),
        ("val:acc:max", "val:acc", "max", 0.0),
        ("val:acc:max:1e-3", "val:acc", "max", 0.001),
        ("max", "max", "max", 0.0),
        ("测试:min", "测试", "min", 0.0),
    ],
)
def test_forms(text: str, name: str, mode: str, min_delta: float) -> None:
    """NAME, NAME:mode and NAME:mode:min_delta; larger is better unless said otherwise."""
    assert parse_watch(text, 5) == WatchedMetric(
        name=name, mode=mode, min_delta=min_delta, patience=5
    )


@pytest.mark.parametrize("text", ["loss:mn", "loss:up:0.1", "val:acc"])
def test_unknown_modes_are_named(text: str) -> None:
    """A mode that nobody knows is answered with the two that exist."""
    with pytest.raises(UnknownNameError, match="known: max, min"):
        parse_watch(text)


@pytest.mark.parametrize("text", ["", "loss:min:x", "loss:min:-1", "loss:min:nan", "x" * 129])
def test_bad_forms_are_refused(text: str) -> None:
    """No name, or a min_delta that is no number from 0."""
    with pytest.raises(UsageError):
        parse_watch(text)
