"""What reading an accelerator means: the cards of a node, one read of one card, the interface."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from slurmwrap.model import ReadStatus


class CardIdentity(Struct, frozen=True, kw_only=True):
    """One card of this node as Slurm counts it and as the driver knows it."""

    index: int
    """Slurm's index of the card on the node."""
    minor: int | None = None
    """The driver's minor number (/dev/nvidiaMINOR); None: the card would not say."""
    slice_number: int | None = None
    """For a MIG slice, its place on its parent; None: a whole card."""
    position: int | None = None
    """The driver's own number of the device now; None: the driver does not list it."""
    uuid: str = ""
    name: str = ""
    status: ReadStatus = ReadStatus.OK
    """Of finding the card; anything but OK is said again by every read."""
    error: str = ""


class DriverProcess(Struct, frozen=True, kw_only=True):
    """A process as the driver names it."""

    pid: int
    memory_bytes: int | None = None


class CardRead(Struct, frozen=True, kw_only=True):
    """One read of one card. A value that could not be read is None, and ``missing`` says why."""

    status: ReadStatus
    """Of the utilisation."""
    utilisation: int | None = None
    """Percent of the driver's last sampling period in which a kernel ran."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_milliwatts: int | None = None
    energy_millijoules: int | None = None
    """A counter since the driver was loaded."""
    temperature_celsius: int | None = None
    sm_clock_mhz: int | None = None
    ecc_uncorrected: int | None = None
    processes: tuple[DriverProcess, ...] | None = None
    missing: dict[str, ReadStatus] = {}
    """Per field that was asked for and could not be read, the reason."""
    error: str = ""
    """The driver's words for what failed, the utilisation first."""


class GpuReader(Protocol):
    """The accelerators of one node. ``read`` may be called from one thread per card."""

    def list_cards(self) -> tuple[CardIdentity, ...]:
        """Every card Slurm knows here, by Slurm index; lost ones too, with their status.

        Cheap enough to be asked once per interval, since a driver or a card may come and go.

        Raises:
            ReaderError: the driver can't be reached at all.
        """
        ...

    def read(self, card: CardIdentity, *, fully: bool) -> CardRead:
        """One read of a card: utilisation, memory and power; all the rest when ``fully``.

        Never raises for what the driver says: that is a status.
        """
        ...

    def close(self) -> None:
        """Let go of the driver; the next ``list_cards`` opens it again."""
        ...
