"""Staging properties: whatever a tree holds, the copy holds the same."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from slurmwrap.staging.cache import NodeCache
from slurmwrap.staging.leases import current_holder
from slurmwrap.staging.manifest import scan_source
from slurmwrap.staging.stage_in import Stager

NAMES = st.one_of(
    st.sampled_from([b"a b", b"a'; echo x", b"a|b", b"new\nline", "测试".encode(), b"\xff\xfe"]),
    st.binary(min_size=1, max_size=20).filter(
        lambda name: not set(name) & {0, ord("/")} and name not in (b".", b"..")
    ),
)
FILES = st.tuples(
    st.just("file"), st.binary(max_size=300), st.sampled_from([0o600, 0o644, 0o755, 0o444])
)
LINKS = st.tuples(st.just("link"), NAMES)
TREES: st.SearchStrategy[Any] = st.recursive(
    st.dictionaries(NAMES, FILES | LINKS, max_size=4),
    lambda children: st.dictionaries(NAMES, FILES | LINKS | children, max_size=4),
    max_leaves=12,
)


def write_tree(folder: bytes, tree: dict[bytes, Any]) -> None:
    os.mkdir(folder)
    for name, value in tree.items():
        path = os.path.join(folder, name)
        if isinstance(value, dict):
            write_tree(path, value)
        elif value[0] == "link":
            os.symlink(value[1], path)  # to a neighbour, or to nothing
        else:
            with open(path, "wb") as file:
                file.write(value[1])
            os.chmod(path, value[2])


def read_tree(folder: bytes) -> dict[bytes, Any]:
    found: dict[bytes, Any] = {}
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        status = os.lstat(path)
        if stat.S_ISDIR(status.st_mode):
            found[name] = read_tree(path)
        elif stat.S_ISLNK(status.st_mode):
            found[name] = ("link", os.readlink(path))
        else:
            with open(path, "rb") as file:
                found[name] = ("file", file.read(), stat.S_IMODE(status.st_mode))
    return found


@settings(max_examples=40, deadline=None)
@given(tree=TREES)
def test_what_is_staged_is_read_back_equal(tree: dict[bytes, Any]) -> None:
    """S34: any tree of files, links and folders, with any names, arrives as it was; and again
    as a hit."""
    base = Path(tempfile.mkdtemp(prefix="staging-"))
    try:
        source = os.fsencode(base / "source")
        write_tree(source, tree)
        stager = Stager(
            NodeCache(str(base / "cache"), node="n1"),
            workers=3,
            headroom=0.0,
            holder=current_holder(None),
            live_jobs=lambda: frozenset(),
        )
        first = stager.stage_in(source)
        assert read_tree(first.path) == tree
        second = stager.stage_in(source)
        assert second.is_hit
        assert second.path == first.path
    finally:
        shutil.rmtree(base)


@settings(max_examples=25, deadline=None)
@given(tree=TREES, workers=st.integers(1, 8))
def test_identity_does_not_depend_on_the_threads(tree: dict[bytes, Any], workers: int) -> None:
    """One source has one key, however many threads looked at it and in which order."""
    base = Path(tempfile.mkdtemp(prefix="staging-"))
    try:
        source = os.fsencode(base / "source")
        write_tree(source, tree)
        assert scan_source(source, workers=workers).key == scan_source(source, workers=1).key
    finally:
        shutil.rmtree(base)
