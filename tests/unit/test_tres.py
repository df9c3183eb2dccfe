"""Cards in TRES strings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmwrap.tres import UNTYPED, count_cards, parse_tres


@pytest.mark.parametrize(
    ("tres", "cards"),
    [
        pytest.param(
            "billing=3,cpu=24,gres/gpu:a100=2,gres/gpu=2",
            {"a100": 2},
            id="B1: both forms, one card",
        ),
        pytest.param("gres/gpu=1,gres/gpumem=80", {UNTYPED: 1}, id="B2: memory is no card"),
        pytest.param("cpu=8,gres/gpu:a100=2,node=1", {"a100": 2}, id="B3: typed only"),
        pytest.param(
            "gres/gpu:a100=2,gres/gpu:v100=1,gres/gpu=3", {"a100": 2, "v100": 1}, id="B4: two types"
        ),
        pytest.param("gres/gpu=8", {UNTYPED: 8}, id="B5: untyped only"),
        pytest.param(
            "gres/gpu:a100_3g.20gb=1,gres/gpu=1", {"a100_3g.20gb": 1}, id="B24: MIG slice"
        ),
        pytest.param(
            "gres/gpu=4,gres/gpu:a100=3", {"a100": 3, UNTYPED: 1}, id="the rest is untyped"
        ),
        pytest.param("gres/gpuutil=93,gres/gpu=1", {UNTYPED: 1}, id="utilisation is no card"),
        pytest.param("gres/shard=4,cpu=1", {}, id="a share of a card is no card"),
        pytest.param("gres/gpu:a100=0,gres/gpu=0", {}, id="no card of a type"),
        pytest.param("gres/gpu=1K", {UNTYPED: 1024}, id="multiplier"),
        pytest.param("", {}, id="nothing"),
        pytest.param("garbage,=,gres/gpu", {}, id="a truncated string"),
    ],
)
def test_cards_are_counted_once(tres: str, cards: dict[str, int]) -> None:
    """B1 to B5, B24: typed and untyped entries count the same cards, and only cards count."""
    assert count_cards(tres) == cards


def test_the_site_says_what_a_card_is() -> None:
    """npu, dcu and mlu are cards where the settings say so."""
    tres = "gres/npu:910b=4,gres/npu=4,gres/gpu=1"
    assert count_cards(tres, ("npu",)) == {"910b": 4}
    assert count_cards(tres, ("npu", "gpu")) == {"910b": 4, UNTYPED: 1}


@pytest.mark.parametrize(
    "tres", ["gres/gpu=x", "gres/gpu=", "gres/gpu=1.5", "gres/gpu=-1", "gres/gpu:a=2,gres/gpu=1"]
)
def test_a_count_that_makes_no_sense_is_not_guessed(tres: str) -> None:
    """A record like this must be looked at by a person."""
    with pytest.raises(ValueError, match=r"gres/gpu|generic resources"):
        count_cards(tres)


def test_the_last_entry_of_a_name_wins_and_order_is_free() -> None:
    """Slurm does not promise an order."""
    assert parse_tres("mem=200M,cpu=2 , node=2") == {"mem": "200M", "cpu": "2", "node": "2"}


@given(st.text(max_size=60))
def test_no_text_crashes_the_count(text: str) -> None:
    """Anything is counted or refused."""
    try:
        cards = count_cards(text)
    except ValueError:
        return
    assert all(count > 0 for count in cards.values())


@given(
    st.dictionaries(st.sampled_from(["a100", "h800", "v100"]), st.integers(1, 64)),
    st.integers(0, 8),
)
def test_all_cards_are_in_exactly_one_type(types: dict[str, int], untyped: int) -> None:
    """Counted cards add up to gres/gpu, whatever the types are."""
    total = sum(types.values()) + untyped
    entries = [*(f"gres/gpu:{name}={count}" for name, count in types.items()), f"gres/gpu={total}"]
    assert sum(count_cards(",".join(entries)).values()) == total
