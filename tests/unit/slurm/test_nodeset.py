"""Host list expressions."""

from __future__ import annotations

import pytest

from slurmwrap.slurm.nodeset import expand_nodes


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        # Each as `scontrol show hostnames` of 22.05.8 prints it.
        ("gpu[1-2,05-07]", "gpu1 gpu2 gpu05 gpu06 gpu07"),
        ("rack[1-2]n[1-3]", "rack1n1 rack1n2 rack1n3 rack2n1 rack2n2 rack2n3"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[8-11],n9", "n8 n9 n10 n11 n9"),
        ("n[001-2]", "n001 n002"),
        ("n[9-010]", "n9 n10"),
        ("n[1,1]", "n1 n1"),
        ("a,b,,c", "a b c"),
        ("login.example.org", "login.example.org"),
        ("", ""),
    ],
)
def test_names_come_as_slurm_expands_them(expression: str, names: str) -> None:
    """Order, padding and repetitions are Slurm's."""
    assert list(expand_nodes(expression)) == names.split()


@pytest.mark.parametrize(
    "expression",
    ["n[5-3]", "n[1-2", "n1-2]", "n[a-c]", "n[]", "n[1-]", "n[[1]]", "n[1-70000]", "n[-1]"],
)
def test_what_is_no_list_is_refused(expression: str) -> None:
    """A broken list is an error, never a shorter list of nodes."""
    with pytest.raises(ValueError, match="n"):
        expand_nodes(expression)


def test_a_list_that_would_fill_the_memory_is_refused() -> None:
    """Nested ranges multiply: the product is bounded before it is made."""
    with pytest.raises(ValueError, match="more than"):
        expand_nodes("a[1-9999]b[1-9999]c[1-9999]")
