"""Which device is which Slurm index: by minor number order, or by an explicit map."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from slurmwrap.errors import ReaderError
from slurmwrap.gpu.reader import CardIdentity
from slurmwrap.model import ReadStatus


class Device(Struct, frozen=True, kw_only=True):
    """One device as the driver lists it."""

    position: int
    """The driver's own number, which need not follow the minor numbers."""
    minor: int | None
    """None: the device would not say (it is lost)."""
    uuid: str = ""
    name: str = ""
    slices: tuple[tuple[str, str], ...] = ()
    """(uuid, name) of each MIG slice; empty: the whole device is one card."""
    status: ReadStatus = ReadStatus.OK
    error: str = ""


def index_cards(
    devices: Sequence[Device],
    *,
    explicit_minors: Sequence[int] = (),
    remembered: Sequence[CardIdentity] = (),
) -> tuple[CardIdentity, ...]:
    """The node's cards in Slurm's order.

    Slurm numbers cards by their device files in minor order; a MIG device counts once per
    slice (source: gres.conf(5), and add_gres_to_list per slice in Slurm's gpu/nvml plugin).
    ``explicit_minors`` names the minor of each Slurm index where a site differs; a minor
    named again stands for the next slice of that device. ``remembered`` are the cards seen
    earlier since the same boot: a card that fell off the bus keeps its index and its slices.

    Raises:
        ReaderError: a lost device leaves it open which index is which. A wrong guess would
            give one job's utilisation to another.
    """
    placed = _place_lost(devices, explicit_minors, remembered)
    order = list(explicit_minors) or _slurm_order(placed, remembered)
    earlier = {(card.minor, card.slice_number): card for card in remembered}
    cards: list[CardIdentity] = []
    slices_given: dict[int, int] = {}
    for index, minor in enumerate(order):
        nth = slices_given.get(minor, 0)
        slices_given[minor] = nth + 1
        card = _card(index, minor, nth, placed.get(minor))
        known = earlier.get((card.minor, card.slice_number))
        if known is not None and not card.uuid:
            card = msgspec.structs.replace(card, uuid=known.uuid, name=known.name)
        cards.append(card)
    return tuple(cards)


def _place_lost(
    devices: Sequence[Device],
    explicit_minors: Sequence[int],
    remembered: Sequence[CardIdentity],
) -> dict[int, Device]:
    """Devices by minor. Lost ones get the minors that are known to exist and that none took."""
    placed = {device.minor: device for device in devices if device.minor is not None}
    lost = [device for device in devices if device.minor is None]
    if not lost:
        return placed
    known_minors = set(explicit_minors) or {
        card.minor for card in remembered if card.minor is not None
    }
    if len(known_minors) < len(devices):
        # Without better knowledge: the driver numbers the devices it finds from 0.
        known_minors = set(range(len(devices)))
    free = sorted(known_minors - set(placed))
    if len(free) != len(lost):
        raise ReaderError(
            f"{len(lost)} of {len(devices)} cards do not tell their minor number"
            f" ({lost[0].error}) and those of the others ({_listed(placed)}) leave open"
            " which they are",
            hint="name the minor number of each Slurm index in agents.cards",
        )
    return placed | dict(zip(free, lost, strict=True))


def _slurm_order(placed: dict[int, Device], remembered: Sequence[CardIdentity]) -> list[int]:
    """One minor per Slurm index.

    As long as a card is missing or lost, the order of before holds: counting what is left
    would move every later card to another index.
    """
    earlier = [card.minor for card in remembered if card.minor is not None]
    one_is_lost = any(device.status is ReadStatus.LOST for device in placed.values())
    if set(placed) < set(earlier) or (one_is_lost and set(placed) == set(earlier)):
        return earlier
    return [minor for minor in sorted(placed) for _ in range(max(1, len(placed[minor].slices)))]


def _card(index: int, minor: int, nth: int, device: Device | None) -> CardIdentity:
    if device is None:
        return CardIdentity(
            index=index,
            minor=minor,
            status=ReadStatus.LOST,
            error=f"the driver lists no device with minor number {minor}",
        )
    if nth < len(device.slices):
        uuid, name = device.slices[nth]
        return CardIdentity(
            index=index,
            minor=minor,
            slice_number=nth,
            position=device.position,
            uuid=uuid,
            name=name,
        )
    if nth > 0 or device.slices:
        error = f"device {minor} has {len(device.slices)} MIG slices, not {nth + 1}"
        return CardIdentity(
            index=index,
            minor=minor,
            slice_number=nth,
            status=ReadStatus.LOST,
            error=device.error or error,
        )
    return CardIdentity(
        index=index,
        minor=minor,
        position=device.position,
        uuid=device.uuid,
        name=device.name,
        status=device.status,
        error=device.error,
    )


def _listed(minors: dict[int, Device]) -> str:
    return ", ".join(str(minor) for minor in sorted(minors)) or "none"
