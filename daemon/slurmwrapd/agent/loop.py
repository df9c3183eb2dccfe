"""The agent's life: one message per interval, until it is asked to stop."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from slurmwrap.api import Readings
from slurmwrap.config.settings import AgentsSettings
from slurmwrap.errors import ReaderError, SlurmwrapError
from slurmwrap.gpu.interval import count_ticks, newest_counter, next_boundary, summarise
from slurmwrap.gpu.processes import ProcessTable
from slurmwrap.gpu.reader import CardIdentity, CardRead, GpuReader
from slurmwrap.model import CardProcess, CardReading
from slurmwrapd import systemd
from slurmwrapd.agent.memory import CardMemory
from slurmwrapd.agent.sender import Sender
from slurmwrapd.agent.spool import Spool
from slurmwrapd.agent.stopping import StopRequest
from slurmwrapd.agent.watch import CardList, CardWatch

log = logging.getLogger("slurmwrapd.agent")

_LONGEST_NAP_SECONDS = 20.0
"""A clock that was set is noticed within this time."""


def node_name(named: str | None, environment: Mapping[str, str], host: str) -> str:
    """Slurm's name of this node: as named, else what slurmd says, else the short host name."""
    return named or environment.get("SLURMD_NODENAME", "") or host.partition(".")[0]


