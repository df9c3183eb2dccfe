"""The secrets file: who reads it, who may, and what may stand in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurmwrap.config import load_config
from slurmwrap.config.secrets import find_exposure, holds_secret
from slurmwrap.errors import ConfigError, UnknownNameError

SECRET = "mailtos://robot:hunter2@smtp.example.org?to={user}@example.org"


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def write_both(folder: Path, secrets: str, mode: int = 0o600, settings: str = "") -> Path:
    path = write(folder / "secrets.toml", secrets, mode)
    return write(folder / "slurmwrap.toml", f'[notify]\nsecrets_file = "{path}"\n{settings}', 0o644)


def test_the_service_alone_reads_secrets(tmp_path: Path) -> None:
    """A command never opens the file; the service gets its targets, and their origin."""
    settings = write_both(tmp_path, f"[notify]\nuser_urls = ['{SECRET}']\n")
    assert load_config(settings, {}).config.notify.user_urls == ()
    loaded = load_config(settings, {}, with_secrets=True)
    assert loaded.config.notify.user_urls == (SECRET,)
    assert loaded.origins["notify.user_urls"] == f"file {tmp_path / 'secrets.toml'}"


def test_secrets_beat_the_file_and_the_environment_beats_secrets(tmp_path: Path) -> None:
    """A target is replaced whole; what the secrets do not name stays as it was."""
    settings = write_both(
        tmp_path,
        f"[notify]\nuser_urls = ['{SECRET}']\naccount_urls = ['{SECRET}']\n",
        settings='user_urls = ["json://a"]\nadmin_urls = ["json://b"]\n',
    )
    variables = {"SLURMWRAP_NOTIFY_ACCOUNT_URLS": "json://c"}
    notify = load_config(settings, variables, with_secrets=True).config.notify
    assert notify.user_urls == (SECRET,)
    assert notify.admin_urls == ("json://b",)
    assert notify.account_urls == ("json://c",)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o601, 0o660, 0o777])
def test_a_file_that_others_reach_is_refused(tmp_path: Path, mode: int) -> None:
    """The message names file and mode, the hint the cure."""
    settings = write_both(tmp_path, f"[notify]\nuser_urls = ['{SECRET}']\n", mode)
    with pytest.raises(ConfigError) as caught:
        load_config(settings, {}, with_secrets=True)
    assert f"{tmp_path / 'secrets.toml'} " in caught.value.message
    assert f"mode {mode:04o}" in caught.value.message
    assert caught.value.hint is not None
    assert "chmod 0640" in caught.value.hint


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o440, 0o400])
def test_a_file_for_owner_and_group_is_taken(tmp_path: Path, mode: int) -> None:
    """root:slurmwrap 0640 is what the documentation asks for."""
    settings = write_both(tmp_path, f"[notify]\nuser_urls = ['{SECRET}']\n", mode)
    assert load_config(settings, {}, with_secrets=True).config.notify.user_urls == (SECRET,)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_file_of_a_third_user_is_refused(tmp_path: Path) -> None:
    """Whoever owns the file could change where messages go."""
    path = write(tmp_path / "secrets.toml", "")
    os.chown(path, 4711, 0)
    status = path.stat()
    assert find_exposure(status) == ""  # root may read anything
    os.seteuid(65534)
    try:
        assert "belongs to uid 4711" in find_exposure(status)
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[notify]\nuser_url = []\n", "unknown secret 'notify.user_url' (did you mean"),
        ('[notify]\nlanguage = "zh"\n', "unknown secret 'notify.language'"),
        ("[slurm]\nconf = 'x'\n", "unknown secret 'slurm.conf'"),
        ("user_urls = []\n", "unknown secret 'user_urls'"),
    ],
)
def test_nothing_else_may_stand_in_it(tmp_path: Path, text: str, words: str) -> None:
    """A misspelt or misplaced name is refused with the known ones."""
    with pytest.raises(UnknownNameError) as caught:
        load_config(write_both(tmp_path, text), {}, with_secrets=True)
    assert words in caught.value.message
    assert "known: notify.account_urls, notify.admin_urls, notify.user_urls" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "[notify]\nuser_urls = { a = 'hunter2' }\n",
        "[notify]\nuser_urls = [['hunter2']]\n",
        "[notify]\nuser_urls = [hunter2]\n",
        "[notify]\nuser_urls = ['hunter2\n",
    ],
)
def test_an_error_never_shows_what_was_written(tmp_path: Path, text: str) -> None:
    """Errors go into logs that others read."""
    with pytest.raises(ConfigError) as caught:
        load_config(write_both(tmp_path, text), {}, with_secrets=True)
    assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"
    assert "secrets.toml" in caught.value.message


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    """The service would otherwise run without its channels, and nobody would know."""
    settings = write(
        tmp_path / "slurmwrap.toml", f'[notify]\nsecrets_file = "{tmp_path}/none.toml"\n'
    )
    with pytest.raises(ConfigError, match=r"can't read the secrets file .*none\.toml: No such"):
        load_config(settings, {}, with_secrets=True)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mailto://smtp.example.org:25?from=a@b&to={user}@b", False),
        ("mailto://robot@smtp.example.org?to=a@b", False),
        ("mailtos://robot:hunter2@smtp.example.org", True),
        ("mailto://smtp.example.org?user=robot&pass=hunter2", True),
        ("feishu://token", True),
        ("wecombot://key/", True),
        ("json://host/hook?key=1", True),
        ("syslog://", False),
        ("json://[broken", True),
    ],
)
def test_what_counts_as_a_secret(url: str, expected: bool) -> None:
    """A relay without a password can be seen by anybody; a chat's address is its token."""
    assert holds_secret(url) is expected
