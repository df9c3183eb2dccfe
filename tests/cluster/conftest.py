"""One running testbed for all cluster tests; skipped, with the reason, where there can be none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from testbed import packages
from testbed.cluster import Testbed
from testbed.failures import NotSupported, TestbedError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def testbed() -> Iterator[Testbed]:
    """Testbed $SLURMWRAP_TESTBED_NAME (or `test`): used if it is up, else up for the session.

    Tests that run side by side have an instance each.
    """
    name = os.environ.get("SLURMWRAP_TESTBED_NAME") or "test"
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:
        name = f"{name}-{worker}"
    try:
        packages.check_machine()
    except NotSupported as error:
        pytest.skip(str(error))
    try:
        yield Testbed.attach(name)
        return
    except TestbedError:
        running = Testbed.up(name)
    yield running
    running.down()
