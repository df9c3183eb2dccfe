"""The wheel holds what it should, and every way of installing finds the shipped files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from source import ROOT

PACKAGED = (
    "slurmwrap",
    "daemon",
    "sbatch_templates",
    "etc",
    "pyproject.toml",
    "setup.cfg",
    "README.md",
    "LICENSE",
)
SHIPPED = {"sbatch_templates": "sbatch_templates", "etc": "etc", "systemd": "daemon/systemd"}
"""Name of each shipped folder → where the checkout has it."""

ASK_FOLDERS = (
    "import json, slurmwrap, slurmwrapd; from slurmwrap.resources import shipped_folder;"
    f"print(json.dumps([slurmwrap.__file__, *map(str, map(shipped_folder, {list(SHIPPED)}))]))"
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what goes into the wheel: a build in the checkout would leave files there."""
    folder = tmp_path_factory.mktemp("sources")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignore)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built once."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", folder, sources)
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This environment's packages without slurmwrap, as links."""
    folder = tmp_path_factory.mktemp("dependencies")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("slurmwrap", "__editable__")) and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)
    return folder


def run(*words: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make_environment(folder: Path, dependencies: Path) -> Path:
    """A fresh environment whose only slurmwrap is the one installed next; its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin/python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "dependencies.pth").write_text(f"{dependencies}\n")
    return python


def shipped_files(folder: Path) -> dict[str, bytes]:
    patterns = {"sbatch_templates": "*.j2", "etc": "*.toml", "systemd": "*"}
    return {
        path.name: path.read_bytes()
        for path in folder.glob(patterns[folder.name])
        if path.is_file()
    }


def check_folders(answer: str, expected_parent: Path) -> None:
    """Every shipped folder lies below ``expected_parent`` and holds the checkout's files."""
    _, *folders = json.loads(answer)
    for name, text in zip(SHIPPED, folders, strict=True):
        folder = Path(text)
        assert folder.is_relative_to(expected_parent), name
        wanted = shipped_files(ROOT / SHIPPED[name])
        assert wanted
        assert shipped_files(folder) == wanted, name


def test_the_wheel_holds_both_packages_and_nothing_else(wheel: Path) -> None:
    """No tests, no testbed; every module; the data files; the marker of typed packages."""
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names}
    [info] = [top for top in tops if top.endswith(".dist-info")]
    [data] = [top for top in tops if top.endswith(".data")]
    assert tops == {"slurmwrap", "slurmwrapd", info, data}
    modules = {
        str(path.relative_to(base))
        for base, package in ((ROOT, "slurmwrap"), (ROOT / "daemon", "slurmwrapd"))
        for path in (base / package).rglob("*.py")
    }
    assert modules <= names
    assert {"slurmwrap/py.typed", "slurmwrapd/py.typed", f"{info}/licenses/LICENSE"} <= names
    entries = zipfile.ZipFile(wheel).read(f"{info}/entry_points.txt").decode()
    assert "slurmwrap = slurmwrap.cli:main" in entries
    assert "slurmwrapd = slurmwrapd.cli:main" in entries


def test_an_installed_wheel_finds_what_it_ships(
    wheel: Path, dependencies: Path, tmp_path: Path
) -> None:
    """`pip install slurmwrap-….whl` works, and both commands start."""
    python = make_environment(tmp_path / "env", dependencies)
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel)
    check_folders(run(python, "-c", ASK_FOLDERS), (tmp_path / "env").resolve())
    for program in ("slurmwrap", "slurmwrapd"):
        assert run(tmp_path / "env/bin" / program, "--version").startswith(f"{program}, version")


def test_an_editable_install_finds_what_it_ships(
    sources: Path, dependencies: Path, tmp_path: Path
) -> None:
    """`pip install -e .` works from the checkout's own files."""
    python = make_environment(tmp_path / "env", dependencies)
    options = ("-q", "--no-deps", "--no-build-isolation", "-e", sources)
    run(sys.executable, "-m", "pip", "--python", python, "install", *options)
    answer = run(python, "-c", ASK_FOLDERS)
    assert json.loads(answer)[0] == str(sources / "slurmwrap/__init__.py")
    check_folders(answer, sources)


def test_a_checkout_finds_what_it_ships(dependencies: Path, tmp_path: Path) -> None:
    """Nothing installed at all: the checkout on the path is enough."""
    python = make_environment(tmp_path / "env", dependencies)
    paths = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'daemon')!r}]; "
    check_folders(run(python, "-c", paths + ASK_FOLDERS), ROOT)


def test_tests_run_on_what_is_installed() -> None:
    """Under `./dev test` it is the built wheel that is tested, not the checkout."""
    import slurmwrap

    if "SLURMWRAP_TESTS_ON_WHEEL" not in os.environ:
        pytest.skip("not run by ./dev test")
    assert not Path(slurmwrap.__file__).is_relative_to(ROOT / "slurmwrap")
