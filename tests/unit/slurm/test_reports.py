"""What sreport says was used."""

from __future__ import annotations

import pytest

from slurmwrap.errors import SlurmOutputError, SlurmUnavailableError
from slurmwrap.slurm.reports import ReportedUsage, gpu_usage

DAY = 1796083200
"""2026-12-01T00:00:00Z, by `date -u -d 2026-12-01 +%s`."""


def test_use_per_account_and_user(slurm) -> None:
    """Lines in sreport's own form: an account's sum has no user."""
    slurm.answer("sreport", "root||7200\nvision||7200\nvision|alice|7200\n")
    assert gpu_usage(slurm.commands(), DAY, DAY + 3600) == (
        ReportedUsage(account="root", user="", card_seconds=7200),
        ReportedUsage(account="vision", user="", card_seconds=7200),
        ReportedUsage(account="vision", user="alice", card_seconds=7200),
    )
    (call,) = slurm.calls("sreport")
    assert "-t Seconds -T gres/gpu cluster AccountUtilizationByUser clusters=testbed" in call
    assert "start=2026-12-01T00:00:00 end=2026-12-01T01:00:00" in call


def test_no_use_is_an_answer(slurm) -> None:
    """A month in which nothing ran."""
    slurm.answer("sreport", "")
    assert gpu_usage(slurm.commands(), DAY, DAY + 3600) == ()


@pytest.mark.parametrize(("start", "end"), [(DAY + 1, DAY + 3600), (DAY, DAY + 60)])
def test_parts_of_an_hour_are_refused(slurm, start: int, end: int) -> None:
    """slurmdbd rolls up by the hour: sreport would answer for another window."""
    with pytest.raises(ValueError, match="whole hours"):
        gpu_usage(slurm.commands(), start, end)


@pytest.mark.parametrize("text", ["vision|alice\n", "vision|alice|\n", "vision|alice|1.5h\n"])
def test_another_form_is_refused(slurm, text: str) -> None:
    """A number that can't be read is not zero."""
    slurm.answer("sreport", text)
    with pytest.raises(SlurmOutputError):
        gpu_usage(slurm.commands(), DAY, DAY + 3600)


def test_slurmdbd_away(slurm) -> None:
    """No answer is no report."""
    words = "sreport: fatal: Problem connecting to the database: Connection refused"
    slurm.answer("sreport", status=1, stderr=words)
    with pytest.raises(SlurmUnavailableError):
        gpu_usage(slurm.commands(), DAY, DAY + 3600)
