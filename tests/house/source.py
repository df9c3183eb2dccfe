"""The project's own files as the tests of the house read them."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"slurmwrap": ROOT / "slurmwrap", "slurmwrapd": ROOT / "daemon/slurmwrapd"}


def package_modules() -> dict[str, Path]:
    """Dotted name → file of every module of both packages."""
    modules: dict[str, Path] = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            if parts[-1] == "__init__":
                parts.pop()
            modules[".".join(parts)] = path
    return modules


def python_files() -> list[Path]:
    """Every Python file that we wrote."""
    folders = ("slurmwrap", "daemon", "testbed", "tests", "benchmarks", "docs")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def project_files() -> list[Path]:
    """Files under version control; every file of a checkout without git that is not ignored."""
    done = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        timeout=30,
        check=True,
    )
    names = [name for name in done.stdout.decode("utf-8", "surrogateescape").split("\0") if name]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported_modules(tree: ast.Module, *, types_too: bool = False) -> Iterator[str]:
    """Dotted names that a module imports anywhere in it, in functions as well.

    ``from a import b`` yields ``a`` and ``a.b``. Imports for the type checker alone are left
    out unless ``types_too``.
    """
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if not types_too and isinstance(node, ast.If) and _is_type_checking(node.test):
            for statement in node.body:
                skipped.update(ast.walk(statement))
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
