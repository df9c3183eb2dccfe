"""How settings are declared: the form, default, meaning and bounds of each, and their tables.

Core, so that the pure rules can declare settings that the configuration reads and documents.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, Field
from typing import Any, ClassVar, NewType, dataclass_transform

Duration = NewType("Duration", int)
"""Whole seconds, written in files as ``30s``, ``2h``, ``1d12h``."""


def setting(
    default: Any,
    meaning: str,
    *,
    choices: tuple[str, ...] = (),
    at_least: float | None = None,
    at_most: float | None = None,
    secret: bool = False,
) -> Any:
    """A field that carries its meaning, and what it may be.

    Args:
        choices: the words it may be.
        at_least: the smallest number it may be; seconds for a Duration.
        at_most: the largest.
        secret: it may hold passwords, so it is never shown as it is.
    """
    metadata = {
        "meaning": meaning,
        "choices": choices,
        "at_least": at_least,
        "at_most": at_most,
        "secret": secret,
    }
    if isinstance(default, dict | list):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Settings:
    """One table of settings: a frozen record whose fields are declared with ``setting()``.

    It is used like a dataclass, ``__post_init__`` included. But it generates no code: every
    command defines all tables, and that took as long as everything else that submit does.
    """

    fields: ClassVar[dict[str, Field[Any]]] = {}

    def __init_subclass__(cls) -> None:
        declared = {name: vars(cls)[name] for name in cls.__annotations__}
        cls.fields = {
            name: item if isinstance(item, Field) else dataclasses.field(default=item)
            for name, item in declared.items()
        }
        for name, item in cls.fields.items():
            factory = item.default_factory
            setattr(cls, name, item.default if factory is MISSING else factory())

    def __init__(self, **values: Any) -> None:
        for name in values:
            if name not in self.fields:
                raise TypeError(f"{type(self).__name__} has no setting {name!r}")
        vars(self).update(values)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Raise ValueError when the values don't fit each other."""

    def values(self) -> dict[str, Any]:
        """Every value by its name."""
        return {name: getattr(self, name) for name in self.fields}

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} can't be changed")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.values() == other.values()

    def __hash__(self) -> int:
        return hash(tuple(self.values().values()))

    def __repr__(self) -> str:
        words = ", ".join(f"{name}={value!r}" for name, value in self.values().items())
        return f"{type(self).__name__}({words})"


def declared_fields(table: type[Any]) -> dict[str, Field[Any]]:
    """The fields by name of a table of settings, or of a dataclass made of ``setting()``s."""
    if issubclass(table, Settings):
        return table.fields
    return {item.name: item for item in dataclasses.fields(table)}
