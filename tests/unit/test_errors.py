"""Errors that tell what to do next."""

from __future__ import annotations

from slurmwrap.errors import (
    NoRoomError,
    SlurmCommandError,
    SlurmwrapError,
    StagingError,
    UnknownNameError,
    error_kinds,
)


def test_an_unknown_name_comes_with_a_guess_and_the_list() -> None:
    """The reader learns what is known, and the likeliest meant one first."""
    error = UnknownNameError("template", "sinlge", ["single", "ddp"])
    assert str(error) == "unknown template 'sinlge' (did you mean 'single'?); known: ddp, single"
    assert error.known == ["ddp", "single"]


def test_an_unknown_name_without_a_like_one_gets_no_guess() -> None:
    """A guess that is far off would mislead."""
    assert (
        str(UnknownNameError("rule", "xyz", ["idle-gpu"])) == "unknown rule 'xyz'; known: idle-gpu"
    )
    assert str(UnknownNameError("rule", "xyz", [])) == "unknown rule 'xyz'; none are known"


def test_a_failed_program_keeps_its_words() -> None:
    """argv, status and stderr stay readable, and silence is called silence."""
    error = SlurmCommandError(["sbatch", "job.sh"], 1, "sbatch: error: no such partition\n")
    assert str(error) == "sbatch exited with 1: sbatch: error: no such partition"
    assert (error.argv, error.status) == (["sbatch", "job.sh"], 1)
    silent = SlurmCommandError(["squeue"], None, "")
    assert str(silent) == "squeue timed out: it printed nothing on stderr"


def test_every_kind_is_listed_once_in_order_of_code() -> None:
    """Scripts and the documentation see every kind."""
    kinds = error_kinds()
    assert kinds[0] is SlurmwrapError
    assert len(kinds) == len(set(kinds))
    assert [kind.exit_code for kind in kinds] == sorted(kind.exit_code for kind in kinds)
    assert NoRoomError in kinds


def test_a_special_kind_is_still_its_general_one() -> None:
    """Who catches staging errors catches a full disk as well."""
    assert issubclass(NoRoomError, StagingError)
    assert NoRoomError.exit_code != StagingError.exit_code
