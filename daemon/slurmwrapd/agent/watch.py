"""Reading the cards: a thread per card and one that lists them, so that a call of the driver
that hangs holds up nobody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from slurmwrap.errors import ReaderError
from slurmwrap.gpu.interval import next_boundary, next_tick
from slurmwrap.gpu.reader import CardIdentity, CardRead, GpuReader
from slurmwrap.model import ReadStatus


class CallTimer:
    """How long a call of the driver has been going on."""

    def __init__(self) -> None:
        self._began_at: float | None = None
        self._idle = threading.Event()
        self._idle.set()

    def begin(self) -> None:
        self._idle.clear()
        self._began_at = time.monotonic()

    def end(self) -> float:
        """Seconds that the call took."""
        began_at, self._began_at = self._began_at, None
        self._idle.set()
        return time.monotonic() - began_at if began_at is not None else 0.0

    def running_seconds(self) -> float:
        """0 when no call is under way."""
        began_at = self._began_at
        return time.monotonic() - began_at if began_at is not None else 0.0

    def wait_idle(self, at_most_seconds: float) -> None:
        """Wait for a call under way, but not once it has run for that long."""
        self._idle.wait(max(0.0, at_most_seconds - self.running_seconds()))


class CardWatch:
    """Reads one card at every tick and keeps the reads until they are taken."""

    def __init__(
        self,
        reader: GpuReader,
        card: CardIdentity,
        *,
        read_every_seconds: float,
        interval_seconds: int,
        call_timeout_seconds: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.card = card
        self.counter_millijoules: int | None = None
        """The energy counter at the end of the interval that was taken last."""
        self._reader = reader
        self._read_every = read_every_seconds
        self._interval = interval_seconds
        self._call_timeout = call_timeout_seconds
        self._now = now
        self._timer = CallTimer()
        self._changing = threading.Lock()
        self._reads: list[tuple[float, CardRead]] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Read from now on. Starts the thread again should it have died."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(
            target=self._read_on, name=f"card-{self.card.index}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Read no more; a call that hangs is left alone."""
        self._stopping.set()

    def replace_card(self, card: CardIdentity) -> None:
        """The index holds another card now, or is lost or back."""
        if card.uuid != self.card.uuid:
            self.counter_millijoules = None
        self.card = card

    def settle(self) -> None:
        """Wait for a read under way, as long as it may take."""
        self._timer.wait_idle(self._call_timeout)

    def take(self, started_at: float, ended_at: float) -> list[CardRead]:
        """The reads due in ``[started_at, ended_at)``; those before, which came late, are gone."""
        with self._changing:
            due = [read for at, read in self._reads if started_at <= at < ended_at]
            self._reads = [(at, read) for at, read in self._reads if at >= ended_at]
        return due

    def has_read(self, count: int) -> bool:
        """Whether so many reads wait to be taken, or none will come soon."""
        with self._changing:
            is_resting = bool(self._reads) and self._reads[-1][1].status is ReadStatus.LOST
            return is_resting or len(self._reads) >= count

    def hanging_seconds(self) -> float:
        """How long the driver has not answered; 0 while it is within its time."""
        running = self._timer.running_seconds()
        return running if running > self._call_timeout else 0.0

    def _read_on(self) -> None:
        tick = next_tick(self._now(), self._read_every)
        resting_until = 0.0
        is_first = True
        while not self._stopping.wait(max(0.0, tick - self._now())):
            following = next_tick(tick + self._read_every / 2, self._read_every)
            boundary = next_boundary(tick + self._read_every / 100, self._interval)
            if tick >= resting_until:
                read = self._read(fully=is_first or following >= boundary)
                is_first = False
                with self._changing:
                    self._reads.append((tick, read))
                if read.status is ReadStatus.LOST:
                    # A lost card is probed once per interval: the driver answers slowly for
                    # it, and writes a line to the kernel's log each time.
                    resting_until = boundary
            # A tick that passed during a slow read is a read that failed, not one to make up
            # for; a clock that was set back does not stop the reading.
            tick = next_tick(max(following, self._now()), self._read_every)
            if tick > self._now() + 2 * self._read_every:
                tick = next_tick(self._now(), self._read_every)

    def _read(self, *, fully: bool) -> CardRead:
        self._timer.begin()
        try:
            read = self._reader.read(self.card, fully=fully)
        finally:
            took_seconds = self._timer.end()
        if took_seconds <= self._call_timeout:
            return read
        return CardRead(
            status=ReadStatus.NO_ANSWER,
            error=f"the driver took {took_seconds:.0f} s to answer",
        )


class CardList:
    """Asks the driver for its cards on a thread of its own, and keeps the newest answer."""

    def __init__(self, reader: GpuReader, call_timeout_seconds: float) -> None:
        self._reader = reader
        self._call_timeout = call_timeout_seconds
        self._timer = CallTimer()
        self._asked = threading.Event()
        self._answered = threading.Event()
        self._answer: tuple[CardIdentity, ...] | ReaderError | None = None
        self._thread = threading.Thread(target=self._list_on, name="card-list", daemon=True)

    def ask(self) -> None:
        """List the cards soon; nothing when that is under way."""
        if not self._thread.is_alive():
            self._thread = threading.Thread(target=self._list_on, name="card-list", daemon=True)
            self._thread.start()
        self._asked.set()

    def wait(self) -> None:
        """For the first answer, as long as it may take."""
        self._answered.wait(self._call_timeout)

    def newest(self) -> tuple[CardIdentity, ...] | ReaderError:
        """The newest answer, or why there is none."""
        hanging = self._timer.running_seconds()
        if hanging > self._call_timeout:
            return ReaderError(f"the driver has not listed its cards for {hanging:.0f} s")
        if self._answer is None:
            return ReaderError("the driver has not listed its cards yet")
        return self._answer

    def _list_on(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            self._timer.begin()
            try:
                self._answer = self._reader.list_cards()
            except ReaderError as error:
                self._answer = error
            finally:
                self._timer.end()
                self._answered.set()
