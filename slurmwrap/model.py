"""The words of design and code: job runs, cards, readings, records. Values only, no I/O.

All times are whole UTC epoch seconds. ``None`` means unknown, never zero.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

UTILISATION_EDGES = (0, 1, 5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100)
"""Edges of the utilisation histogram in percent. Bin i counts reads with
``edges[i] <= util < edges[i + 1]``; the last bin also counts 100. A rule's threshold must be
an edge, since only then the histogram can say how many reads were below it."""

UTILISATION_BINS = len(UTILISATION_EDGES) - 1


class RunKey(Struct, frozen=True, order=True, kw_only=True):
    """One stay of a job on nodes. A requeued job is several runs; job ids are recycled."""

    cluster: str
    job_id: int
    """The raw job id, not ``ARRAY_TASK``."""
    start: int


class Card(Struct, frozen=True, order=True):
    """One schedulable GPU: a node and the index Slurm gives the card on it."""

    node: str
    index: int


class CardAllocation(Struct, frozen=True, order=True, kw_only=True):
    """A card that slurmctld has given to a run."""

    card: Card
    gpu_type: str
    """Slurm's gres type, empty when the gres has none."""


class JobRun(Struct, frozen=True, kw_only=True):
    """A run that slurmctld says is on nodes now."""

    key: RunKey
    array_job_id: int | None = None
    array_task_id: int | None = None
    het_job_id: int | None = None
    het_offset: int | None = None
    state: str
    """Slurm's state word: RUNNING, SUSPENDED, COMPLETING, ..."""
    user: str
    uid: int
    account: str
    partition: str
    qos: str
    name: str
    comment: str
    reservation: str
    submit: int
    time_limit_seconds: int | None
    """None: unlimited."""
    suspended_seconds: int = 0
    """Time suspended so far in this run."""
    nodes: tuple[str, ...]
    cards: tuple[CardAllocation, ...]
    cards_known: bool = True
    """False: slurmctld's answer did not say which cards; ``cards`` is then empty, the run holds
    an unknown number of them, and nothing may be concluded about it."""

    @property
    def action_id(self) -> str:
        """The id that names this job alone to scancel and scontrol.

        The raw id of an array task can equal the array's own id, and would then name every
        task of the array; a heterogeneous component is named by leader and offset.
        """
        if self.array_job_id is not None and self.array_task_id is not None:
            return f"{self.array_job_id}_{self.array_task_id}"
        if self.het_job_id is not None and self.het_offset is not None:
            return f"{self.het_job_id}+{self.het_offset}"
        return str(self.key.job_id)


class AccountingRecord(Struct, frozen=True, kw_only=True):
    """One allocation record of slurmdbd: one run, ended or not (sacct -D -X)."""

    cluster: str
    job_id: int
    db_index: str = ""
    """slurmdbd's own key as text, for tracing only: its form changes between versions."""
    array_job_id: int | None = None
    array_task_id: int | None = None
    user: str
    account: str
    partition: str
    qos: str
    wckey: str = ""
    reservation: str = ""
    name: str = ""
    state: str
    """The state word without its tail: ``CANCELLED by 1001`` is CANCELLED."""
    submit: int | None
    start: int | None
    """None: never started."""
    end: int | None
    """None: not ended when the record was read."""
    elapsed_seconds: int
    """Net of suspension, as ElapsedRaw is."""
    suspended_seconds: int = 0
    time_limit_seconds: int | None = None
    nodes: str = ""
    """Slurm's host list expression."""
    cards: dict[str, int]
    """Cards by GPU type over all nodes; untyped cards under ``""``."""


class ReadStatus(StrEnum):
    """What became of an attempt to read a card."""

    OK = "ok"
    NOT_SUPPORTED = "not_supported"
    LOST = "lost"
    STALE = "stale"
    NO_ANSWER = "no_answer"
    NO_PERMISSION = "no_permission"
    MISATTRIBUTED = "misattributed"
    """Another job's process was on the card: the number may be that job's."""


class CardProcess(Struct, frozen=True, kw_only=True):
    """A process that the driver says uses a card."""

    pid: int
    uid: int | None = None
    started_at: int | None = None
    """Start time of the process: a pid alone is reused."""
    job_id: int | None = None
    """The Slurm job whose cgroup holds the process, when one does."""
    memory_bytes: int | None = None


class CardReading(Struct, frozen=True, kw_only=True):
    """What a node says of one card over one interval ``[started_at, ended_at)``.

    Keyed by node, index and ended_at: the same reading sent twice is one reading.
    """

    node: str
    index: int
    """Slurm's index of the card on the node."""
    uuid: str = ""
    gpu_name: str = ""
    started_at: int
    ended_at: int
    status: ReadStatus
    """Of the utilisation, on which evidence rests: OK only with at least one good read."""
    reads: int
    """Good reads of the utilisation in the interval."""
    failed_reads: int = 0
    utilisation_mean: float | None = None
    """Percent over the good reads."""
    utilisation_max: int | None = None
    histogram: tuple[int, ...] | None = None
    """Good reads per bin of UTILISATION_EDGES."""
    memory_used_bytes: int | None = None
    """The largest value seen."""
    memory_total_bytes: int | None = None
    power_mean_watts: float | None = None
    power_max_watts: float | None = None
    energy_joules: float | None = None
    """Used within the interval."""
    temperature_celsius: int | None = None
    sm_clock_mhz: int | None = None
    ecc_uncorrected: int | None = None
    """Volatile count of uncorrected errors, since the driver was loaded."""
    processes: tuple[CardProcess, ...] | None = None
    """None: the driver would not say."""
    error: str = ""
    """The driver's words for the last failed read."""


class MetricPoint(Struct, frozen=True, kw_only=True):
    """One value of one training metric. Keyed by run, name and step."""

    name: str
    step: int
    value: float
    at: int


class Phase(Struct, frozen=True, kw_only=True):
    """A stretch of a run that its supervisor declared: staging, running, ..."""

    name: str
    node: str
    started_at: int
    ended_at: int | None = None
    detail: str = ""


class WatchedMetric(Struct, frozen=True, kw_only=True):
    """What the job itself says the plateau rule shall look at."""

    name: str
    mode: str = "max"
    """``max``: larger is better; ``min``: smaller is better."""
    min_delta: float = 0.0
    patience: int | None = None
    """Evaluations without improvement; None: the site's value."""
