"""Staging a source: what arrives, what is reused, what happens when the source changes."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmwrap.errors import NotFoundError, StagingError
from slurmwrap.staging.treecopy import remove_tree

from .conftest import MakeStager, make_job


def read_tree(root: Path) -> dict[str, bytes]:
    """Every file below a folder, read by another way than the stager's."""
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def staged_path(staged_bytes: bytes) -> Path:
    return Path(os.fsdecode(staged_bytes))


def test_folder_arrives_whole(source: Path, make_stager: MakeStager) -> None:
    """A folder is copied with its empty folders, times and modes, under its own name."""
    (source / "first.txt").chmod(0o440)
    (source / "sub").chmod(0o555)
    os.utime(source / "first.txt", ns=(5, 1_600_000_000_123_456_789))
    staged = make_stager().stage_in(os.fsencode(source))
    copy = staged_path(staged.path)
    assert copy.name == "source"
    assert read_tree(copy) == {"first.txt": b"one", "sub/second.bin": bytes(range(256)) * 100}
    assert (copy / "empty").is_dir()
    assert (copy / "first.txt").stat().st_mtime_ns == 1_600_000_000_123_456_789
    assert stat.S_IMODE((copy / "first.txt").stat().st_mode) == 0o440
    assert stat.S_IMODE((copy / "sub").stat().st_mode) == 0o555
    assert (staged.is_hit, staged.files, staged.total_bytes) == (False, 2, 25603)


def test_single_file_keeps_its_name(source: Path, make_stager: MakeStager) -> None:
    """A file can be staged alone, and its suffix survives."""
    staged = make_stager().stage_in(os.fsencode(source / "sub" / "second.bin"))
    copy = staged_path(staged.path)
    assert copy.name == "second.bin"
    assert copy.read_bytes() == bytes(range(256)) * 100


def test_second_staging_is_a_hit(source: Path, make_stager: MakeStager) -> None:
    """The next job finds the copy and copies nothing: the very same files are there."""
    first = make_stager().stage_in(os.fsencode(source))
    inode = (staged_path(first.path) / "first.txt").stat().st_ino
    second = make_stager().stage_in(os.fsencode(source))
    assert (first.is_hit, second.is_hit) == (False, True)
    assert second.path == first.path
    assert (staged_path(second.path) / "first.txt").stat().st_ino == inode


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "first.txt").write_bytes(b"two"),
        lambda root: (root / "first.txt").chmod(0o600),
        lambda root: (root / "new").write_bytes(b""),
        lambda root: (root / "empty").rmdir(),
        lambda root: (root / "first.txt").rename(root / "1st.txt"),
    ],
    ids=["content", "mode", "new file", "folder gone", "renamed"],
)
def test_changed_source_is_copied_again(
    source: Path, make_stager: MakeStager, change: Callable[[Path], object]
) -> None:
    """Whatever a reader could notice makes a new copy; the old one stays for its users."""
    old = make_stager().stage_in(os.fsencode(source))
    change(source)
    new = make_stager().stage_in(os.fsencode(source))
    assert not new.is_hit
    assert new.path != old.path
    assert read_tree(staged_path(new.path)) == read_tree(source)


def test_same_content_elsewhere_is_another_copy(
    source: Path, tmp_path: Path, make_stager: MakeStager
) -> None:
    """The identity holds the source's path: a twin with equal sizes and times is no hit."""
    twin = tmp_path / "twin"
    shutil.copytree(source, twin)
    first = make_stager().stage_in(os.fsencode(source))
    assert not make_stager().stage_in(os.fsencode(twin)).is_hit
    link = tmp_path / "link"
    link.symlink_to(source)
    assert make_stager().stage_in(os.fsencode(link)).path == first.path


def test_copy_changed_by_a_job_is_not_reused(source: Path, make_stager: MakeStager) -> None:
    """A job that writes into its copy does not spoil the next job's data."""
    first = make_stager().stage_in(os.fsencode(source))
    (staged_path(first.path) / "first.txt").write_bytes(b"XXX")
    (staged_path(first.path) / "sub" / "second.bin").unlink()
    second = make_stager(holder=make_job(7)).stage_in(os.fsencode(source))
    assert not second.is_hit
    assert read_tree(staged_path(second.path)) == read_tree(source)


