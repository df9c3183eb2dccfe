"""What slurmctld says of single jobs in JSON: cards per node, free text, components.

The forms differ between Slurm 22.05 and 26.05: numbers are plain, or objects with ``set`` and
``number``; states are one word or a list; the node list is text or an object. Everything that
is not needed is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import Struct

from slurmwrap.errors import SlurmOutputError, SlurmUnavailableError
from slurmwrap.model import Card, CardAllocation
from slurmwrap.slurm.nodeset import expand_nodes
from slurmwrap.tres import UNTYPED, count_cards, parse_tres


class JobDetails(Struct, frozen=True, kw_only=True):
    """What is read once per run."""

    job_id: int
    start: int | None
    state: str
    name: str
    comment: str
    admin_comment: str
    het_job_id: int | None
    het_offset: int | None
    nodes: tuple[str, ...]
    cards: tuple[CardAllocation, ...]
    unknown_cards: str = ""
    """Why the cards are unknown; empty when they are known."""
    suspended_seconds: int | None = None
    """Of suspensions that are over; None while it is suspended, or when it is not said."""


class _Number(Struct, frozen=True):
    set: bool = False
    infinite: bool = False
    number: int | float = 0


_AnyNumber = int | float | _Number | None


class _NodeList(Struct, frozen=True):
    list: str = ""


class _Resources(Struct, frozen=True):
    nodes: str | _NodeList | None = None


class _Job(Struct, frozen=True):
    job_id: int
    job_state: str | list[str] = ""
    start_time: _AnyNumber = None
    suspend_time: _AnyNumber = None
    """When it was last suspended or resumed; 0: never."""
    pre_sus_time: _AnyNumber = None
    """Run time up to the last suspension."""
    name: str | None = None
    comment: Any = None
    """Text; slurmdbd's form of a job has an object here."""
    admin_comment: str | None = None
    nodes: str | None = None
    gres_detail: list[str | None] | str | None = None
    job_resources: _Resources | None = None
    tres_alloc_str: str | None = None
    het_job_id: _AnyNumber = None
    het_job_offset: _AnyNumber = None


class _JobId(Struct, frozen=True):
    job_id: int = 0


class _Problem(Struct, frozen=True):
    description: str = ""
    error: str = ""


class _Answer(Struct, frozen=True):
    jobs: list[msgspec.Raw]
    errors: list[_Problem] = []


def parse_jobs(
    text: str, wanted: Collection[int], card_gres: Collection[str]
) -> dict[int, JobDetails]:
    """The wanted jobs of ``squeue --json``, by raw id.

    A job that can't be read is in the result with its cards unknown.

    Raises:
        SlurmOutputError: not squeue's JSON.
        SlurmUnavailableError: JSON that reports an error. With slurmctld away squeue 22.05
            prints an empty list of jobs beside the error, and exits with 0.
    """
    try:
        answer = msgspec.json.decode(text, type=_Answer)
        ids = [msgspec.json.decode(raw, type=_JobId).job_id for raw in answer.jobs]
    except msgspec.MsgspecError as error:
        raise SlurmOutputError(
            f"`squeue --json` printed something that is not its JSON: {error}",
            hint="does `squeue --json` work here? it needs Slurm's plugin serializer/json",
        ) from error
    problems = [item for item in answer.errors if "Invalid job id" not in item.error]
    if problems:
        words = "; ".join(item.description or item.error or "no reason" for item in problems)
        raise SlurmUnavailableError(
            f"slurmctld does not answer `squeue --json`: {words}",
            hint="`systemctl status slurmctld` on its host; slurmwrap tries again by itself",
        )
    return {
        job_id: _read_job(raw, job_id, card_gres)
        for job_id, raw in zip(ids, answer.jobs, strict=True)
        if job_id in wanted
    }


def _read_job(raw: msgspec.Raw, job_id: int, card_gres: Collection[str]) -> JobDetails:
    try:
        job = msgspec.json.decode(raw, type=_Job)
    except msgspec.MsgspecError as error:
        return JobDetails(
            job_id=job_id,
            start=None,
            state="",
            name="",
            comment="",
            admin_comment="",
            het_job_id=None,
            het_offset=None,
            nodes=(),
            cards=(),
            unknown_cards=f"squeue's JSON of job {job_id} has an unknown form: {error}",
        )
    het_job_id = _whole(job.het_job_id) or None
    nodes, cards, problem = _read_allocation(job, card_gres)
    state = job.job_state if isinstance(job.job_state, str) else " ".join(job.job_state)
    return JobDetails(
        job_id=job_id,
        start=_whole(job.start_time),
        state=state,
        name=job.name or "",
        comment=job.comment if isinstance(job.comment, str) else "",
        admin_comment=job.admin_comment or "",
        het_job_id=het_job_id,
        het_offset=None if het_job_id is None else _whole(job.het_job_offset),
        nodes=nodes,
        cards=cards,
        unknown_cards=problem,
        suspended_seconds=None if "SUSPENDED" in state else _past_suspensions(job),
    )


