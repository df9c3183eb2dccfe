"""Two months of made-up activity, and what they come to: counted from sacct's rows by themselves.

Nothing of slurmwrap is used here. The policy, as docs/prices.md states it: a run is charged from
its start for its elapsed time without suspension, clipped to the month, at the price of each
moment, on the cards of AllocTRES; a line is rounded once.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from zoneinfo import ZoneInfo

from testbed.history import PastJob

USERS = (
    ("swt-alice", "vision"),
    ("swt-alice", "nlp"),
    ("swt-bob", "nlp"),
    ("swt-dave", "vision"),
    ("swt-carol", "physics"),
)
STATES = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY")
REQUEUED = ("REQUEUED", "PREEMPTED", "NODE_FAIL")
HOUR = 3600
DAY = 24 * HOUR
_NOW = datetime.now(UTC)
YEAR = _NOW.year if (_NOW.month, _NOW.day) > (12, 3) else _NOW.year - 1
"""Of the newest October and November that are long over."""
FIRST_ID = 500_000

Row = dict[str, str]


def moment(month: int, day: int, zone: str = "UTC") -> int:
    """Midnight of a day of YEAR in a zone."""
    return int(datetime(YEAR, month, day, tzinfo=ZoneInfo(zone)).timestamp())


def make_jobs(seed: int = 20261130) -> list[PastJob]:
    """At least 400 runs from the end of September to the beginning of December."""
    chance = random.Random(seed)
    jobs: list[PastJob] = []
    for number in range(390):
        job_id = FIRST_ID + number
        user, account = chance.choice(USERS)
        start = chance.randrange(moment(9, 27), moment(12, 1))
        end = start + chance.choice((0, 1, 59, 3600, chance.randrange(3 * DAY)))
        state = chance.choice(STATES)
        gpu_type, nodes, other = chance.choice(
            (
                ("a100", "gpu1", {}),
                ("a100", "gpu1", {}),
                ("h800", "gpu2", {}),
                ("", "gpu1", {}),
                ("a100", "gpu[1-2]", {"h800": chance.randrange(1, 5)}),
            )
        )
        is_task = number % 10 < 3
        jobs.append(
            PastJob(
                job_id, user, account, start, end, gpu_type, chance.randrange(1, 5),
                partition=chance.choice(("gpu", "gpu", "spot", "debug")),
                state=state,
                submit=start - chance.randrange(DAY),
                nodes=nodes,
                node_count=2 if other else 1,
                other_cards=other,
                suspensions=_suspend(chance, start, end) if number % 17 == 0 else (),
                array_job_id=FIRST_ID + number - number % 10 if is_task else None,
                array_task_id=number % 10 if is_task else None,
            )
        )  # fmt: skip
    return [*jobs, *_requeues(chance), *_odd_jobs()]


def _suspend(chance: random.Random, start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Suspended twice, never over the edge of a month of any zone here."""
    months = [(moment(m, 2), moment(m, 27)) for m in (10, 11)]
    if end - start < 100 or not any(a < start and end < b for a, b in months):
        return ()
    quarter = (end - start) // 4
    return ((start + 5, start + quarter), (end - quarter, end - 5 - chance.randrange(10)))


def _requeues(chance: random.Random) -> list[PastJob]:
    """Ten jobs of three runs: each is submitted anew when the one before it ends."""
    runs = []
    for number in range(10):
        at = chance.randrange(moment(10, 1), moment(11, 28))
        submit = at - 100
        for attempt in range(3):
            end = at + chance.randrange(2, 8 * HOUR)
            state = chance.choice(REQUEUED) if attempt < 2 else "COMPLETED"
            runs.append(
                PastJob(FIRST_ID + 1000 + number, "swt-bob", "nlp", at, end, "h800", 2,
                        partition="spot", state=state, submit=submit, nodes="gpu2")
            )  # fmt: skip
            submit, at = end, end + chance.randrange(10, 5000)
    return runs


def _odd_jobs() -> list[PastJob]:
    """A run over both months, runs over every edge, one to the second, what never began."""
    edges = [
        moment(month, 1, zone)
        for month in (10, 11, 12)
        for zone in ("UTC", "Asia/Shanghai", "Europe/Berlin")
    ]
    first = FIRST_ID + 2000
    never = [
        PastJob(first + n, "swt-alice", "vision", 0, moment(10, n + 1), "a100", 4,
                state="CANCELLED", submit=moment(10, n + 1) - 50)
        for n in range(5)
    ]  # fmt: skip
    over = [
        PastJob(first + 100 + n, "swt-carol", "physics", edge - 7, edge + 11, "h800", 3,
                nodes="gpu2")
        for n, edge in enumerate(edges)
    ]  # fmt: skip
    spans = [span for edge in edges for span in ((edge - 60, edge), (edge, edge + 60))]
    touching = [
        PastJob(first + 200 + n, "swt-dave", "vision", *span, "a100", 1)
        for n, span in enumerate(spans)
    ]
    whole = PastJob(first + 300, "swt-bob", "nlp", moment(9, 28), moment(12, 1) + HOUR, "a100", 1)
    # In Berlin this runs from 02:30 summer time to 02:30 winter time.
    autumn = int(datetime.fromisoformat(f"{last_sunday_of_october()}T00:30:00+00:00").timestamp())
    night = PastJob(first + 301, "swt-alice", "nlp", autumn, autumn + HOUR, "a100", 1)
    return [*never, *over, *touching, whole, night]


