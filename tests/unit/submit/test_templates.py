"""Finding templates, reading their headers, and the values of their parameters."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurmwrap.errors import SlurmwrapError, TemplateError, UnknownNameError, UsageError
from slurmwrap.resources import shipped_folder
from slurmwrap.submit.templates import (
    Template,
    find_templates,
    load_template,
    read_parameters,
    read_template,
)

BODY = "#!/bin/bash\n{{ heading }}\nexec {{ run }} -- {{ command }}\n"
HEADER = """\
{# slurmwrap:
description = "For tests."

[parameters.seed]
type = "whole"
meaning = "Seed."

[parameters.scale]
type = "number"
default = 1.5
meaning = "Scale."

[parameters.quick]
type = "switch"
default = false
meaning = "Less of it."

[parameters.backend]
default = "nccl"
choices = ["nccl", "gloo"]
meaning = "How processes talk."
#}
"""


def write_template(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.sbatch.j2"
    path.write_bytes(text.encode())
    return path


@pytest.fixture
def declared(tmp_path: Path) -> Template:
    return read_template(write_template(tmp_path, "mine", HEADER + BODY))


def test_shipped_templates_declare_what_they_take() -> None:
    """Every shipped template has a description, and a meaning for every parameter."""
    found = find_templates([shipped_folder("sbatch_templates")])
    assert {"single", "ddp"} <= found.keys()
    for path in found.values():
        template = read_template(path)
        assert template.description.endswith(".")
        assert all(parameter.meaning.endswith(".") for parameter in template.parameters)


def test_the_first_folder_wins(tmp_path: Path) -> None:
    """A user's template of the same name comes before the site's."""
    mine = write_template(tmp_path / "user", "single", HEADER + BODY)
    write_template(tmp_path / "site", "single", HEADER + BODY)
    other = write_template(tmp_path / "site", "other", HEADER + BODY)
    folders = [tmp_path / "user", tmp_path / "missing", tmp_path / "site"]
    assert load_template("single", folders).path == mine
    assert find_templates(folders) == {"other": other, "single": mine}


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can act as another user")
def test_a_folder_that_can_not_be_entered_is_none(tmp_path: Path) -> None:
    """After `su` without `-`, HOME is another user's: that is no failure."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates/mine.sbatch.j2").write_text(HEADER + BODY, encoding="utf-8")
    tmp_path.chmod(0o700)
    folders = [tmp_path / "templates"]
    os.seteuid(65534)
    try:
        assert find_templates(folders) == {}
        with pytest.raises(UnknownNameError, match="none are known"):
            load_template("mine", folders)
    finally:
        os.seteuid(0)


def test_a_slash_makes_it_a_path(tmp_path: Path) -> None:
    """--template ./mine.sbatch.j2 is that file, whatever the folders hold."""
    path = write_template(tmp_path, "own", HEADER + BODY)
    assert load_template(str(path), []).name == "own"
    with pytest.raises(TemplateError, match="No such file"):
        load_template(f"{tmp_path}/missing.sbatch.j2", [])


def test_an_unknown_template_is_refused_with_the_known_ones() -> None:
    """A mistyped name is answered with the right one."""
    with pytest.raises(UnknownNameError, match=r"did you mean 'single'.*known: ddp, single"):
        load_template("sinlge", [shipped_folder("sbatch_templates")])


def test_dos_line_ends_are_put_right_with_a_notice(tmp_path: Path) -> None:
    """S18: a template edited on Windows works; sbatch itself would refuse the script."""
    path = write_template(tmp_path, "dos", "\ufeff" + (HEADER + BODY).replace("\n", "\r\n"))
    template = read_template(path)
    assert "\r" not in template.source
    assert template.source.startswith("{# slurmwrap:")
    assert [str(path) in notice for notice in template.notices] == [True]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "{# a comment #}\n",
        "{# slurmwrap:\ndescription = #}\n",
        "{# slurmwrap:\n#}\n",
        '{# slurmwrap:\ndescription = "x"\nauthor = "y"\n#}\n',
        '{# slurmwrap:\ndescription = "x"\nruns_on = "moon"\n#}\n',
        '{# slurmwrap:\ndescription = "x"\n[parameters.a]\ntype = "text"\n#}\n',
        '{# slurmwrap:\ndescription = "x"\n[parameters.a]\ntype = "txt"\nmeaning = "m"\n#}\n',
        '{# slurmwrap:\ndescription = "x"\n[parameters.A-b]\nmeaning = "m"\n#}\n',
        '{# slurmwrap:\ndescription = "x"\n[parameters.a]\nmeaning = "m"\ndefault = 3\n#}\n',
        '{# slurmwrap:\ndescription = "x"\n[parameters.a]\nmeaning = "m"\nchoices=["p"]\n'
        'default = "q"\n#}\n',
    ],
)
def test_a_broken_header_is_refused_with_its_file(tmp_path: Path, header: str) -> None:
    """What is wrong in a template's header is said with the file's name."""
    path = write_template(tmp_path, "broken", header + BODY)
    with pytest.raises(SlurmwrapError) as caught:
        read_template(path)
    assert str(path) in f"{caught.value.message} {caught.value.hint}"


def test_a_template_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """Another encoding is named, not guessed."""
    path = tmp_path / "gbk.sbatch.j2"
    path.write_bytes("{# 测试 #}".encode("gbk"))
    with pytest.raises(TemplateError, match="not UTF-8"):
        read_template(path)


def test_parameters_have_their_declared_types(declared: Template) -> None:
    """Values are read by the type; defaults stand for what was not given."""
    assert read_parameters(declared, ("seed=3", "quick=true")) == {
        "seed": 3,
        "scale": 1.5,
        "quick": True,
        "backend": "nccl",
    }


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ((), "--param seed=VALUE: Seed."),
        (("seed=x",), "whole number"),
        (("seed",), "no value"),
        (("seed=1", "seed=2"), "twice"),
        (("seed=1", "quick=maybe"), "true or false"),
        (("seed=1", "scale=big"), "number"),
    ],
)
def test_wrong_parameters_are_refused(
    declared: Template, texts: tuple[str, ...], words: str
) -> None:
    """A value of another form, twice or missing is refused by name."""
    with pytest.raises(UsageError, match=words):
        read_parameters(declared, texts)


@pytest.mark.parametrize("texts", [("sead=1",), ("seed=1", "backend=mpi")])
def test_unknown_parameters_and_choices_are_refused(
    declared: Template, texts: tuple[str, ...]
) -> None:
    """A parameter that the template does not declare is refused with those it does."""
    with pytest.raises(UnknownNameError):
        read_parameters(declared, texts)


def test_a_path_does_not_depend_on_where_the_job_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parameter that is a path is made absolute where it is typed."""
    header = (
        '{# slurmwrap:\ndescription = "x"\n[parameters.file]\ntype = "path"\nmeaning = "m"\n#}\n'
    )
    template = read_template(write_template(tmp_path, "mine", header + BODY))
    monkeypatch.chdir(tmp_path)
    assert read_parameters(template, ("file=env.sh",)) == {"file": str(tmp_path / "env.sh")}
