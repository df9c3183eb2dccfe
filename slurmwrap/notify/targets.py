"""Turns the URL templates of [notify] into the targets of one person."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

from slurmwrap.errors import NotifyError

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
# A name that goes into an address: letters of any script, digits and the few signs that
# directories use. A comma, space or semicolon would add a recipient even when encoded, since
# Apprise splits lists of addresses after it has decoded them.
_USER_NAME = re.compile(r"[\w.+@-]{1,64}\$?")
# Apprise finds eve@evil.org in eve@evil.org@example.org: a name with a realm must be the whole
# value.
_PART_OF_VALUE = re.compile(r"\{user\}[^&/?#]|[^=/]\{user\}")


def expand_targets(urls: Iterable[str], user: str) -> tuple[str, ...]:
    """The targets of ``user``: every URL with ``{user}`` replaced, percent-encoded.

    Raises:
        NotifyError: a user name that could change what the URL means, or a placeholder other
            than ``{user}``.
    """
    targets: list[str] = []
    for url in urls:
        for name in _PLACEHOLDER.findall(url):
            if name != "user":
                raise NotifyError(
                    f"unknown placeholder {{{name}}} in a target of [notify]; known: {{user}}",
                    hint="change user_urls or account_urls in slurmwrap.toml",
                )
        is_unsafe = not _USER_NAME.fullmatch(user) or (
            "@" in user and _PART_OF_VALUE.search(url) is not None
        )
        if "{user}" in url and is_unsafe:
            raise NotifyError(
                f"user name {user!r} can't be put into an address safely",
                hint="send this user's messages to a target without {user}",
            )
        targets.append(url.replace("{user}", quote(user, safe="")))
    return tuple(dict.fromkeys(targets))
