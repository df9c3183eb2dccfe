"""Where templates and sample configuration lie: in a checkout, or installed as data files."""

from __future__ import annotations

import sys
from pathlib import Path

from slurmwrap.errors import NotFoundError

_DISTRIBUTION = "slurmwrap"
_CHECKOUT = Path(__file__).resolve().parent.parent


def shipped_folder(name: str) -> Path:
    """The folder ``name`` (``sbatch_templates``, ``etc``, ``systemd``) as shipped.

    In a checkout or an editable install it is the checkout's own folder; otherwise it is found
    through the distribution's list of installed files, wherever pip put its data.

    Raises:
        NotFoundError: this installation lacks it.
    """
    in_checkout = _CHECKOUT / ("daemon/systemd" if name == "systemd" else name)
    if (_CHECKOUT / "pyproject.toml").is_file() and in_checkout.is_dir():
        return in_checkout
    prefix = Path(sys.prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    shared = prefix / "share/slurmwrap" / name
    # A virtual environment's data can lie nowhere else.
    is_ours = (prefix / "lib" / version / "site-packages").resolve() == _CHECKOUT
    if is_ours and shared.is_dir():
        return shared
    for folder in _installed_folders(name):
        if folder.is_dir():
            return folder
    raise NotFoundError(
        f"this installation of slurmwrap ({sys.prefix}) lacks its folder {name!r}",
        hint="install it again with pip; `pip show -f slurmwrap` lists what it should have",
    )


def _installed_folders(name: str) -> list[Path]:
    # A tenth of a command's start, needed by few installations.
    import sysconfig
    from importlib import metadata

    try:
        files = metadata.files(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        files = []
    folders: dict[Path, None] = {}
    for file in files:
        parts = file.parts
        if len(parts) >= 4 and parts[-4:-1] == ("share", "slurmwrap", name):
            folders[Path(str(file.locate())).resolve().parent] = None
    return [*folders, Path(sysconfig.get_path("data")) / "share/slurmwrap" / name]
