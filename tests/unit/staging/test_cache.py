"""The cache folder: whom it trusts, and what it refuses."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from slurmwrap.errors import StagingError
from slurmwrap.staging.cache import NodeCache

USER = "root" if os.getuid() == 0 else ""

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root to act as another user")


def folder_of(cache: NodeCache) -> Path:
    return Path(os.fsdecode(cache.folder))


def test_every_user_has_a_private_folder(tmp_path: Path) -> None:
    """Below a shared place the user's folder is open to nobody else, whatever the umask."""
    old = os.umask(0)
    try:
        cache = NodeCache(str(tmp_path / "cache"), node="n1")
    finally:
        os.umask(old)
    assert folder_of(cache).parent == tmp_path / "cache"
    assert stat.S_IMODE(folder_of(cache).stat().st_mode) == 0o700


def test_node_and_user_are_filled_in(tmp_path: Path) -> None:
    """{node} and {user} in the place; a place that names the user needs no folder below."""
    with_node = NodeCache(str(tmp_path / "{node}" / "nvme"), node="gpu7")
    assert folder_of(with_node).parent == tmp_path / "gpu7" / "nvme"
    name = folder_of(with_node).name
    with_user = NodeCache(str(tmp_path / "of-{user}"), node="gpu7")
    assert folder_of(with_user) == tmp_path / f"of-{name}"


@needs_root
def test_shared_place_made_by_root_serves_everybody(tmp_path: Path) -> None:
    """Root makes the missing place as /tmp is: every user can make a folder of his own."""
    NodeCache(str(tmp_path / "cache"), node="n1")
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o1777


def test_link_in_the_place_of_the_users_folder_is_refused(tmp_path: Path) -> None:
    """A neighbour's link under the user's name leads nowhere, and is not followed."""
    cache = NodeCache(str(tmp_path / "cache"), node="n1")
    name = folder_of(cache).name
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / name).symlink_to(elsewhere)
    with pytest.raises(StagingError, match="is not a folder"):
        NodeCache(str(tmp_path / "other"), node="n1")
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("mode", [0o777, 0o750, 0o701])
def test_open_folder_is_refused(tmp_path: Path, mode: int) -> None:
    """A folder that others may enter could hold anything; it is refused, not mended."""
    cache = NodeCache(str(tmp_path / "cache"), node="n1")
    folder_of(cache).chmod(mode)
    with pytest.raises(StagingError, match=f"is open to others \\(mode {mode:04o}"):
        NodeCache(str(tmp_path / "cache"), node="n1")


@needs_root
def test_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """A folder under the user's name that somebody else made first is not used."""
    cache = NodeCache(str(tmp_path / "cache"), node="n1")
    os.chown(cache.folder, 65534, 65534)
    with pytest.raises(StagingError, match="belongs to uid 65534"):
        NodeCache(str(tmp_path / "cache"), node="n1")


@needs_root
def test_place_in_another_users_power_is_refused(tmp_path: Path) -> None:
    """Whoever owns a folder above the cache could exchange it after it was checked."""
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    with pytest.raises(StagingError, match="could exchange its contents"):
        NodeCache(str(tmp_path / "theirs"), node="n1")


def test_place_open_to_everybody_needs_the_sticky_bit(tmp_path: Path) -> None:
    """In a folder with mode 0777 others can rename the cache; with 1777 they can't."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(StagingError, match="others can rename"):
        NodeCache(str(tmp_path / "open"), node="n1")
    (tmp_path / "open").chmod(0o1777)
    NodeCache(str(tmp_path / "open"), node="n1")


@pytest.mark.parametrize("place", ["relative/path", "/two\nlines", ""])
def test_place_must_be_absolute_and_on_one_line(place: str) -> None:
    """The path is handed to jobs and printed on one line."""
    with pytest.raises(StagingError, match="absolute path on one line"):
        NodeCache(place, node="n1")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a link to somebody else")
def test_link_of_another_user_on_the_way_is_refused(tmp_path: Path) -> None:
    """A neighbour's link in /tmp that leads into our own folders is not followed, nor made from."""
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o1777)
    private = tmp_path / "private"
    private.mkdir()
    (place / "way").symlink_to(private)
    os.lchown(place / "way", 12345, 12345)
    with pytest.raises(
        StagingError, match=r"behind the link .*/shared/way: it belongs to uid 12345"
    ):
        NodeCache(str(place / "way" / "deeper"), node="n1")
    assert list(private.iterdir()) == []


def test_links_of_root_on_the_way_are_followed(tmp_path: Path) -> None:
    """A site may have /nvme point to its disk, also by a relative link; a circle is refused."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "nvme").symlink_to("./disk/../disk")
    cache = NodeCache(str(tmp_path / "nvme" / "new"), node="n1")
    assert Path(os.fsdecode(cache.folder)).parent == tmp_path / "disk" / "new"
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(StagingError, match="in a circle"):
        NodeCache(str(tmp_path / "a" / "cache"), node="n1")