def test_changed_copy_in_use_stays_for_its_job(source: Path, make_stager: MakeStager) -> None:
    """S25: the copy of a live job is never taken away, even when it is no good for others."""
    first = make_stager(holder=make_job(7)).stage_in(os.fsencode(source))
    (staged_path(first.path) / "first.txt").write_bytes(b"mine")
    live = {"live_jobs": lambda: frozenset({7})}
    second = make_stager(holder=make_job(8), **live).stage_in(os.fsencode(source))
    third = make_stager(holder=make_job(9), **live).stage_in(os.fsencode(source))
    assert (staged_path(first.path) / "first.txt").read_bytes() == b"mine"
    assert (second.is_hit, third.is_hit) == (False, True)
    assert first.path != second.path == third.path


def test_copy_from_before_a_reboot_is_not_trusted(source: Path, make_stager: MakeStager) -> None:
    """Staging doesn't wait for the disk, so a copy counts in the boot that made it only."""
    first = make_stager().stage_in(os.fsencode(source))
    record = staged_path(first.path).parent.parent / "record.json"
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    record.write_text(record.read_text().replace(boot_id, "another-boot"))
    assert not make_stager().stage_in(os.fsencode(source)).is_hit


def test_links_inside_the_tree_stay_links(source: Path, make_stager: MakeStager) -> None:
    """S34: links that stay inside are kept, absolute ones so that they stay inside the copy."""
    (source / "relative").symlink_to("sub/second.bin")
    (source / "sub" / "up").symlink_to("../first.txt")
    (source / "absolute").symlink_to(source / "first.txt")
    (source / "folder").symlink_to("sub")
    (source / "dangling").symlink_to("nowhere/at/all")
    (source / "itself").symlink_to("itself")
    copy = staged_path(make_stager().stage_in(os.fsencode(source)).path)
    links = {path.name: os.readlink(path) for path in copy.rglob("*") if path.is_symlink()}
    assert links == {
        "relative": "sub/second.bin",
        "up": "../first.txt",
        "absolute": "first.txt",
        "folder": "sub",
        "dangling": "nowhere/at/all",
        "itself": "itself",
    }


def test_links_out_of_the_tree_become_what_they_lead_to(
    source: Path, tmp_path: Path, make_stager: MakeStager
) -> None:
    """S34: what lies elsewhere is copied too, so nothing is read from afar by surprise."""
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "far").write_bytes(b"far away")
    (outside / "deep" / "back").symlink_to("far")
    (source / "file").symlink_to(outside / "deep" / "far")
    (source / "folder").symlink_to("../outside")
    copy = staged_path(make_stager().stage_in(os.fsencode(source)).path)
    assert not (copy / "file").is_symlink()
    assert (copy / "file").read_bytes() == b"far away"
    assert not (copy / "folder").is_symlink()
    assert (copy / "folder" / "deep" / "far").read_bytes() == b"far away"
    assert os.readlink(copy / "folder" / "deep" / "back") == "far"


def test_link_to_where_it_came_from_is_refused(source: Path, make_stager: MakeStager) -> None:
    """S34: a link to a folder above would copy for ever; it is refused by name."""
    (source / "sub" / "loop").symlink_to("../..")
    with pytest.raises(StagingError, match=r"sub/loop leads back to"):
        make_stager().stage_in(os.fsencode(source))


def test_hard_links_stay_one_file(source: Path, make_stager: MakeStager) -> None:
    """S34: a file with two names is copied once and has two names again."""
    os.link(source / "first.txt", source / "sub" / "again.txt")
    copy = staged_path(make_stager().stage_in(os.fsencode(source)).path)
    assert (copy / "first.txt").samefile(copy / "sub" / "again.txt")
    assert (copy / "first.txt").stat().st_nlink == 2


def test_sparse_file_keeps_size_and_holes(source: Path, make_stager: MakeStager) -> None:
    """S34: 64 MiB of which 1 MiB is written take about 1 MiB in the copy."""
    with (source / "sparse").open("wb") as file:
        file.seek(32 * 2**20)
        file.write(b"\x01" * 2**20)
        file.truncate(64 * 2**20)
    copy = staged_path(make_stager().stage_in(os.fsencode(source)).path) / "sparse"
    assert copy.stat().st_size == 64 * 2**20
    assert copy.stat().st_blocks * 512 < 4 * 2**20
    data = copy.read_bytes()
    assert data.count(1) == 2**20
    assert data[32 * 2**20] == 1 == data[33 * 2**20 - 1]


