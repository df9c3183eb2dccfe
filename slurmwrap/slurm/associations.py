"""Who may do what, and the tree of accounts, as slurmdbd knows them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from slurmwrap.errors import SlurmOutputError
from slurmwrap.slurm.commands import SlurmCommands

_ADMINISTRATORS = frozenset({"Administrator", "Operator"})


class Associations(Struct, frozen=True, kw_only=True):
    """slurmdbd's users and accounts at one moment."""

    admin_levels: dict[str, str]
    """Per user: ``None``, ``Operator`` or ``Administrator``."""
    coordinators: dict[str, frozenset[str]]
    """Per account, its coordinators, those of the accounts above it included."""
    parents: dict[str, str]
    """Per account, the account above it; the root account has none."""
    members: dict[str, frozenset[str]]
    """Per account, the users with an association in it (not below it)."""

    def is_administrator(self, user: str) -> bool:
        """Whether slurmdbd calls the user Administrator or Operator."""
        return self.admin_levels.get(user, "None") in _ADMINISTRATORS

    def coordinated_accounts(self, user: str) -> frozenset[str]:
        """The accounts that the user is a coordinator of, with everything below them."""
        own = [account for account, users in self.coordinators.items() if user in users]
        return frozenset(below for account in own for below in self.subtree(account))

    def accounts_of(self, user: str) -> frozenset[str]:
        """The accounts in which the user may run jobs."""
        return frozenset(account for account, users in self.members.items() if user in users)

    def subtree(self, account: str) -> frozenset[str]:
        """The account and everything below it. An account nobody knows: itself alone."""
        children: dict[str, list[str]] = {}
        for child, parent in self.parents.items():
            children.setdefault(parent, []).append(child)
        found = {account}
        waiting = [account]
        while waiting:
            below = [child for child in children.get(waiting.pop(), ()) if child not in found]
            found.update(below)
            waiting.extend(below)
        return frozenset(found)

    def ancestors(self, account: str) -> tuple[str, ...]:
        """The accounts above it, nearest first."""
        above: list[str] = []
        while account in self.parents:
            account = self.parents[account]
            if account in above:
                break  # slurmdbd allows no circle; a broken answer must not hang us
            above.append(account)
        return tuple(above)


def read_associations(commands: SlurmCommands) -> Associations:
    """Ask slurmdbd (three sacctmgr calls; cache the answer for some minutes).

    Raises:
        SlurmUnavailableError, SlurmCommandError, SlurmOutputError.
    """
    cluster = commands.cluster_name()
    users = _ask(commands, "user", "User", "AdminLevel")
    accounts = _ask(commands, "account", "Account", "Coordinators", options=("withcoord",))
    associations = _ask(
        commands,
        "assoc",
        "Account",
        "ParentName",
        "User",
        options=(f"cluster={cluster}",),
    )
    parents: dict[str, str] = {}
    members: dict[str, set[str]] = {}
    for account, parent, user in associations:
        if user:
            members.setdefault(account, set()).add(user)
        elif parent:
            parents[account] = parent
    return Associations(
        admin_levels={row[0]: row[1] for row in users},
        coordinators={
            account: frozenset(name for name in names.split(",") if name)
            for account, names in accounts
        },
        parents=parents,
        members={account: frozenset(names) for account, names in members.items()},
    )


def _ask(
    commands: SlurmCommands, what: str, *fields: str, options: tuple[str, ...] = ()
) -> Iterator[list[str]]:
    """The rows of ``sacctmgr show``. Its names hold neither ``|`` nor newlines."""
    text = commands.run(
        "sacctmgr",
        "--noheader",
        "--parsable2",
        "--readonly",
        "show",
        what,
        *options,
        f"format={','.join(fields)}",
    )
    for line in text.split("\n"):
        if not line:
            continue
        row = line.split("|")
        if len(row) != len(fields):
            raise SlurmOutputError(
                f"`sacctmgr show {what}` printed {line[:200]!r}"
                f" where {len(fields)} columns were expected"
            )
        yield row