def _past_suspensions(job: _Job) -> int | None:
    """Seconds suspended so far of a job that is not suspended now.

    What lies between start and the last resumption is run time or suspension; the run time is
    told (seen on 22.05; sacct's Suspended agrees to the second).
    """
    start, resumed = _whole(job.start_time), _whole(job.suspend_time)
    ran = _whole(job.pre_sus_time)
    if not resumed:
        return None if resumed is None else 0
    return None if start is None or ran is None else max(0, resumed - start - ran)


def _read_allocation(
    job: _Job, card_gres: Collection[str]
) -> tuple[tuple[str, ...], tuple[CardAllocation, ...], str]:
    """Nodes, cards, and why the cards are unknown."""
    expression = _node_expression(job)
    try:
        nodes = expand_nodes(expression)
    except ValueError as error:
        return (), (), str(error)
    try:
        cards = _pair_cards(nodes, _detail_texts(job), card_gres)
        _check_count(cards, job.tres_alloc_str or "", card_gres)
    except ValueError as error:
        return nodes, (), f"job {job.job_id}: {error}"
    return nodes, cards, ""


def _node_expression(job: _Job) -> str:
    """The allocation's own list: ``nodes`` loses those that are done while a job completes."""
    listed = job.job_resources.nodes if job.job_resources is not None else None
    expression = listed.list if isinstance(listed, _NodeList) else listed
    text = expression or job.nodes or ""
    return "" if text == "(null)" else text


def _detail_texts(job: _Job) -> list[str]:
    detail = job.gres_detail
    if detail is None:
        return []
    return [detail] if isinstance(detail, str) else [text or "" for text in detail]


def _pair_cards(
    nodes: tuple[str, ...], texts: list[str], card_gres: Collection[str]
) -> tuple[CardAllocation, ...]:
    """One text per node, in the order of the expanded node list (seen on 22.05 to 25.11)."""
    if not any(texts):
        return ()
    if len(texts) != len(nodes):
        raise ValueError(f"{len(texts)} entries of gres_detail for {len(nodes)} nodes")
    return tuple(
        CardAllocation(card=Card(node=node, index=index), gpu_type=gpu_type)
        for node, text in zip(nodes, texts, strict=True)
        for gpu_type, index in parse_gres_detail(text, card_gres)
    )


def _check_count(cards: tuple[CardAllocation, ...], tres: str, card_gres: Collection[str]) -> None:
    """Cards with an index must be as many as the allocation counts, where it counts them.

    Clusters that don't track gres/gpu have nothing to compare with.

    Raises:
        ValueError: they differ.
    """
    entries = parse_tres(tres)
    tracked = [gres for gres in card_gres if f"gres/{gres}" in entries]
    if len(tracked) < len(card_gres):
        return
    counted = sum(count_cards(entries, card_gres).values())
    if counted != len(cards):
        raise ValueError(f"{counted} cards in {tres!r}, but indexes of {len(cards)}")


_ENTRY = re.compile(
    r"(?P<name>[^:,()]+)(?::(?P<type>[^:,()]+))?:(?P<count>[0-9]+)"
    r"(?:\((?P<tail>[^()]*)\))?(?:,|$)"
)


def parse_gres_detail(text: str, card_gres: Collection[str]) -> list[tuple[str, int]]:
    """Type and index of every card of one node's entry: ``gpu:a100:2(IDX:0,3),shard:4(...)``.

    Generic resources that are no cards are skipped. A card without a type has type ``""``.

    Raises:
        ValueError: an entry of a card that names no index, or as many as it does not count, or
            any other form.
    """
    found: list[tuple[str, int]] = []
    position = 0
    while position < len(text):
        match = _ENTRY.match(text, position)
        if match is None:
            raise ValueError(f"{text[:120]!r} is no list of generic resources")
        position = match.end()
        if match["name"] not in card_gres:
            continue
        indexes = _parse_indexes(match["tail"] or "")
        if len(indexes) != int(match["count"]):
            raise ValueError(f"{match[0]!r} counts {match['count']} cards, names {len(indexes)}")
        found.extend((match["type"] or UNTYPED, index) for index in indexes)
    return found


def _parse_indexes(tail: str) -> list[int]:
    """The indexes of ``IDX:0-1,3``; none of ``CNT:2``, a resource without devices."""
    kind, _, ranges = tail.partition(":")
    if kind != "IDX" or ranges in ("", "N/A"):
        return []
    return [int(name) for name in expand_nodes(f"[{ranges}]")]


def _whole(value: _AnyNumber) -> int | None:
    if isinstance(value, _Number):
        return int(value.number) if value.set and not value.infinite else None
    return None if value is None else int(value)
