"""Who may do what, as a real slurmdbd prints it."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmwrap.errors import SlurmOutputError, SlurmUnavailableError
from slurmwrap.slurm.associations import Associations, read_associations


@pytest.fixture
def associations(slurm, recorded: Path) -> Associations:
    slurm.answer("sacctmgr", recorded / "sacctmgr-user.txt", when="show user")
    slurm.answer("sacctmgr", recorded / "sacctmgr-account.txt", when="show account")
    slurm.answer("sacctmgr", recorded / "sacctmgr-assoc.txt", when="show assoc cluster=testbed")
    return read_associations(slurm.commands())


def test_administrators_and_operators(associations: Associations) -> None:
    """slurmdbd's Administrator and Operator may see everything; nobody else, and no stranger."""
    users = ["root", "slurmwrap", "swt-admin", "swt-alice", "swt-dave", "nobody-we-know", ""]
    assert [user for user in users if associations.is_administrator(user)] == [
        "root",
        "slurmwrap",
        "swt-admin",
    ]
    assert associations.admin_levels["swt-admin"] == "Operator"


def test_a_coordinator_has_what_is_below(associations: Associations) -> None:
    """dave coordinates lab, and so vision and nlp under it."""
    assert associations.coordinated_accounts("swt-dave") == {"lab", "vision", "nlp"}
    assert associations.coordinated_accounts("swt-alice") == frozenset()


def test_coordinators_are_known_where_slurm_names_only_the_upper_account() -> None:
    """Where the lower accounts' lists lack the coordinator, the tree still gives them."""
    some = Associations(
        admin_levels={},
        coordinators={"lab": frozenset({"dave"}), "vision": frozenset()},
        parents={"lab": "root", "vision": "lab", "deep": "vision"},
        members={},
    )
    assert some.coordinated_accounts("dave") == {"lab", "vision", "deep"}


def test_the_tree_of_accounts(associations: Associations) -> None:
    """root above lab and physics, lab above vision and nlp."""
    assert associations.subtree("lab") == {"lab", "vision", "nlp"}
    assert associations.subtree("root") == {"root", "lab", "vision", "nlp", "physics"}
    assert associations.subtree("unknown") == {"unknown"}
    assert associations.ancestors("vision") == ("lab", "root")
    assert associations.ancestors("root") == ()


def test_users_and_their_accounts(associations: Associations) -> None:
    """alice is in two accounts."""
    assert associations.accounts_of("swt-alice") == {"vision", "nlp"}
    assert associations.members["nlp"] == {"swt-alice", "swt-bob"}


def test_a_circle_does_not_hang() -> None:
    """slurmdbd allows none; a broken answer must not stop the service."""
    some = Associations(admin_levels={}, coordinators={}, parents={"a": "b", "b": "a"}, members={})
    assert some.ancestors("a") == ("b", "a")
    assert some.subtree("a") == {"a", "b"}


def test_slurmdbd_away_grants_nothing(slurm) -> None:
    """No answer is an error, not a cluster without administrators."""
    words = "sacctmgr: error: Sending PersistInit msg: Connection refused"
    slurm.answer("sacctmgr", status=1, stderr=words)
    with pytest.raises(SlurmUnavailableError, match="slurmdbd"):
        read_associations(slurm.commands())


def test_a_row_of_another_form_is_refused(slurm) -> None:
    """A column too many could grant a level to the wrong user."""
    slurm.answer("sacctmgr", "alice|Administrator|x\n")
    with pytest.raises(SlurmOutputError, match="2 columns"):
        read_associations(slurm.commands())
