"""What the options ask of Slurm."""

from __future__ import annotations

from typing import Any

import pytest

from slurmwrap.errors import SlurmwrapError, UnknownNameError, UsageError
from slurmwrap.submit.request import JobRequest, SubmitOptions, build_request


def make_request(**options: Any) -> JobRequest:
    return build_request(SubmitOptions(**{"command": ("python", "train.py"), **options}))


def test_options_become_directives_in_a_fixed_order() -> None:
    """Every option has its sbatch name, and what keeps a supervised job whole is added."""
    request = make_request(
        name="run",
        account="lab",
        partition="gpu",
        qos="high",
        time="1:00:00",
        nodes="2",
        gpus="a100:4",
        cpus=8,
        memory="64G",
        array="0-3",
        dependency="afterok:12",
        output="%x-%j.out",
        sbatch=("mail-type=END", "contiguous"),
    )
    assert request.directives == (
        ("job-name", "run"),
        ("account", "lab"),
        ("partition", "gpu"),
        ("qos", "high"),
        ("nodes", "2"),
        ("gres", "gpu:a100:4"),
        ("cpus-per-task", "8"),
        ("mem", "64G"),
        ("time", "1:00:00"),
        ("array", "0-3"),
        ("dependency", "afterok:12"),
        ("output", "%x-%j.out"),
        ("mail-type", "END"),
        ("contiguous", ""),
        ("kill-on-invalid-dep", "yes"),
        ("open-mode", "append"),
        ("requeue", ""),
        ("signal", "B:USR1@120"),
    )
    assert (request.nodes, request.cards_per_node, request.gpu_type) == (2, 4, "a100")


def test_the_log_is_appended_and_the_requeue_is_said() -> None:
    """S6: a requeued run never truncates the log of the first."""
    request = make_request()
    assert request.directive("open-mode") == "append"
    assert request.directive("requeue") == ""


def test_a_dependency_that_fails_ends_the_job() -> None:
    """S17: afterok on a job that failed would wait for ever."""
    assert make_request(dependency="afterok:1").directive("kill-on-invalid-dep") == "yes"
    assert make_request().directive("kill-on-invalid-dep") is None


def test_the_user_has_the_last_word() -> None:
    """What is given through --sbatch replaces what would be added."""
    request = make_request(
        sbatch=("open-mode=truncate", "no-requeue", "signal=USR2@60", "kill-on-invalid-dep=no"),
        dependency="afterok:1",
    )
    assert request.directive("open-mode") == "truncate"
    assert request.directive("requeue") is None
    assert request.directive("signal") == "USR2@60"
    assert request.directive("kill-on-invalid-dep") == "no"


@pytest.mark.parametrize(
    ("limit", "signal"),
    [
        ("1:00:00", "B:USR1@120"),
        ("1", "B:USR1@30"),
        ("2", "B:USR1@60"),
        ("0", "B:USR1@120"),
        ("UNLIMITED", "B:USR1@120"),
    ],
)
def test_a_short_job_is_not_told_of_its_end_at_its_start(limit: str, signal: str) -> None:
    """The warning comes at half of a limit that is shorter than twice the lead."""
    assert make_request(time=limit).directive("signal") == signal


def test_the_lead_of_the_signal_stays_within_what_sbatch_takes() -> None:
    """sbatch refuses --signal=B:USR1@70000."""
    request = build_request(SubmitOptions(command=("x",)), signal_lead_seconds=86400)
    assert request.directive("signal") == "B:USR1@65535"


def test_cards_can_be_another_resource() -> None:
    """A site with NPUs names their gres."""
    request = build_request(SubmitOptions(command=("x",), gpus="8"), card_gres="npu")
    assert request.directive("gres") == "npu:8"


@pytest.mark.parametrize(
    "options",
    [
        {"command": ()},
        {"partition": "gpu", "sbatch": ("partition=spot",)},
        {"gpus": "2", "sbatch": ("gpus-per-node=2",)},
        {"name": "a\nb"},
        {"output": "logs/a\nb"},
        {"account": ""},
        {"memory": "1.5G"},
        {"sbatch": ("mem=1.5G",)},
        {"patience": 3},
        {"sbatch": ("requeue", "no-requeue")},
        {"sbatch": ("comment=a\x1b[31mb",)},
    ],
)
def test_mistakes_are_refused(options: dict[str, Any]) -> None:
    """Contradictions, control characters and wrong forms never reach sbatch."""
    with pytest.raises(UsageError):
        make_request(**options)


def test_a_watched_metric_is_checked_before_the_queue() -> None:
    """A mistyped mode is found now, not in the job."""
    with pytest.raises(UnknownNameError):
        make_request(watch="loss:mni")


def test_cards_asked_for_through_sbatch_are_unknown_not_zero() -> None:
    """A template must not take an option that we don't count for a job without cards."""
    assert make_request(sbatch=("gpus-per-node=2",)).cards_per_node is None
    assert make_request().cards_per_node == 0


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("python", "train.py", "--lr", "1"), "train.py"),
        (("/opt/venv/bin/python3.11", "-u", "src/train.py"), "train.py"),
        (("./run.sh", "a"), "run.sh"),
        (("bash", "-c", "echo a b"), "bash"),
        (("python", "-c", "print(1)"), "python"),
        (("-m", "package.train"), "package.train"),
        (("a\nb",), "job"),
        (("测试",), "测试"),
    ],
)
def test_a_job_without_a_name_is_called_after_its_program(
    command: tuple[str, ...], name: str
) -> None:
    """The queue shows train.py, not python or sbatch."""
    assert make_request(command=command).name == name


def test_every_mistake_names_its_option() -> None:
    """The message says which option it is about."""
    for options in ({"time": "2h"}, {"sbatch": ("time=2h",)}):
        with pytest.raises(SlurmwrapError, match="--time"):
            make_request(**options)
