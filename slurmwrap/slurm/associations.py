"""Who may do what, and the tree of accounts, as slurmdbd knows them."""

from __future__ import annotations

from msgspec import Struct

from slurmwrap.slurm.commands import SlurmCommands


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
        raise NotImplementedError

    def coordinated_accounts(self, user: str) -> frozenset[str]:
        """The accounts that the user is a coordinator of, with everything below them."""
        raise NotImplementedError

    def accounts_of(self, user: str) -> frozenset[str]:
        """The accounts in which the user may run jobs."""
        raise NotImplementedError

    def subtree(self, account: str) -> frozenset[str]:
        """The account and everything below it. An account nobody knows: itself alone."""
        raise NotImplementedError

    def ancestors(self, account: str) -> tuple[str, ...]:
        """The accounts above it, nearest first."""
        raise NotImplementedError


def read_associations(commands: SlurmCommands) -> Associations:
    """Ask slurmdbd (three sacctmgr calls; cache the answer for some minutes).

    Raises:
        SlurmUnavailableError, SlurmCommandError, SlurmOutputError.
    """
    raise NotImplementedError