def test_what_can_not_be_copied_is_refused_by_name(source: Path, make_stager: MakeStager) -> None:
    """S34: a FIFO, a socket and a link to a device are named; nothing hangs, nothing is left."""
    os.mkfifo(source / "pipe")
    (source / "null").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(source / "sub" / "sock"))
        with pytest.raises(StagingError) as caught:
            make_stager().stage_in(os.fsencode(source))
    assert "null leads to a character device" in caught.value.message
    assert "pipe is a FIFO" in caught.value.message
    assert "sub/sock is a socket" in caught.value.message


def test_hostile_names_arrive(source: Path, make_stager: MakeStager) -> None:
    """S34: names with newline, quotes, spaces, Chinese and bytes that are no UTF-8 are kept."""
    names = [b"a b", b"a'; echo x", b"a|b", b"new\nline", "测试".encode(), b"\xff\xfe", b"-rf"]
    for name in names:
        (source / os.fsdecode(name)).write_bytes(name)
    copy = make_stager().stage_in(os.fsencode(source)).path
    assert set(names) <= set(os.listdir(copy))
    for name in names:
        assert Path(os.fsdecode(os.path.join(copy, name))).read_bytes() == name


def test_path_of_the_copy_stays_on_one_line(tmp_path: Path, make_stager: MakeStager) -> None:
    """The path is a command's last line, so a source's newline does not get into it."""
    source = tmp_path / "two\nlines"
    source.write_bytes(b"x")
    staged = make_stager().stage_in(os.fsencode(source))
    assert os.path.basename(staged.path) == b"two_lines"


def test_missing_source_is_not_found(tmp_path: Path, make_stager: MakeStager) -> None:
    """A source that is not there is an error of its own that names it."""
    with pytest.raises(NotFoundError, match="nowhere"):
        make_stager().stage_in(os.fsencode(tmp_path / "nowhere"))


def test_cache_inside_the_source_is_refused(source: Path, make_stager: MakeStager) -> None:
    """A source that holds the cache would be copied into itself."""
    with pytest.raises(StagingError, match="lies in it"):
        make_stager(cache=source / "cache").stage_in(os.fsencode(source))


def test_source_changed_once_is_copied_again(source: Path, make_stager: MakeStager) -> None:
    """S33: a file rewritten while its tree is copied: one more try, and the copy is the new one."""
    said: list[str] = []

    def rewrite_once() -> bool:
        if not said and partial_files(source.parent / "cache"):
            said.append("rewritten")
            (source / "first.txt").write_bytes(b"changed meanwhile")
        return False

    stager = make_stager(workers=1, is_cancelled=rewrite_once, talk=said.append)
    staged = stager.stage_in(os.fsencode(source))
    assert said[1].endswith("changed while it was copied; once more")
    assert (staged_path(staged.path) / "first.txt").read_bytes() == b"changed meanwhile"


def test_source_that_keeps_changing_is_refused(source: Path, make_stager: MakeStager) -> None:
    """S33: a second change is refused with the file's name, and nothing is published."""
    rounds: list[int] = []

    def append() -> bool:
        if partial_files(source.parent / "cache"):
            rounds.append(1)
            (source / "first.txt").write_bytes(b"x" * (10 + len(rounds)))
        return False

    stager = make_stager(workers=1, is_cancelled=append)
    with pytest.raises(StagingError, match=r"keeps changing.*first\.txt has changed"):
        stager.stage_in(os.fsencode(source))
    assert list((source.parent / "cache").glob("*/entries/*")) == []
    assert list((source.parent / "cache").glob("*/partial/*")) == []


def partial_files(cache: Path) -> list[Path]:
    """Files that a copy has begun to write."""
    return [path for path in cache.glob("*/partial/*/data/*/**/*") if path.is_file()]


def test_interrupted_copy_is_resumed(source: Path, make_stager: MakeStager) -> None:
    """A copy that was told to stop publishes nothing, and the next one goes on from there."""
    for number in range(40):
        (source / f"file{number}").write_bytes(b"%d" % number)

    def stop_in_the_middle() -> bool:
        return len(partial_files(source.parent / "cache")) >= 10

    with pytest.raises(StagingError, match="interrupted"):
        make_stager(is_cancelled=stop_in_the_middle).stage_in(os.fsencode(source))
    assert list((source.parent / "cache").glob("*/entries/*")) == []
    staged = make_stager().stage_in(os.fsencode(source))
    assert staged.resumed_files >= 8  # two threads may each have been in the middle of one
    assert read_tree(staged_path(staged.path)) == read_tree(source)


