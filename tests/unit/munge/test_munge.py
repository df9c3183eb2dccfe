"""MUNGE credentials against a real munged."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from slurmwrap.errors import MungeError
from slurmwrap.munge import EXPIRED, NOT_AUTHORISED, REPLAYED, Munge

OTHER_UID = 4_000_000_123


@pytest.fixture
def munge(munged: Path) -> Munge:
    return Munge(str(munged))


@pytest.mark.parametrize(
    "payload",
    [b"", b"x", b"\x00\xff middle \x00", "测试 a'; echo x".encode(), os.urandom(300_000)],
    ids=["empty", "short", "binary", "text", "300 kB"],
)
def test_what_is_encoded_is_decoded(munge: Munge, payload: bytes) -> None:
    """Payload byte for byte, the sender's uid and gid, an address, both times."""
    before = int(time.time())
    credential = munge.decode(munge.encode(payload, reader_uid=os.getuid()))
    assert credential.payload == payload
    assert (credential.uid, credential.gid) == (os.getuid(), os.getgid())
    assert before <= credential.encoded_at <= credential.decoded_at <= time.time()
    assert credential.address.count(".") == 3


def test_a_credential_serves_once(munge: Munge) -> None:
    """Code 17: the second decode is refused though munged gives uid and payload again."""
    text = munge.encode(b"pay", reader_uid=os.getuid())
    munge.decode(text)
    with pytest.raises(MungeError) as caught:
        munge.decode(text)
    assert caught.value.code == REPLAYED == 17
    assert "pay" not in str(caught.value)


def test_only_its_reader_can_decode(munge: Munge) -> None:
    """Code 18: a credential for another uid is of no use to us."""
    with pytest.raises(MungeError) as caught:
        munge.decode(munge.encode(b"secret", reader_uid=OTHER_UID))
    assert caught.value.code == NOT_AUTHORISED == 18


def test_a_credential_expires(munge: Munge) -> None:
    """Code 15: after its lifetime of one second it is refused."""
    text = munge.encode(b"old", reader_uid=os.getuid(), lifetime_seconds=1)
    # munged counts whole seconds, and only time makes a credential old.
    time.sleep(2.1)
    with pytest.raises(MungeError) as caught:
        munge.decode(text)
    assert caught.value.code == EXPIRED == 15


@pytest.mark.parametrize(
    "text",
    ["", "MUNGE:", "MUNGE:AwQDAAA=:", "GET / HTTP/1.1", "MUNGE:\0x:", "MUNGE:测试:"],
)
def test_what_is_no_credential_is_refused(munge: Munge, text: str) -> None:
    """Any text at all ends in our own error."""
    with pytest.raises(MungeError):
        munge.decode(text)


def test_a_changed_credential_is_refused(munge: Munge) -> None:
    """One character changed in the middle."""
    text = munge.encode(b"amount=1", reader_uid=os.getuid())
    middle = len(text) // 2
    changed = text[:middle] + ("A" if text[middle] != "A" else "B") + text[middle + 1 :]
    with pytest.raises(MungeError):
        munge.decode(changed)


def test_munged_away(tmp_path: Path) -> None:
    """No socket: the error says which program to look at."""
    with pytest.raises(MungeError) as caught:
        Munge(str(tmp_path / "nobody")).encode(b"x", reader_uid=os.getuid())
    assert "munged" in (caught.value.hint or "")
