"""Parsers of Slurm's output never crash with anything but their own error, and lose nothing."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from slurmwrap.errors import SlurmOutputError, SlurmUnavailableError
from slurmwrap.slurm.control import MOST_COMMENT_BYTES, CommentOutcome, merge_comment
from slurmwrap.slurm.jobs import parse_gres_detail, parse_jobs
from slurmwrap.slurm.live import parse_listing
from slurmwrap.slurm.nodeset import expand_nodes

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
JOB_KEYS = st.sampled_from(
    [
        "job_id",
        "job_state",
        "start_time",
        "suspend_time",
        "pre_sus_time",
        "name",
        "comment",
        "nodes",
        "job_resources",
        "gres_detail",
        "tres_alloc_str",
        "het_job_id",
    ]
)


@given(st.text(alphabet="gpun[]0123456789,-ax ", max_size=24))
def test_any_node_list_is_names_or_refused(text: str) -> None:
    """ValueError or names without brackets, whatever the text."""
    try:
        names = expand_nodes(text)
    except ValueError:
        return
    assert all(name and not set(name) & set("[],") for name in names)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.integers(0, 999), min_size=1, max_size=4)),
        min_size=1,
        max_size=4,
    )
)
def test_what_is_folded_unfolds(parts: list[tuple[int, list[int]]]) -> None:
    """A list written from numbers of one width gives those numbers, in order."""
    text = ",".join(
        f"n{prefix}[{','.join(f'{number:03d}' for number in numbers)}]" for prefix, numbers in parts
    )
    expected = [f"n{prefix}{number:03d}" for prefix, numbers in parts for number in numbers]
    assert list(expand_nodes(text)) == expected


@given(st.text(alphabet="gpu:a100(IDX),-0123shrdCNT. /", max_size=30))
def test_any_gres_detail_is_cards_or_refused(text: str) -> None:
    """ValueError or cards, and as many as the entries count."""
    try:
        cards = parse_gres_detail(text, ("gpu",))
    except ValueError:
        return
    assert all(index >= 0 for _, index in cards)


@given(st.text(max_size=40) | JSON_VALUES.map(lambda value: json.dumps({"jobs": value})))
def test_any_text_instead_of_json_is_refused_or_empty(text: str) -> None:
    """No job can come out of something that is not squeue's answer."""
    try:
        jobs = parse_jobs(text, range(10), ("gpu",))
    except (SlurmOutputError, SlurmUnavailableError):
        return
    assert all(details.job_id == job_id for job_id, details in jobs.items())


@settings(max_examples=200)
@given(st.dictionaries(JOB_KEYS, JSON_VALUES))
def test_a_job_of_any_form_is_kept(fields: dict[str, object]) -> None:
    """A wanted job is in the result, with cards, or with the reason why they are unknown."""
    text = json.dumps({"jobs": [fields | {"job_id": 7}]})
    try:
        jobs = parse_jobs(text, (7,), ("gpu",))
    except SlurmOutputError:
        return  # NaN and the like are no JSON
    assert list(jobs) == [7]


@given(st.text(alphabet="\x1f\n0123456789N/A:-RUNIGab()", max_size=80))
def test_any_listing_is_rows_or_refused(text: str) -> None:
    """A line that is not one of squeue's is never skipped."""
    try:
        rows = parse_listing(text)
    except SlurmOutputError:
        return
    assert len(rows) == sum(bool(line) for line in text.split("\n"))


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_others_words_survive_our_notes(present: str, first: str, second: str) -> None:
    """Two notes one after the other: what was there stays first, and one note is there."""
    others = present.replace("[slurmwrap: ", "")
    once, _ = merge_comment(others, first)
    twice, outcome = merge_comment(once, second)
    assert outcome is CommentOutcome.WRITTEN
    assert twice.startswith(others)
    assert twice.count("[slurmwrap: ") == 1
    assert merge_comment(twice, second) == (twice, CommentOutcome.WRITTEN)


@given(st.integers(0, MOST_COMMENT_BYTES + 10), st.integers(0, 200))
def test_the_bound_is_kept(present: int, length: int) -> None:
    """Never longer than the bound, unless it was before; never without what was there."""
    comment, outcome = merge_comment("x" * present, "字" * length)
    assert len(comment.encode()) <= max(MOST_COMMENT_BYTES, present)
    assert comment.startswith("x" * present)
    if outcome is CommentOutcome.NO_ROOM:
        assert comment == "x" * present
