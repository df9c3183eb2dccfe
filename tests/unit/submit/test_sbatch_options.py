"""Which options sbatch has, and how --sbatch KEY=VALUE is read."""

from __future__ import annotations

import pytest

from slurmwrap.errors import UnknownNameError, UsageError
from slurmwrap.submit.sbatch_options import (
    SHIPPED_OPTIONS,
    Argument,
    known_options,
    parse_help,
    parse_passthrough,
)

HELP = """\
Usage: sbatch [OPTIONS(0)...] [ : [OPTIONS(N)...]] script(0) [args(0)...]

Parallel run options:
  -a, --array=indexes         job array index values
      --bb=<spec>             burst buffer specifications
  -B  --extra-node-info=S[:C[:T]]  combine request of sockets per node,
      --deadline=time         remove the job if no ending possible before
                              this deadline (start > (deadline - time[-min]))
      --signal=[[R][B]:]num[@time] send signal when time limit within time seconds
      --stepmgr               enable the step manager
"""


def test_help_lists_long_options_only_where_they_are_defined() -> None:
    """Words inside an explanation are no options."""
    assert parse_help(HELP) == {
        "array",
        "bb",
        "extra-node-info",
        "deadline",
        "signal",
        "stepmgr",
    }


def test_a_newer_slurm_brings_its_own_options() -> None:
    """What the installed sbatch lists is known, beside the options of 22.05."""
    assert "stepmgr" not in SHIPPED_OPTIONS
    known = known_options(HELP)
    assert known["stepmgr"] is Argument.UNKNOWN
    assert known["open-mode"] is Argument.VALUE  # sbatch 22.05 --help leaves it out
    assert known_options(None) == SHIPPED_OPTIONS


def test_values_and_flags_are_read() -> None:
    """A value may hold `=`; dashes before the name are taken too."""
    texts = ("mail-type=END", "contiguous", "--comment=a=b", "exclusive", "propagate=ALL")
    assert parse_passthrough(texts, SHIPPED_OPTIONS) == {
        "mail-type": "END",
        "contiguous": "",
        "comment": "a=b",
        "exclusive": "",
        "propagate": "ALL",
    }


def test_an_unknown_option_is_refused_with_a_suggestion() -> None:
    """A mistyped option is not passed on, and the right one is named."""
    with pytest.raises(UnknownNameError, match="did you mean 'mail-type'"):
        parse_passthrough(("mailtype=END",), SHIPPED_OPTIONS)


@pytest.mark.parametrize(
    "texts",
    [("mail-type",), ("mail-type=",), ("contiguous=yes",), ("comment=a", "comment=b"), ("wrap=x",)],
)
def test_a_wrong_use_is_refused(texts: tuple[str, ...]) -> None:
    """A missing value, one too many, a repetition and what a script can't hold are refused."""
    with pytest.raises(UsageError) as caught:
        parse_passthrough(texts, SHIPPED_OPTIONS)
    assert caught.value.hint
