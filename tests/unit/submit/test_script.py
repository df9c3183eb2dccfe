"""Rendered scripts: whole, as golden files; and what a template may not do."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurmwrap.errors import SlurmwrapError, SubmitError, TemplateError, UsageError
from slurmwrap.resources import shipped_folder
from slurmwrap.submit.request import SubmitOptions, build_request
from slurmwrap.submit.script import LARGEST_SCRIPT_BYTES, Rendering, render
from slurmwrap.submit.templates import load_template, read_parameters

SCRIPTS = Path(__file__).parents[2] / "data/scripts"
RENDERING = Rendering(
    user="alice", rendered_at=1_796_000_000, program=("/opt/slurmwrap/bin/slurmwrap",)
)


@dataclass(frozen=True)
class Example:
    """One script that is kept whole."""

    options: SubmitOptions
    template: str = "single"
    parameters: tuple[str, ...] = ()
    rendering: Rendering = RENDERING


EXAMPLES = {
    "single-plain": Example(SubmitOptions(command=("hostname",))),
    "single-usual": Example(
        SubmitOptions(
            command=("python", "train.py", "--lr", "0.1"),
            account="lab",
            partition="gpu",
            time="12:00:00",
            gpus="a100:2",
            cpus=16,
            memory="128G",
            stage=("/data/imagenet",),
            watch="val_acc:max:0.001",
            patience=3,
            output="logs/%x-%j.out",
        ),
        parameters=("setup=/users/alice/env.sh",),
    ),
    "single-hostile": Example(
        SubmitOptions(
            command=("bash", "-c", "echo $(id) `id`\nEOF\r\n", "it's", "测试", "\udcff", ""),
            name="o'brien #3 a\\b $HOME 测试",
            output='/tmp/a b/#%j".out',
            sbatch=("comment=x; scancel 1", "no-requeue", "export=NONE"),
            stage=("/data/a b'c",),
        ),
        parameters=("setup=/users/o'brien/a b.sh",),
        rendering=Rendering(
            user="o'brien\n#SBATCH --uid=0",
            rendered_at=1_796_000_000,
            program=("/opt/slurm wrap/bin/slurmwrap",),
            config_file="/users/alice/my settings.toml",
            exports={"SLURMWRAP_STAGING_CACHE_DIR": "/nvme/a b"},
        ),
    ),
    "single-array": Example(
        SubmitOptions(command=("python", "sweep.py"), array="0-99%10", dependency="afterok:12_3")
    ),
    "ddp-usual": Example(
        SubmitOptions(command=("train.py", "--epochs", "3"), gpus="h800:8", nodes="4"),
        template="ddp",
    ),
    "ddp-parameters": Example(
        SubmitOptions(command=("-m", "package.train"), nodes="2", sbatch=("ntasks-per-node=1",)),
        template="ddp",
        parameters=(
            "processes_per_node=4",
            "launcher_args=--max-restarts=3 --log-dir 'a b'",
            "interface=ib0",
            "setup=/env.sh",
        ),
    ),
}


def render_example(example: Example) -> str:
    template = load_template(example.template, [shipped_folder("sbatch_templates")])
    return render(
        build_request(example.options),
        template,
        read_parameters(template, example.parameters),
        example.rendering,
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_script_is_what_was_read_and_approved(
    name: str, compare_golden: Callable[[str, Path], None]
) -> None:
    """Every line of a rendered script is kept in a golden file that a person has read."""
    script = render_example(EXAMPLES[name])
    version = re.sub(r"(?<=slurmwrap )\d+\.\d+\.\d+\S*(?= for)", "VERSION", script, count=1)
    compare_golden(version, SCRIPTS / f"{name}.sh")


@pytest.mark.parametrize("name", EXAMPLES)
def test_shellcheck_finds_nothing(name: str) -> None:
    """Rendered scripts are clean bash, whatever the values."""
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed (Debian: shellcheck)")
    script = render_example(EXAMPLES[name]).encode("utf-8", "replace")
    done = subprocess.run(
        [shellcheck, "--shell=bash", "-"], input=script, capture_output=True, timeout=60
    )
    assert done.stdout.decode() == ""
    assert done.returncode == 0


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_last_line_becomes_the_supervisor(name: str) -> None:
    """S2: `exec` makes the supervisor the batch process, which is the one that Slurm signals."""
    last = render_example(EXAMPLES[name]).splitlines()[-1]
    assert last.startswith(("exec /opt/slurm", "exec '/opt/slurm"))
    assert " run" in last


def test_ddp_without_cards_is_refused() -> None:
    """A DDP run whose number of processes nobody knows does not start as one process."""
    with pytest.raises(UsageError, match="no cards"):
        render_example(Example(SubmitOptions(command=("train.py",)), template="ddp"))


def render_text(tmp_path: Path, body: str) -> str:
    path = tmp_path / "mine.sbatch.j2"
    path.write_text(f'{{# slurmwrap:\ndescription = "x"\n#}}\n{body}', encoding="utf-8")
    template = load_template(str(path), [])
    return render(build_request(SubmitOptions(command=("x",))), template, {}, RENDERING)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("#!/bin/bash\n{{ partition }}\n", "`partition` is undefined"),
        ("#!/bin/bash\n{{ param.seed }}\n", "seed"),
        ("#!/bin/bash\n{% if %}\n", "line 5"),
        ("#!/bin/bash\n{{ 1 / 0 }}\n", "calculate 1 / 0"),
        ("#!/bin/bash\n{{ ''.__class__.__mro__ }}\n", "__class__"),
        ("#!/bin/bash\n{{ refuse.__globals__ }}\n", "__globals__"),
        ("#!/bin/bash\n{{ has_directive.__closure__ }}\n", "__closure__"),
        ("#!/bin/bash\n{{ range(10**9) | list }}\n", "too many elements"),
        ("#!/bin/bash\n{{ directives.append('x') }}\n", "append"),
        ("#!/bin/bash\n{% include '/etc/passwd' %}\n", "/etc/passwd"),
        ("echo\n", "begin with #!"),
        ("#!/bin/bash\ntrue\n#SBATCH --time=1\n", "would ignore line 3"),
        ("#!/bin/bash\n #SBATCH --time=1\n", "would ignore line 2"),
        ("#!/bin/bash\n{{ '\\r' }}\n", "carriage return"),
    ],
)
def test_what_a_template_may_not_do(tmp_path: Path, body: str, words: str) -> None:
    """A template that uses what it is not given, or that sbatch would read in part, is refused."""
    with pytest.raises(TemplateError) as caught:
        render_text(tmp_path, body)
    assert words in caught.value.message
    assert "mine.sbatch.j2" in caught.value.message


def test_a_script_that_sbatch_would_not_take_is_refused(tmp_path: Path) -> None:
    """4 MiB is too much for sbatch; the hint says what to do with long arguments."""
    with pytest.raises(SubmitError, match="bytes"):
        render_text(tmp_path, f"#!/bin/bash\n: {'x' * LARGEST_SCRIPT_BYTES}\n")


def test_bytes_that_are_not_utf_8_come_through_everywhere(tmp_path: Path) -> None:
    """A path is bytes: a directive, an argument and a parameter keep theirs, filtered or not."""
    path = tmp_path / "mine.sbatch.j2"
    path.write_text(
        '{# slurmwrap:\ndescription = "x"\n[parameters.a]\nmeaning = "x"\n#}\n#!/bin/bash\n'
        "{% for directive in directives %}\n#SBATCH {{ directive }}\n{% endfor %}\n"
        "{{ param.a }} {{ param.a | quote }} {{ param.a | upper }} -- {{ command }}\n",
        encoding="utf-8",
    )
    request = build_request(SubmitOptions(command=("测\udcff",), output="/tmp/\udce9.out"))
    text = render(request, load_template(str(path), []), {"a": "b\udc80测"}, RENDERING)
    assert '#SBATCH --output="/tmp/\udce9.out"\n' in text
    assert text.endswith("\nb\udc80测 'b\udc80测' B\udc80测 -- '测\udcff'\n")


def test_a_character_that_stands_for_a_byte_is_refused(tmp_path: Path) -> None:
    """What would come out as something else is not taken."""
    with pytest.raises(UsageError, match=r"reserved \(U\+10DC80 to U\+10DCFF\)"):
        render_text(tmp_path, "#!/bin/bash\n: \U0010dcff\n")


def test_a_template_can_refuse(tmp_path: Path) -> None:
    """A site's template says in its own words what it does not serve."""
    with pytest.raises(SlurmwrapError, match="not here"):
        render_text(tmp_path, "{{ refuse('not here') }}")


def test_the_template_of_the_docs_works(tmp_path: Path) -> None:
    """What docs/templates.md shows can be copied and used."""
    page = Path(__file__).parents[3] / "docs/templates.md"
    match = re.search(r"```jinja\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert match is not None
    path = tmp_path / "evaluate.sbatch.j2"
    path.write_text(match[1], encoding="utf-8")
    template = load_template(str(path), [])
    request = build_request(SubmitOptions(command=("x",), partition="gpu"))
    lines = render(request, template, read_parameters(template, ("split=val",)), RENDERING)
    assert "\nexport SPLIT=val\nexec /opt/slurmwrap/bin/slurmwrap run -- x\n" in lines
    assert lines.index("--partition=small") < lines.index("--partition=gpu")
