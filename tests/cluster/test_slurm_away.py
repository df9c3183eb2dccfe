"""Slurm's daemons stopped one by one: an error each time, never an empty answer."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from slurmwrap.clock import SystemClock
from slurmwrap.config import Config
from slurmwrap.errors import SlurmCommandError, SlurmUnavailableError
from slurmwrap.slurm.accounting import AccountingRecords
from slurmwrap.slurm.associations import read_associations
from slurmwrap.slurm.checks import check_slurm
from slurmwrap.slurm.live import LiveJobs
from slurmwrap.slurm.reports import gpu_usage
from testbed import packages
from testbed.cluster import Testbed
from testbed.failures import NotSupported, TestbedError
from tests.cluster.jobs import Jobs

pytestmark = pytest.mark.cluster

OWN_TESTBED = os.environ.get("SLURMWRAP_TESTBED_NAME", "test") + "-away"


@pytest.fixture(scope="module")
def breakable() -> Iterator[Testbed]:
    """A testbed of our own, since others may be using the shared one."""
    try:
        packages.check_machine()
    except NotSupported as error:
        pytest.skip(str(error))
    try:
        yield Testbed.attach(OWN_TESTBED)
        return
    except TestbedError:
        running = Testbed.up(OWN_TESTBED)
    yield running
    running.down()


@contextmanager
def without(testbed: Testbed, daemon: str) -> Iterator[None]:
    testbed.stop(daemon)
    try:
        yield
    finally:
        testbed.start(daemon)


@contextmanager
def frozen(testbed: Testbed, daemon: str) -> Iterator[None]:
    testbed.kill(daemon, signal.SIGSTOP)
    try:
        yield
    finally:
        testbed.kill(daemon, signal.SIGCONT)


def test_slurmctld_stopped(breakable: Testbed) -> None:
    """Its absence is told as such; slurmdbd's records can still be read."""
    jobs = Jobs(breakable)
    jobs.commands.cluster_name()
    seen = jobs.live.list_runs()
    with without(breakable, "slurmctld"):
        with pytest.raises(SlurmUnavailableError, match="slurmctld"):
            jobs.live.list_runs()
        jobs.records.read_records(1796000000, 1796003600)
    assert jobs.live.list_runs() == seen


def test_slurmctld_that_hangs(breakable: Testbed) -> None:
    """A slurmctld that takes connections and does not answer: our time-out ends the wait."""
    jobs = Jobs(breakable)
    jobs.commands.cluster_name()
    impatient = jobs.impatient_commands(2)
    impatient.cluster_name()
    with frozen(breakable, "slurmctld"), pytest.raises(SlurmCommandError) as caught:
        LiveJobs(impatient, ("gpu",), SystemClock()).list_runs()
    assert caught.value.status is None
    jobs.live.list_runs()


def test_slurmdbd_stopped(breakable: Testbed) -> None:
    """No records, no associations, no report, and no pretence; live runs are still listed."""
    jobs = Jobs(breakable)
    jobs.commands.cluster_name()
    with without(breakable, "slurmdbd"):
        with pytest.raises(SlurmUnavailableError, match="slurmdbd"):
            AccountingRecords(jobs.commands, ("gpu",)).read_records(1796000000, 1796003600)
        with pytest.raises(SlurmUnavailableError, match="slurmdbd"):
            read_associations(jobs.commands)
        with pytest.raises(SlurmUnavailableError, match="slurmdbd"):
            gpu_usage(jobs.commands, 1796000400 // 3600 * 3600, 1796004000 // 3600 * 3600)
        checks = check_slurm(Config(), jobs.commands, SystemClock())
        assert [check.name for check in checks if not check.ok] == ["slurmdbd"]
        jobs.live.list_runs()
    assert read_associations(jobs.commands).is_administrator("slurmwrap")


def test_munged_stopped(breakable: Testbed) -> None:
    """Slurm's commands can't prove who they are: the hint is about munged."""
    jobs = Jobs(breakable)
    jobs.commands.cluster_name()
    with without(breakable, "munged"):
        with pytest.raises(SlurmUnavailableError) as caught:
            jobs.live.list_runs()
        assert "munged" in (caught.value.hint or "")
        with pytest.raises(SlurmUnavailableError):
            jobs.records.read_records(1796000000, 1796003600)
    jobs.live.list_runs()
