"""Rules of the house that a machine can see."""

from __future__ import annotations

import ast
import re

from source import PACKAGES, ROOT, package_modules, parse, project_files, python_files

MAX_MODULE_LINES = 450
MAX_FUNCTION_LINES = 70
FILES = python_files()


def test_modules_stay_small() -> None:
    """A module that outgrows its room becomes a package."""
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in FILES}
    assert [
        f"{path.relative_to(ROOT)}: {lines} lines"
        for path, lines in lengths.items()
        if lines > MAX_MODULE_LINES
    ] == []


def test_functions_stay_small() -> None:
    """A long function is split; long text in it moves out."""
    assert [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in FILES
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
    ] == []


def test_no_error_is_swallowed() -> None:
    """No ``except …: pass`` over everything, and no bare except."""
    wrong = []
    for path in FILES:
        for node in ast.walk(parse(path)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            names = {item.id for item in ast.walk(node.type or node) if isinstance(item, ast.Name)}
            is_broad = node.type is None or bool(names & {"Exception", "BaseException"})
            if node.type is None or (is_broad and isinstance(node.body[0], ast.Pass)):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert wrong == []


def test_no_shell_is_asked() -> None:
    """No ``shell=True``: programs are run by a list of words."""
    assert [
        f"{path.relative_to(ROOT)}:{node.value.lineno}"
        for path in FILES
        for node in ast.walk(parse(path))
        if isinstance(node, ast.keyword) and node.arg == "shell"
    ] == []


def test_every_module_opens_with_what_belongs_in_it() -> None:
    """The first words of every module say what it is for."""
    silent = [
        name for name, path in package_modules().items() if not ast.get_docstring(parse(path))
    ]
    assert silent == []


def test_no_room_is_called_after_nothing() -> None:
    """``utils``, ``helpers``, ``common`` and ``misc`` say nothing about what is inside."""
    empty = {"utils", "util", "helpers", "helper", "common", "misc"}
    named = [path for folder in PACKAGES.values() for path in folder.rglob("*")]
    assert [str(path) for path in named if path.stem in empty] == []


def test_no_program_is_run_without_a_time_out() -> None:
    """A command of Slurm that hangs must not hang the service."""
    endless = []
    for name, path in package_modules().items():
        for node in ast.walk(parse(path)):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in {"subprocess.run", "subprocess.check_output"}
                and "timeout" not in {keyword.arg for keyword in node.keywords}
            ):
                endless.append(f"{name}: line {node.lineno}")
    assert endless == []


def test_no_file_names_a_place_of_one_machine() -> None:
    """Nothing that we ship knows where its author's checkout lay."""
    # Written in pieces, so that this file does not find itself. /home/alice and the like are
    # made-up people.
    people = r"(USER|user|alice|bob|carol|dave|eve|x)\b"
    personal = re.compile("/" + rf"(root|home/(?!{people}|\$|\{{|<))[/\w]")
    checkout = re.compile(
        r"(?<![\w.])" + f"({re.escape(str(ROOT.parent))}|/" + r"work)/(main|shared)\b"
    )
    found = []
    for path in project_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if personal.search(line) or checkout.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert found == []
