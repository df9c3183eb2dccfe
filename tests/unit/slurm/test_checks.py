"""The checks find what would silently ruin accounting or evidence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slurmwrap.api import HealthCheck
from slurmwrap.clock import SteppedClock
from slurmwrap.config import Config
from slurmwrap.config.settings import AccountingSettings, SlurmSettings
from slurmwrap.slurm.checks import check_slurm


@pytest.fixture
def healthy(slurm, recorded: Path) -> SteppedClock:
    """A real cluster in order, and the moment at which it was asked."""
    configuration = (recorded / "scontrol-show-config.txt").read_text()
    slurm.answer("scontrol", configuration, when="show config")
    slurm.answer("scontrol", "slurm-wlm 22.05.8\n", when="--version")
    slurm.answer("squeue", recorded / "squeue.json", when="--json")
    for program in ("scancel", "sacct", "sreport"):
        slurm.answer(program)
    slurm.answer("sacctmgr", recorded / "sacctmgr-user.txt", when="show user")
    slurm.answer("sacctmgr", recorded / "sacctmgr-account.txt", when="show account")
    slurm.answer("sacctmgr", recorded / "sacctmgr-assoc.txt", when="show assoc")
    slurm.answer("sacctmgr", "testbed\n", when="show cluster")
    told = re.search(r"as of (\d+)", configuration)
    assert told
    return SteppedClock(int(told[1]))


def failing(slurm, clock: SteppedClock, config: Config | None = None) -> dict[str, HealthCheck]:
    checks = check_slurm(config or Config(), slurm.commands(), clock)
    assert len({check.name for check in checks}) == len(checks)
    return {check.name: check for check in checks if not check.ok}


def set_configuration(slurm, recorded: Path, pattern: str, value: str) -> None:
    text = (recorded / "scontrol-show-config.txt").read_text()
    changed = re.sub(pattern, value, text, flags=re.MULTILINE)
    assert changed != text
    slurm.answer("scontrol", changed, when="show config")


def test_a_cluster_in_order_passes(slurm, healthy: SteppedClock) -> None:
    """Every check has looked and found nothing."""
    checks = check_slurm(Config(), slurm.commands(), healthy)
    assert [(check.name, check.ok) for check in checks] == [
        ("slurm-programs", True),
        ("slurmctld", True),
        ("card-accounting", True),
        ("limits", True),
        ("confined-cards", True),
        ("slurm-clock", True),
        ("slurm-json", True),
        ("slurmdbd", True),
        ("cluster-name", True),
        ("privileges", True),
    ]


def test_untracked_cards_are_loud(slurm, healthy: SteppedClock, recorded: Path) -> None:
    """B23: without gres/gpu in AccountingStorageTRES every bill would be zero."""
    set_configuration(slurm, recorded, r"^(AccountingStorageTRES .*),gres/gpu,.*$", r"\1")
    check = failing(slurm, healthy)["card-accounting"]
    assert "every bill from them would be zero" in check.detail
    assert "gres/gpu" in check.hint


def test_typed_entries_alone_do_not_track_cards(slurm, healthy, recorded: Path) -> None:
    """gres/gpu:a100 without gres/gpu counts only that type."""
    set_configuration(slurm, recorded, r"gres/gpu,gres/gpu:a100,gres/gpu:h800", "gres/gpu:a100")
    assert list(failing(slurm, healthy)) == ["card-accounting"]


def test_every_kind_of_card_must_be_tracked(slurm, healthy: SteppedClock) -> None:
    """accounting.card_gres names npu too, which this cluster does not track."""
    config = Config(accounting=AccountingSettings(card_gres=("gpu", "npu")))
    assert "gres/npu" in failing(slurm, healthy, config)["card-accounting"].detail


def test_limits_that_are_not_enforced(slurm, healthy: SteppedClock, recorded: Path) -> None:
    """associations alone: limits have no effect."""
    set_configuration(slurm, recorded, "associations,limits,qos", "associations")
    assert list(failing(slurm, healthy)) == ["limits"]


@pytest.mark.parametrize(("value", "names"), [("no", ["confined-cards"]), ("yes", [])])
def test_cards_that_every_job_can_reach(
    slurm, healthy, recorded: Path, value: str, names: list[str]
) -> None:
    """cgroup.conf as slurmctld shows it below its own configuration."""
    text = f"\nCgroup Support Configuration:\nConstrainDevices        = {value}\n"
    set_configuration(slurm, recorded, r"\Z", text)
    assert list(failing(slurm, healthy)) == names


@pytest.mark.parametrize(
    ("offset", "words"), [(30, "30 s behind ours"), (-30, "30 s ahead of ours"), (3, None)]
)
def test_a_clock_that_is_off(slurm, healthy: SteppedClock, offset: int, words: str | None) -> None:
    """More than 5 s between slurmctld and us."""
    healthy.set(healthy.now() + offset)
    check = failing(slurm, healthy).get("slurm-clock")
    assert (check.detail if check else None) == words or (words and words in check.detail)


def test_a_cluster_called_otherwise(slurm, healthy: SteppedClock) -> None:
    """slurm.cluster must be ClusterName, or runs and records never meet."""
    config = Config(slurm=SlurmSettings(cluster="alpha"))
    assert "'alpha'" in failing(slurm, healthy, config)["cluster-name"].detail


def test_a_cluster_that_slurmdbd_does_not_know(slurm, healthy: SteppedClock) -> None:
    """It was never added to slurmdbd."""
    slurm.answer("sacctmgr", "other\n", when="show cluster")
    assert "sacctmgr add cluster testbed" in failing(slurm, healthy)["cluster-name"].hint


@pytest.mark.parametrize(
    ("users", "found"),
    [
        ("slurmwrap|Operator\n", "AdminLevel Operator"),
        ("slurmwrap|None\n", "AdminLevel None"),
        ("root|Administrator\n", "unknown to slurmdbd"),
    ],
)
def test_a_service_without_privileges(slurm, healthy, users: str, found: str) -> None:
    """Operator may cancel but not say why: only Administrator will do."""
    slurm.answer("sacctmgr", users, when="show user")
    assert found in failing(slurm, healthy)["privileges"].detail


@pytest.mark.parametrize("version", ["slurm 21.08.8", "slurm-wlm 20.11.9"])
def test_a_slurm_that_is_too_old(slurm, healthy: SteppedClock, version: str) -> None:
    """Before 22.05 nothing else is tried."""
    slurm.answer("scontrol", version, when="--version")
    assert list(failing(slurm, healthy)) == ["slurm-programs"]


@pytest.mark.parametrize("version", ["slurm 23.02.1", "slurm 25.11.7", "slurm-wlm 26.05.5-rc1"])
def test_newer_slurms_pass(slurm, healthy: SteppedClock, version: str) -> None:
    """22.05 and everything after it."""
    slurm.answer("scontrol", version, when="--version")
    assert failing(slurm, healthy) == {}


def test_a_missing_program(slurm, healthy: SteppedClock) -> None:
    """It is named, and nothing else is tried."""
    (slurm.folder / "sreport").unlink()
    assert "sreport" in failing(slurm, healthy)["slurm-programs"].detail


def test_slurmctld_away(slurm, healthy: SteppedClock) -> None:
    """Its own line fails; what can't be asked is left out; slurmdbd is still looked at."""
    words = "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)"
    slurm.answer("scontrol", status=1, stderr=words, when="show config")
    checks = check_slurm(Config(), slurm.commands(), healthy)
    assert [(check.name, check.ok) for check in checks] == [
        ("slurm-programs", True),
        ("slurmctld", False),
        ("slurmdbd", True),
    ]
    assert checks[1].hint


def test_slurmdbd_away(slurm, healthy: SteppedClock) -> None:
    """Its own line fails, the rest of slurmctld's lines stand."""
    words = "sacctmgr: error: Sending PersistInit msg: Connection refused"
    slurm.answer("sacctmgr", status=1, stderr=words)
    assert list(failing(slurm, healthy)) == ["slurmdbd"]


def test_a_squeue_without_json(slurm, healthy: SteppedClock) -> None:
    """Slurm built without its JSON plugin: cards can't be read."""
    words = "squeue: fatal: JSON plugin load failure"
    slurm.answer("squeue", status=1, stderr=words)
    assert list(failing(slurm, healthy)) == ["slurm-json"]