def last_sunday_of_october() -> str:
    """Its date: clocks go back then in Berlin."""
    last = datetime(YEAR, 10, 31, tzinfo=UTC)
    return f"{YEAR}-10-{31 - (last.weekday() + 1) % 7:02}"


@dataclass(frozen=True)
class Month:
    """A month of YEAR in a zone, with prices that change at its 15th."""

    number: int
    zone: str

    @property
    def name(self) -> str:
        return f"{YEAR}-{self.number:02}"

    @property
    def start(self) -> int:
        return moment(self.number, 1, self.zone)

    @property
    def end(self) -> int:
        return moment(self.number + 1, 1, self.zone)

    @property
    def price_change(self) -> int:
        return moment(self.number, 15, self.zone)

    def prices(self) -> str:
        """A price file: a100 dearer from the 15th, h800 at one price and cheaper on spot,
        untyped cards without a price."""
        change = f"{self.name}-15"
        return f"""\
[[price]]
gpu_type = "a100"
per_card_hour = "12.00"
valid_until = {change}
[[price]]
gpu_type = "a100"
per_card_hour = "13.37"
valid_from = {change}
[[price]]
gpu_type = "h800"
per_card_hour = "35.00"
[[price]]
gpu_type = "h800"
partition = "spot"
per_card_hour = "17.505"
"""

    def price(self, row: Row, gpu_type: str, at: int) -> Decimal | None:
        """What the price file above says."""
        if gpu_type == "a100":
            return Decimal("12.00") if at < self.price_change else Decimal("13.37")
        if gpu_type == "h800":
            return Decimal("17.505") if row["Partition"] == "spot" else Decimal("35.00")
        return None


def count_lines(
    rows: Iterable[Row], month: Month
) -> dict[tuple[str | None, ...], tuple[int, str | None]]:
    """Card-seconds and amount by account, user, partition, QOS, type and price."""
    sums: dict[tuple[str, str, str, str, str, Decimal | None], int] = defaultdict(int)
    for row in rows:
        if not row["Start"].isdecimal():
            continue
        begin = int(row["Start"])
        for gpu_type, cards in cards_of(row).items():
            cuts = (month.start, month.price_change, month.end)
            for low, high in ((cuts[0], cuts[1]), (cuts[1], cuts[2])):
                held = min(begin + int(row["ElapsedRaw"]), high) - max(begin, low)
                if held > 0:
                    price = month.price(row, gpu_type, low)
                    key = (row["Account"], row["User"], row["Partition"], row["QOS"], gpu_type)
                    sums[(*key, price)] += held * cards
    return {
        (*names, None if price is None else str(price)): (seconds, _amount(seconds, price))
        for (*names, price), seconds in sums.items()
    }


def _amount(card_seconds: int, price: Decimal | None) -> str | None:
    if price is None:
        return None
    return str((price * card_seconds / HOUR).quantize(Decimal("0.01"), ROUND_HALF_UP))


def cards_of(row: Row) -> dict[str, int]:
    """Cards by type in AllocTRES; those of no type under an empty name."""
    entries = dict(entry.split("=") for entry in row["AllocTRES"].split(",") if entry)
    cards = {
        name.removeprefix("gres/gpu:"): int(value)
        for name, value in entries.items()
        if name.startswith("gres/gpu:")
    }
    untyped = int(entries.get("gres/gpu", "0")) - sum(cards.values())
    return {**cards, "": untyped} if untyped else cards


def count_wall(rows: Iterable[Row], start: int, end: int) -> dict[tuple[str, str], int]:
    """Card-seconds by account and user from start to end, suspension included."""
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        if row["Start"].isdecimal():
            held = min(int(row["End"]), end) - max(int(row["Start"]), start)
            sums[row["Account"], row["User"]] += max(0, held) * sum(cards_of(row).values())
    return {key: seconds for key, seconds in sums.items() if seconds}


def count_suspended(rows: Iterable[Row], start: int, end: int) -> dict[tuple[str, str], int]:
    """Card-seconds of suspension by account and user, of runs within the month."""
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        hours, minutes, seconds = map(int, row["Suspended"].split("-")[-1].split(":"))
        days = int(row["Suspended"].split("-")[0]) if "-" in row["Suspended"] else 0
        suspended = days * DAY + hours * HOUR + minutes * 60 + seconds
        if suspended and start <= int(row["Start"]) < end:
            sums[row["Account"], row["User"]] += suspended * sum(cards_of(row).values())
    return dict(sums)
