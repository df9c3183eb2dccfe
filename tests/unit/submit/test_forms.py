"""The forms of times, memory, arrays, dependencies, nodes and cards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slurmwrap.errors import SlurmwrapError, UnknownNameError
from slurmwrap.submit import forms

# Each form was given to sbatch 22.05.8 itself, which took or refused it.
TAKEN = [
    (forms.check_time, "10"),
    (forms.check_time, "1:30"),
    (forms.check_time, "1-0"),
    (forms.check_time, "1-2:3:4"),
    (forms.check_time, "UNLIMITED"),
    (forms.check_memory, "512"),
    (forms.check_memory, "0"),
    (forms.check_memory, "4G"),
    (forms.check_memory, "4g"),
    (forms.check_memory, "4GB"),
    (forms.check_array, "0-9"),
    (forms.check_array, "1,3,5-7"),
    (forms.check_array, "0-15:4%2"),
    (forms.check_dependency, "afterok:1:2"),
    (forms.check_dependency, "afterok:1?afterany:2_3"),
    (forms.check_dependency, "after:3+5,singleton"),
    (forms.check_nodes, "2"),
    (forms.check_nodes, "1-3"),
]


@pytest.mark.parametrize(("check", "text"), TAKEN)
def test_what_sbatch_takes_is_taken(check: Callable[[str], str], text: str) -> None:
    """A valid form goes into the script unchanged."""
    assert check(text) == text


REFUSED = [
    (forms.check_time, "2h", "write --time 02:00:00"),
    (forms.check_time, "1d12h", "write --time 1-12:00:00"),
    (forms.check_time, "1:2:3:4", "--time 2:00:00"),
    (forms.check_time, "tomorrow", "--time 2:00:00"),
    (forms.check_time, "١٢", "--time 2:00:00"),
    (forms.check_memory, "1.5G", "write --memory 1536M"),
    (forms.check_memory, "0.5T", "write --memory 512G"),
    (forms.check_memory, "20GiB", "write --memory 20G"),
    (forms.check_memory, "4P", "for example"),
    (forms.check_memory, "-1", "for example"),
    (forms.check_array, "5-1", "write 1-5"),
    (forms.check_array, "1-5:0", "for example"),
    (forms.check_array, "1-5%0", "for example"),
    (forms.check_array, "1,", "for example"),
    (forms.check_array, "", "for example"),
    (forms.check_array, "a-b", "for example"),
    (forms.check_dependency, "123", "afterok:123"),
    (forms.check_dependency, "afterok:x", "for example"),
    (forms.check_dependency, "afterok:1,after:2?after:3", "one of the two"),
    (forms.check_nodes, "0", "for example"),
    (forms.check_nodes, "4-2", "write 2-4"),
]


@pytest.mark.parametrize(("check", "text", "hint"), REFUSED)
def test_what_sbatch_refuses_is_refused_with_what_to_write(
    check: Callable[[str], str], text: str, hint: str
) -> None:
    """A wrong form costs a second, and its hint says the right one where it can be known."""
    with pytest.raises(SlurmwrapError) as caught:
        check(text)
    assert caught.value.exit_code == 2
    assert hint in str(caught.value.hint)
    assert repr(text) in caught.value.message or repr(text.strip()) in caught.value.message


def test_an_unknown_dependency_type_is_refused_with_a_suggestion() -> None:
    """`afterOk` is not passed on: Slurm would refuse it after the queue of slurmctld."""
    with pytest.raises(UnknownNameError, match="did you mean 'afterok'"):
        forms.check_dependency("afterOk:12")


@pytest.mark.parametrize(
    ("gpus", "gpu_type", "expected"),
    [
        (None, None, (0, "")),
        ("0", None, (0, "")),
        ("2", None, (2, "")),
        ("a100:2", None, (2, "a100")),
        ("2", "a100", (2, "a100")),
        ("a100:2", "a100", (2, "a100")),
        (None, "h800", (1, "h800")),
        ("3090:4", None, (4, "3090")),
        ("a100_3g.20gb:1", None, (1, "a100_3g.20gb")),
    ],
)
def test_cards_are_counted_per_node(
    gpus: str | None, gpu_type: str | None, expected: tuple[int, str]
) -> None:
    """--gpus [TYPE:]N and --gpu-type say the same thing in two ways."""
    assert forms.check_cards(gpus, gpu_type) == expected


@pytest.mark.parametrize(
    ("gpus", "gpu_type"), [("two", None), ("a100:", None), ("a100:2", "h800"), (None, "a 100")]
)
def test_cards_that_can_not_be_read_are_refused(gpus: str | None, gpu_type: str | None) -> None:
    """A number or type of another form, and two types at once, are refused."""
    with pytest.raises(SlurmwrapError):
        forms.check_cards(gpus, gpu_type)
