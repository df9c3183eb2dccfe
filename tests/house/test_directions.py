"""Imports point one way: core ← pure ← adapters ← faces."""

from __future__ import annotations

import pytest
from source import imported_modules, package_modules, parse

CORE, PURE, ADAPTER, FACE = range(4)
LAYER_NAMES = ("core", "pure", "adapter", "face")

LAYERS = {
    # The root package only offers log_metrics, resolved when first used.
    "slurmwrap.errors": CORE,
    "slurmwrap.units": CORE,
    "slurmwrap.clock": CORE,
    "slurmwrap.tres": CORE,
    "slurmwrap.model": CORE,
    "slurmwrap.display": CORE,
    "slurmwrap.setting": CORE,
    "slurmwrap.watch": CORE,
    "slurmwrap.rules": PURE,
    "slurmwrap.billing": PURE,
    "slurmwrap.config": ADAPTER,
    "slurmwrap.resources": ADAPTER,
    "slurmwrap.munge": ADAPTER,
    "slurmwrap.api": ADAPTER,
    "slurmwrap.slurm": ADAPTER,
    "slurmwrap.gpu": ADAPTER,
    "slurmwrap.store": ADAPTER,
    "slurmwrap.staging": ADAPTER,
    "slurmwrap.submit": ADAPTER,
    "slurmwrap.runtime": ADAPTER,
    "slurmwrap.notify": ADAPTER,
    "slurmwrap.statements": ADAPTER,
    "slurmwrap.commandline": FACE,
    "slurmwrap.__main__": FACE,
    "slurmwrap.cli": FACE,
    "slurmwrapd": FACE,
}
"""Every room of the house. A new one is added here, on purpose."""

SHARED_ADAPTERS = {"slurmwrap.config", "slurmwrap.munge", "slurmwrap.api", "slurmwrap.resources"}
"""Adapters that other adapters may use."""

MODULES = package_modules()


def room_of(module: str) -> str | None:
    """The room that a module of ours lies in; None for the root package and foreign modules."""
    for room in sorted(LAYERS, key=len, reverse=True):
        if module == room or module.startswith(f"{room}."):
            return room
    return None


def imports_of(module: str) -> list[str]:
    names = imported_modules(parse(MODULES[module]))
    return sorted({name for name in names if name.split(".")[0] in ("slurmwrap", "slurmwrapd")})


def test_every_module_lies_in_a_room() -> None:
    """A module whose layer nobody decided is refused."""
    homeless = [name for name in MODULES if room_of(name) is None and name != "slurmwrap"]
    assert homeless == []


def test_imports_point_to_the_own_layer_or_to_the_left() -> None:
    """No core module knows an adapter, no adapter a face, and no adapter another's inside."""
    wrong = [
        f"{module} imports {name}: {why}"
        for module in MODULES
        for name in imports_of(module)
        if (why := find_fault(module, name))
    ]
    assert wrong == []


def find_fault(module: str, imported: str) -> str:
    """Why this import points the wrong way; empty when it does not."""
    room, other = room_of(module), room_of(imported)
    if room is None or other is None or other == room:
        return ""
    if LAYERS[other] > LAYERS[room]:
        return f"{LAYER_NAMES[LAYERS[other]]} is to the right of {LAYER_NAMES[LAYERS[room]]}"
    if LAYERS[room] == LAYERS[other] == ADAPTER and other not in SHARED_ADAPTERS:
        return "an adapter knows another adapter"
    if room == "slurmwrapd" and other == "slurmwrap.cli":
        return "the service knows the command line"
    if other == "slurmwrapd":
        return "the library knows the service"
    return ""


def test_modules_do_not_import_each_other_in_circles() -> None:
    """A circle makes two modules one that nobody can understand alone."""
    graph = {module: [name for name in imports_of(module) if name in MODULES] for module in MODULES}
    # A package whose __init__ offers names of its own modules is no circle.
    for module, names in graph.items():
        graph[module] = [
            name
            for name in names
            if not module.startswith(f"{name}.") and name != module and name != "slurmwrap"
        ]
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        if module in trail:
            pytest.fail(" → ".join((*trail[trail.index(module) :], module)))
        if module in done:
            return
        for name in graph[module]:
            visit(name, (*trail, module))
        done.add(module)

    for module in graph:
        visit(module, ())


@pytest.mark.parametrize("layer", ["slurmwrap.rules", "slurmwrap.billing"])
def test_pure_rooms_do_no_input_or_output(layer: str) -> None:
    """Rules and bills are functions of values: no clock, files, processes or environment.

    The room that reads dumps and price files is text in, values out: it is given open text.
    """
    forbidden = {"os", "subprocess", "socket", "time", "sqlite3", "urllib3", "shutil"}
    found = [
        f"{module}: {name}"
        for module in MODULES
        if room_of(module) == layer
        for name in imported_modules(parse(MODULES[module]))
        if name.split(".")[0] in forbidden
    ]
    assert found == []


def test_only_the_store_speaks_sql() -> None:
    """SQL is written in one room."""
    speakers = {
        room_of(module)
        for module in MODULES
        for name in imported_modules(parse(MODULES[module]))
        if name.split(".")[0] in {"sqlite3", "sqlite_utils"}
    }
    assert speakers <= {"slurmwrap.store"}


def test_only_the_gpu_room_loads_the_driver() -> None:
    """Accelerators are read in one room."""
    readers = {
        room_of(module)
        for module in MODULES
        for name in imported_modules(parse(MODULES[module]))
        if name.split(".")[0] == "pynvml"
    }
    assert readers <= {"slurmwrap.gpu"}
