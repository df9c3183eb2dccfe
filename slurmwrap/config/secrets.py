"""The secrets file: who may read it, and which targets of messages hold a secret at all.

slurmwrap.toml must be readable by every user; passwords and tokens stand in a second file that
only the service reads.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from slurmwrap.errors import ConfigError

_MAIL_SCHEMES = ("mailto", "mailtos")


def read_private_file(path: Path) -> bytes:
    """The content of a file that holds secrets.

    Raises:
        ConfigError: it can't be read, or others can read or change it.
    """
    try:
        with path.open("rb") as file:
            problem = find_exposure(os.fstat(file.fileno()))
            if problem:
                raise ConfigError(
                    f"the secrets file {path} {problem}",
                    hint=f"chown root:slurmwrap {path} && chmod 0640 {path}; then change the"
                    " passwords in it, if anybody may have read them",
                )
            return file.read()
    except OSError as error:
        raise ConfigError(
            f"can't read the secrets file {path}: {error.strerror}",
            hint="the service's user must be able to read it: owner root, group slurmwrap, 0640",
        ) from error


def find_exposure(status: os.stat_result) -> str:
    """Who else could read or change a file that holds secrets; empty when nobody can."""
    mode = stat.S_IMODE(status.st_mode)
    if mode & stat.S_IRWXO:
        return f"is open to everybody (mode {mode:04o})"
    if mode & stat.S_IWGRP:
        return f"can be changed by its group (mode {mode:04o})"
    if os.geteuid() and status.st_uid not in (0, os.geteuid()):
        return f"belongs to uid {status.st_uid}, neither root nor the user that reads it"
    return ""


def holds_secret(url: str) -> bool:
    """Whether a target's URL may hold a password or token.

    A mail relay without a password has none; chat services keep theirs anywhere in the URL.
    """
    try:
        parts = urlsplit(url)
        has_password = parts.password is not None
    except ValueError:
        return True
    if parts.scheme.lower() in _MAIL_SCHEMES:
        return has_password or any(key.lower() == "pass" for key, _ in parse_qsl(parts.query))
    return bool(parts.netloc or parts.path.strip("/") or parts.query)


def is_readable_by_all(path: Path) -> bool:
    """Whether every user of this machine may read a file, as far as its own mode says."""
    return bool(path.stat().st_mode & stat.S_IROTH)
