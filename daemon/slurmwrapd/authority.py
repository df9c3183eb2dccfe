"""Who is asking, and what they may see: decided by the uid that MUNGE proved."""

from __future__ import annotations

import pwd
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from slurmwrap.config import Config
from slurmwrap.errors import NotPermittedError, SlurmwrapError
from slurmwrap.munge import Credential
from slurmwrapd.service import Service

_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEPT_SECONDS = 600
_RETRY_SECONDS = 10
_MOST_NODES = 65536


@dataclass(frozen=True)
class Asker:
    """A proven user and the reach that slurmdbd gives them."""

    uid: int
    user: str
    is_administrator: bool
    coordinated_accounts: frozenset[str]
    is_reach_known: bool = True
    """False: slurmdbd has not answered yet, so more may be theirs to see than we know."""

    def may_see(self, *, user: str, account: str) -> bool:
        """Whether a job of ``user`` in ``account`` is the asker's to see."""
        return self.is_administrator or user == self.user or account in self.coordinated_accounts


def identify(service: Service, credential: Credential) -> Asker:
    """The asker behind a credential.

    While slurmdbd has never answered, everybody is an ordinary user: privileges that can't be
    looked up are not granted.
    """
    user = user_name(credential.uid)
    is_root_or_self = credential.uid == 0 or user == service.config.daemon.user
    try:
        associations = service.associations()
    except SlurmwrapError:
        return Asker(
            uid=credential.uid,
            user=user,
            is_administrator=is_root_or_self,
            coordinated_accounts=frozenset(),
            is_reach_known=is_root_or_self,
        )
    return Asker(
        uid=credential.uid,
        user=user,
        is_administrator=is_root_or_self or associations.is_administrator(user),
        coordinated_accounts=associations.coordinated_accounts(user),
    )


def user_name(uid: int) -> str:
    """The name of a uid.

    Raises:
        NotPermittedError: nobody has it here.
    """
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise NotPermittedError(f"uid {uid} is no user of this host") from None


def is_agent(config: Config, credential: Credential) -> bool:
    """Whether the credential is of a user that agents run as."""
    try:
        return user_name(credential.uid) in config.agents.users
    except NotPermittedError:
        return False


def check_agent(config: Config, credential: Credential, node: str) -> None:
    """That a credential comes from an agent of this node.

    Raises:
        NotPermittedError: another user, or an address that is not the node's.
    """
    user = user_name(credential.uid)
    if user not in config.agents.users:
        raise NotPermittedError(
            f"user {user!r} may not push readings",
            hint="agents.users lists the users that may",
        )
    addresses = config.agents.addresses.get(node) or _addresses.of(node)
    if credential.address not in addresses:
        raise NotPermittedError(
            f"readings of node {node[:64]!r} came from {credential.address},"
            f" not from {', '.join(addresses) or 'an address of that node'}",
            hint="if that is right, add it to agents.addresses",
        )


def _resolve(node: str) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(node, None, family=socket.AF_INET)
    except (OSError, UnicodeError):
        return ()
    return tuple(sorted({str(item[4][0]) for item in found}))


class NodeAddresses:
    """Addresses that node names resolve to, remembered for a while: fewer than one in three
    hundred messages asks DNS, and a failure of DNS is not kept."""

    def __init__(
        self,
        resolve: Callable[[str], tuple[str, ...]] = _resolve,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resolve = resolve
        self._timer = timer
        self._known: dict[str, tuple[float, tuple[str, ...]]] = {}

    def of(self, node: str) -> tuple[str, ...]:
        """The addresses of a node; none for what is no node's name, or is not known to DNS."""
        if not _NODE_NAME.fullmatch(node) or _is_address(node):
            return ()
        now = self._timer()
        until, addresses = self._known.get(node, (now, ()))
        if now >= until:
            addresses = self._resolve(node)
            if len(self._known) >= _MOST_NODES:
                self._known.clear()
            self._known[node] = (now + (_KEPT_SECONDS if addresses else _RETRY_SECONDS), addresses)
        return addresses


def _is_address(node: str) -> bool:
    """Whether it is a way to write an IPv4 address (one has endlessly many)."""
    try:
        socket.inet_aton(node)
    except OSError:
        return False
    return True


_addresses = NodeAddresses()
