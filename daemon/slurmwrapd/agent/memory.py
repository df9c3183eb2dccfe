"""Which cards this node had when they could be listed last: kept for when they can't."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from slurmwrap.gpu.reader import CardIdentity
from slurmwrapd.agent.spool import CARDS_FILE, write_file


class _Kept(Struct, frozen=True, kw_only=True):
    boot_id: str
    cards: tuple[CardIdentity, ...]


class CardMemory:
    """A small file beside the spool.

    A driver that refuses to start names no cards; those of before are then told as unknown,
    which is not the same as a node without cards.
    """

    def __init__(self, folder: Path, boot_id: str) -> None:
        self._path = folder / CARDS_FILE
        self._boot_id = boot_id
        kept = self._read()
        self.cards: tuple[CardIdentity, ...] = kept.cards if kept is not None else ()
        """All of them, of whatever boot."""
        same_boot = kept is not None and kept.boot_id == boot_id
        self.cards_of_this_boot = self.cards if same_boot else ()
        """Those whose minor numbers still hold."""

    def keep(self, cards: tuple[CardIdentity, ...]) -> None:
        """Remember these; silently not, when the disk takes nothing."""
        if cards == self.cards and self.cards_of_this_boot:
            return
        self.cards = self.cards_of_this_boot = cards
        try:
            write_file(self._path, msgspec.json.encode(_Kept(boot_id=self._boot_id, cards=cards)))
        except OSError:
            return

    def _read(self) -> _Kept | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Kept)
        except (OSError, msgspec.DecodeError):
            return None
