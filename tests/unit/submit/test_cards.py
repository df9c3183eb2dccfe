"""GPU types as sinfo lists them."""

from __future__ import annotations

import pytest

from slurmwrap.errors import UnknownNameError
from slurmwrap.submit.cards import check_gpu_type, parse_gpu_types


@pytest.mark.parametrize(
    ("output", "types"),
    [
        ("gpu:a100:4\ngpu:h800:4\n", {"a100", "h800"}),
        ("gpu:h100:2(S:0),gpu:h200:4(S:0-1),lustre:1\n(null)\n", {"h100", "h200"}),
        ("gpu:a100_3g.20gb:2(S:0,1)\n", {"a100_3g.20gb"}),
        ("gpu:4\nnpu:910b:8\n", set()),
        ("", set()),
    ],
)
def test_types_are_read_from_sinfo(output: str, types: set[str]) -> None:
    """Types of several per node, with sockets, beside other resources, or none at all."""
    assert parse_gpu_types(output) == types


def test_other_cards_than_gpus() -> None:
    """The site says which resources are cards."""
    assert parse_gpu_types("npu:910b:8\ngpu:a100:2", ("npu",)) == {"910b"}


def test_an_unknown_type_is_refused_with_the_known_ones() -> None:
    """A mistyped type would wait for ever or be refused without a word about which there are."""
    with pytest.raises(UnknownNameError, match=r"did you mean 'a100'.*known: a100, h800"):
        check_gpu_type("a10", {"a100", "h800"})
    check_gpu_type("", set())
    check_gpu_type("a100", {"a100"})