def read_boot_id(path: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    """The kernel's name of the time since the last boot; empty when it does not say."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class CardWatches:
    """The cards of the node under watch, and what is said of each over an interval."""

    def __init__(
        self,
        reader: GpuReader,
        settings: AgentsSettings,
        node: str,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._reader = reader
        self._settings = settings
        self._node = node
        self._now = now
        self._table = ProcessTable()
        self._watches: dict[int, CardWatch] = {}
        self._said: dict[int, str] = {}

    def adopt(self, cards: tuple[CardIdentity, ...]) -> None:
        """Watch these cards from now on, and no others."""
        for card in cards:
            watch = self._watches.get(card.index)
            if watch is None:
                watch = self._watches[card.index] = CardWatch(
                    self._reader,
                    card,
                    read_every_seconds=self._settings.read_every,
                    interval_seconds=self._settings.interval,
                    call_timeout_seconds=self._settings.call_timeout,
                    now=self._now,
                )
            watch.replace_card(card)
            watch.start()
        for index in set(self._watches) - {card.index for card in cards}:
            self._watches.pop(index).stop()

    def stop(self) -> None:
        for watch in self._watches.values():
            watch.stop()

    def have_read(self, count: int) -> bool:
        """Whether every card that answers was read so often."""
        return all(
            watch.has_read(count) or watch.hanging_seconds() for watch in self._watches.values()
        )

    def collect(
        self, started_at: int, ended_at: int, *, expected_reads: int
    ) -> tuple[CardReading, ...]:
        """What is said of every card over ``[started_at, ended_at)``, by index."""
        for watch in self._watches.values():
            watch.settle()
        readings = [
            self._reading(self._watches[index], started_at, ended_at, expected_reads)
            for index in sorted(self._watches)
        ]
        for reading in readings:
            self._tell_change(reading)
        return tuple(readings)

    def _reading(
        self,
        watch: CardWatch,
        started_at: int,
        ended_at: int,
        expected_reads: int,
    ) -> CardReading:
        reads = watch.take(started_at, ended_at)
        hanging = watch.hanging_seconds()
        unanswered = f"the driver has not answered for {hanging:.0f} s" if hanging else "not read"
        reading = summarise(
            watch.card,
            reads,
            node=self._node,
            started_at=started_at,
            ended_at=ended_at,
            expected_reads=expected_reads,
            counter_before_millijoules=watch.counter_millijoules,
            processes=self._processes(reads),
            unanswered=unanswered,
        )
        watch.counter_millijoules = newest_counter(reads)
        return reading

    def _processes(self, reads: list[CardRead]) -> tuple[CardProcess, ...] | None:
        for read in reversed(reads):
            if read.processes is not None:
                return self._table.describe(read.processes)
        return None

    def _tell_change(self, reading: CardReading) -> None:
        """A card's trouble is told when it comes, changes and goes, not every interval."""
        is_known = bool(reading.reads) and not reading.error
        words = "" if is_known else f"{reading.status}: {reading.error}"
        gist = re.sub(r"\d+ s", "", words)
        if gist == self._said.get(reading.index, ""):
            return
        self._said[reading.index] = gist
        if words:
            log.warning("card %d (%s) %s", reading.index, reading.uuid or "no uuid", words)
        else:
            log.info("card %d (%s) can be read again", reading.index, reading.uuid)


class Agent:
    """Reads, summarises, spools; the sender does the rest."""

    def __init__(
        self,
        *,
        node: str,
        boot_id: str,
        reader: GpuReader,
        settings: AgentsSettings,
        spool: Spool,
        sender: Sender,
        memory: CardMemory,
        stop: StopRequest,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._node = node
        self._boot_id = boot_id
        self._settings = settings
        self._spool = spool
        self._sender = sender
        self._memory = memory
        self._stop = stop
        self._now = now
        self._list = CardList(reader, settings.call_timeout)
        self._watches = CardWatches(reader, settings, node, now=now)
        self._trouble = ""
        self._disk_trouble = ""
        watchdog = systemd.watchdog_seconds()
        self._nap_seconds = min(_LONGEST_NAP_SECONDS, watchdog or _LONGEST_NAP_SECONDS)

    def run(self) -> None:
        """Until somebody asks to stop. The interval under way is then given up.

        A message of half an interval would end at a moment that no other node knows; the next
        agent on this node begins where it starts, and names the same end.

        Raises:
            SlurmwrapError: a thread of the agent died.
        """
        self._list.ask()
        self._list.wait()
        self._adopt_list()
        self._sender.start()
        self._sender.wake()
        systemd.notify(systemd.READY, f"STATUS=watching {self._node}")
        started_at = math.ceil(self._now())
        while True:
            ended_at = next_boundary(started_at, self._settings.interval)
            if self._sleep_until(ended_at):
                break
            self._send_interval(started_at, ended_at)
            if not self._sender.is_alive():
                # Spooling on would look alive and never reach anybody.
                raise SlurmwrapError(
                    "the agent's sending thread died of a defect; its traceback is above",
                    hint="systemd starts the agent again; messages wait in the spool",
                )
            started_at = self._next_start(ended_at)
        systemd.notify(systemd.STOPPING)
        self._watches.stop()

    def _sleep_until(self, moment: int) -> bool:
        """True when asked to stop. Keeps systemd's watchdog quiet meanwhile."""
        while True:
            systemd.notify(systemd.WATCHDOG)
            left = moment - self._now()
            if left <= 0 or left > 2 * self._settings.interval:
                # Far in the future: the clock was set back.
                return self._stop.wait(0)
            if self._stop.wait(min(left, self._nap_seconds)):
                return True

    def _next_start(self, ended_at: int) -> int:
        """Where the next interval starts; a clock that jumped leaves a gap behind."""
        now = self._now()
        if 0 <= now - ended_at < 2 * self._settings.interval:
            return ended_at
        return math.ceil(now)

    def _send_interval(self, started_at: int, ended_at: int) -> None:
        readings = self._watches.collect(
            started_at,
            ended_at,
            expected_reads=count_ticks(started_at, ended_at, self._settings.read_every),
        )
        message = Readings(
            node=self._node, boot_id=self._boot_id, readings=readings, error=self._trouble
        )
        disk_trouble = self._spool.add(message, ended_at)
        self._tell_disk(str(disk_trouble) if disk_trouble is not None else "")
        self._sender.wake()
        self._adopt_list()
        self._list.ask()

    def _adopt_list(self) -> None:
        """Watch what the driver lists; when it lists nothing, the cards of before."""
        answer = self._list.newest()
        if isinstance(answer, ReaderError):
            self._watches.adopt(self._memory.cards)
            gist = re.sub(r"\d+ s", "", answer.message)
            if gist != re.sub(r"\d+ s", "", self._trouble):
                hint = f" ({answer.hint})" if answer.hint else ""
                log.error("%s%s", answer.message, hint)
            self._trouble = answer.message
            return
        if self._trouble:
            log.info("the driver lists %d cards again", len(answer))
            self._trouble = ""
        self._memory.keep(answer)
        self._watches.adopt(answer)

    def _tell_disk(self, trouble: str) -> None:
        if trouble == self._disk_trouble:
            return
        self._disk_trouble = trouble
        if trouble:
            log.error("the spool takes no messages, they are held in memory: %s", trouble)
        else:
            log.info("the spool takes messages again")


def read_once(
    reader: GpuReader, settings: AgentsSettings, node: str, boot_id: str, *, reads: int = 3
) -> Readings:
    """A message over a few reads from now on, for people.

    Raises:
        ReaderError: the cards can't be listed.
    """
    cards = CardList(reader, settings.call_timeout)
    cards.ask()
    cards.wait()
    answer = cards.newest()
    if isinstance(answer, ReaderError):
        raise answer
    watches = CardWatches(reader, settings, node)
    began_at = time.time()
    watches.adopt(answer)
    limit = time.monotonic() + (reads + 1) * settings.read_every + settings.call_timeout
    while time.monotonic() < limit and not watches.have_read(reads):
        time.sleep(settings.read_every / 4)
    watches.stop()
    started_at = math.floor(began_at)
    ended_at = max(math.ceil(time.time()), started_at + 1)
    readings = watches.collect(started_at, ended_at, expected_reads=reads)
    return Readings(node=node, boot_id=boot_id, readings=readings)
