"""The word that says which metric the plateau rule looks at."""

import pytest

from slurmwrap.errors import UnknownNameError, UsageError
from slurmwrap.watch import parse_watch


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("val_acc", ("val_acc", "max", 0.0)),
        ("loss:min", ("loss", "min", 0.0)),
        ("val_acc:max:0.001", ("val_acc", "max", 0.001)),
        ("val:acc:max", ("val:acc", "max", 0.0)),
        ("val:acc:min:2", ("val:acc", "min", 2.0)),
        ("验证精度:max", ("验证精度", "max", 0.0)),
    ],
)
def test_every_form_is_read(text: str, expected: tuple[str, str, float]) -> None:
    """Each written form gives its name, mode and smallest difference."""
    assert parse_watch(text) == expected


@pytest.mark.parametrize("text", ["", ":max", "a\nb", "a:max:", "a:max:nan", "a:max:-1", "a:min:x"])
def test_nonsense_is_refused(text: str) -> None:
    """No name, or a difference that can't be one, is refused with an example."""
    with pytest.raises(UsageError) as caught:
        parse_watch(text)
    assert caught.value.hint


def test_an_unknown_mode_is_not_taken_for_a_name() -> None:
    """A mistyped mode is refused with the right one suggested, not watched under a wrong name."""
    with pytest.raises(UnknownNameError, match="did you mean 'min'"):
        parse_watch("loss:mni")
