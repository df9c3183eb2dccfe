"""Tables of settings: they behave like frozen dataclasses, without being generated."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from slurmwrap.setting import Duration, Settings, declared_fields, setting


class OvenSettings(Settings):
    """A table."""

    heat: int = setting(200, "Degrees.", at_least=50, at_most=250)
    bake: Duration = setting(Duration(1800), "How long.")
    trays: dict[str, int] = setting({}, "Trays by name.")

    def __post_init__(self) -> None:
        if self.heat > 240 and self.bake > 3600:
            raise ValueError("it would burn")


@dataclass(frozen=True)
class StoveSettings:
    """A table of a site's own rule."""

    heat: int = setting(5, "Level.")


def test_what_is_not_given_is_the_default() -> None:
    """Every field has its default; what is given replaces it."""
    assert OvenSettings().values() == {"heat": 200, "bake": 1800, "trays": {}}
    assert OvenSettings(heat=100).heat == 100
    assert OvenSettings(heat=100).bake == 1800


def test_tables_are_equal_by_value_and_can_be_read() -> None:
    """Two tables with the same values are the same; of another class they are not."""
    assert OvenSettings() == OvenSettings(heat=200)
    assert OvenSettings() != OvenSettings(heat=100)
    assert OvenSettings() != StoveSettings()
    assert repr(OvenSettings(heat=1)) == "OvenSettings(heat=1, bake=1800, trays={})"


def test_a_table_can_not_be_changed() -> None:
    """Settings in force stay as they were read."""
    settings = OvenSettings()
    with pytest.raises(AttributeError, match="can't be changed"):
        settings.heat = 5  # type: ignore[misc]
    assert settings.heat == 200


def test_an_unknown_name_is_refused() -> None:
    """A misspelt argument is not lost."""
    with pytest.raises(TypeError, match="OvenSettings has no setting 'heet'"):
        OvenSettings(heet=5)  # type: ignore[call-arg]


def test_values_that_do_not_fit_each_other_are_refused() -> None:
    """A table checks itself when it is made."""
    with pytest.raises(ValueError, match="it would burn"):
        OvenSettings(heat=250, bake=Duration(7200))


def test_fields_of_both_kinds_of_table_are_found() -> None:
    """The loader reads our tables and the dataclasses of a site's own rules alike."""
    assert list(declared_fields(OvenSettings)) == ["heat", "bake", "trays"]
    assert declared_fields(OvenSettings)["heat"].metadata["at_most"] == 250
    assert declared_fields(StoveSettings)["heat"].metadata["meaning"] == "Level."
