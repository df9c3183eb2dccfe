"""How one setting is declared: its form, default, meaning and the words it may be.

Core, so that the pure rules can declare settings that the configuration reads and documents.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, NewType

Duration = NewType("Duration", int)
"""Whole seconds, written in files as ``30s``, ``2h``, ``1d12h``."""


def setting(default: Any, meaning: str, *, choices: tuple[str, ...] = ()) -> Any:
    """A dataclass field that carries its meaning, and the words it may be."""
    metadata = {"meaning": meaning, "choices": choices}
    if isinstance(default, dict | list):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)