BLOCKING_COPY = """
import os, sys, threading
from pathlib import Path
from slurmwrap.staging.cache import NodeCache
from slurmwrap.staging.leases import current_holder
from slurmwrap.staging.stage_in import Stager

source, cache = sys.argv[1:]
calls = []

def block_once():
    calls.append(1)
    if len(list(Path(cache).glob("*/partial/*/data/*/*"))) > 12 and "told" not in calls:
        calls.append("told")
        print("in the middle", flush=True)
        sys.stdin.readline()
    return False

stager = Stager(NodeCache(cache, node="n1"), workers=1, headroom=0.0,
                holder=current_holder(None), live_jobs=lambda: None, is_cancelled=block_once)
print(os.fsdecode(stager.stage_in(os.fsencode(source)).path), flush=True)
"""


@pytest.fixture
def blocked_copy(source: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that stands still in the middle of copying ``source``."""
    for number in range(40):
        (source / f"file{number}").write_bytes(b"%d" % number * 1000)
    child = subprocess.Popen(
        [sys.executable, "-c", BLOCKING_COPY, str(source), str(tmp_path / "cache")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "in the middle\n"
    yield child
    child.kill()
    child.communicate()


def test_killed_copy_leaves_nothing_at_its_final_name(
    source: Path, tmp_path: Path, make_stager: MakeStager, blocked_copy: subprocess.Popen[str]
) -> None:
    """S22: after kill -9 in the middle only a partial folder is there; the next run resumes it."""
    blocked_copy.kill()
    blocked_copy.wait()
    assert list((tmp_path / "cache").glob("*/entries/*")) == []
    assert len(list((tmp_path / "cache").glob("*/partial/*"))) == 1
    staged = make_stager().stage_in(os.fsencode(source))
    assert staged.resumed_files > 0
    assert read_tree(staged_path(staged.path)) == read_tree(source)
    assert list((tmp_path / "cache").glob("*/partial/*")) == []


def test_second_job_waits_for_the_first_copy(
    source: Path, tmp_path: Path, make_stager: MakeStager, blocked_copy: subprocess.Popen[str]
) -> None:
    """Two jobs at once: the second says that it waits, then uses the first one's copy."""
    said: list[str] = []

    def release(line: str) -> None:
        said.append(line)
        assert blocked_copy.stdin is not None
        blocked_copy.stdin.write("go on\n")
        blocked_copy.stdin.flush()

    staged = make_stager(talk=release).stage_in(os.fsencode(source))
    output, _ = blocked_copy.communicate(timeout=30)
    assert said[0].endswith("another job copies it; waiting")
    assert staged.is_hit
    assert output.strip() == os.fsdecode(staged.path)
    assert read_tree(staged_path(staged.path)) == read_tree(source)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become a user who may not read")
def test_unreadable_files_are_named() -> None:
    """S34: files and folders that the user may not read are named, all of them at once."""
    base = Path(tempfile.mkdtemp(prefix="staging-"))
    try:
        base.chmod(0o755)
        (base / "source" / "closed").mkdir(parents=True)
        (base / "source" / "readable").write_bytes(b"x")
        (base / "source" / "secret").write_bytes(b"x")
        (base / "source" / "secret").chmod(0)
        (base / "cache").mkdir(mode=0o1777)
        (base / "cache").chmod(0o1777)
        command = [sys.executable, "-m", "slurmwrap", "stage", "in", "source"]
        command += ["--cache", str(base / "cache"), "--headroom", "0"]
        done = subprocess.run(
            command, cwd=base, user=65534, group=65534, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 60
        assert "source/secret can't be copied (Permission denied)" in done.stderr
        (base / "source" / "closed").chmod(0)
        done = subprocess.run(
            command, cwd=base, user=65534, group=65534, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 60
        assert "closed can't be listed (Permission denied)" in done.stderr
        assert done.stdout == ""
    finally:
        shutil.rmtree(base)


def test_tree_deeper_than_the_stack(make_stager: MakeStager, tmp_path: Path) -> None:
    """S34: 1,200 folders in each other are copied, found again, and removed when they change."""
    path = os.fsencode(tmp_path / "s")
    os.mkdir(path)
    for _ in range(1200):
        path += b"/d"
        os.mkdir(path)
    with open(path + b"/f", "w") as file:
        file.write("deep")
    first = make_stager().stage_in(os.fsencode(tmp_path / "s"))
    assert make_stager().stage_in(os.fsencode(tmp_path / "s")).is_hit
    for tree in (first.path, os.fsencode(tmp_path / "s")):
        remove_tree(tree)
        assert not os.path.lexists(tree)
