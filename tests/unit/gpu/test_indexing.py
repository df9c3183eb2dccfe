"""Which device is which Slurm index."""

from __future__ import annotations

import pytest

from slurmwrap.errors import ReaderError
from slurmwrap.gpu.indexing import Device, index_cards
from slurmwrap.gpu.reader import CardIdentity
from slurmwrap.model import ReadStatus


def device(position: int, minor: int | None, **more: object) -> Device:
    status = ReadStatus.OK if minor is not None else ReadStatus.LOST
    fields = {"uuid": f"GPU-{position}" if minor is not None else "", "status": status, **more}
    return Device(position=position, minor=minor, **fields)  # type: ignore[arg-type]


def positions(cards: tuple[CardIdentity, ...]) -> list[int | None]:
    return [card.position for card in cards]


def test_index_follows_the_minor_number_not_the_drivers_order() -> None:
    """A2: minors 3,2,1,0 in the driver's order: Slurm's card 0 is the driver's last device."""
    cards = index_cards([device(0, 3), device(1, 2), device(2, 1), device(3, 0)])
    assert positions(cards) == [3, 2, 1, 0]
    assert [card.index for card in cards] == [0, 1, 2, 3]


def test_minor_numbers_may_have_holes() -> None:
    """A node whose devices are nvidia1 and nvidia4 has the cards 0 and 1."""
    cards = index_cards([device(0, 4), device(1, 1)])
    assert [(card.index, card.minor, card.position) for card in cards] == [(0, 1, 1), (1, 4, 0)]


def test_an_explicit_map_wins_over_minor_order() -> None:
    """A2: the configured map names the minor number of each Slurm index."""
    devices = [device(0, 0), device(1, 1), device(2, 2)]
    assert positions(index_cards(devices, explicit_minors=[2, 0, 1])) == [2, 0, 1]


def test_an_explicit_map_may_leave_devices_to_others() -> None:
    """A device that the map does not name is no card of Slurm's."""
    devices = [device(0, 0), device(1, 1), device(2, 2)]
    assert positions(index_cards(devices, explicit_minors=[2, 1])) == [2, 1]


def test_a_mapped_device_that_is_missing_keeps_its_index() -> None:
    """The card is there and lost: those after it do not move up."""
    cards = index_cards([device(0, 0), device(1, 2)], explicit_minors=[0, 1, 2])
    assert [card.status for card in cards] == [ReadStatus.OK, ReadStatus.LOST, ReadStatus.OK]
    assert "minor number 1" in cards[1].error


def test_a_lost_device_takes_the_minor_that_is_free() -> None:
    """R2: one of four can't be found; the other three keep their indexes."""
    lost = device(1, None, error="GPU is lost (NVML error 15)")
    cards = index_cards([device(0, 0), lost, device(2, 2), device(3, 3)])
    assert [card.status for card in cards] == [
        ReadStatus.OK,
        ReadStatus.LOST,
        ReadStatus.OK,
        ReadStatus.OK,
    ]
    assert cards[1].minor == 1
    assert cards[1].error == "GPU is lost (NVML error 15)"


def test_a_lost_device_is_refused_where_its_place_would_be_a_guess() -> None:
    """Minors 1 and 5 answer, the third device does not: it could be before, between or after."""
    devices = [device(0, 1), device(1, 5), device(2, None, error="lost")]
    with pytest.raises(ReaderError) as caught:
        index_cards(devices)
    assert "1, 5" in caught.value.message
    assert "agents.cards" in (caught.value.hint or "")


def test_what_was_seen_before_places_a_lost_device() -> None:
    """The same node, after its cards were seen once in this boot: nothing is open."""
    before = index_cards([device(0, 1), device(1, 5), device(2, 3)])
    cards = index_cards([device(0, 1), device(1, 5), device(2, None)], remembered=before)
    assert [(card.minor, card.status) for card in cards] == [
        (1, ReadStatus.OK),
        (3, ReadStatus.LOST),
        (5, ReadStatus.OK),
    ]
    assert cards[1].uuid == "GPU-2", "its name of before"


def test_a_device_that_fell_out_of_the_list_keeps_its_index() -> None:
    """The driver lists three of four: the third card stays card 2, not card 1."""
    before = index_cards([device(0, 0), device(1, 1), device(2, 2), device(3, 3)])
    cards = index_cards([device(0, 0), device(1, 2), device(2, 3)], remembered=before)
    assert [(card.index, card.minor, card.status) for card in cards] == [
        (0, 0, ReadStatus.OK),
        (1, 1, ReadStatus.LOST),
        (2, 2, ReadStatus.OK),
        (3, 3, ReadStatus.OK),
    ]


def test_each_mig_slice_is_a_card() -> None:
    """Slurm counts a MIG device once per slice, at its parent's place."""
    slices = (("MIG-a", "3g.40gb"), ("MIG-b", "3g.40gb"))
    cards = index_cards([device(0, 1), device(1, 0, slices=slices)])
    assert [(card.index, card.minor, card.slice_number, card.uuid) for card in cards] == [
        (0, 0, 0, "MIG-a"),
        (1, 0, 1, "MIG-b"),
        (2, 1, None, "GPU-0"),
    ]


def test_a_lost_parent_keeps_the_places_of_its_slices() -> None:
    """Two slices and a whole card, then the parent is lost: the whole card stays card 2."""
    slices = (("MIG-a", ""), ("MIG-b", ""))
    before = index_cards([device(0, 0, slices=slices), device(1, 1)])
    cards = index_cards([device(0, None, error="lost"), device(1, 1)], remembered=before)
    assert [card.status for card in cards] == [ReadStatus.LOST, ReadStatus.LOST, ReadStatus.OK]
    assert cards[2].uuid == "GPU-1"


def test_no_device_is_no_card() -> None:
    """A node without devices is not an error."""
    assert index_cards([]) == ()
