"""Text written for Slurm's #SBATCH parser and for bash comes back as it was."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmwrap.errors import UsageError
from slurmwrap.submit.quoting import quote_command, quote_directive


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("train.py", "--job-name=train.py"),
        ("run#3", '--job-name="run#3"'),
        ("my job", '--job-name="my job"'),
        ("a\\b", '--job-name="a\\\\b"'),
        ("o'brien", '--job-name="o\'brien"'),
        ('say "hi"', '--job-name="say \\"hi\\""'),
        ("$HOME", '--job-name="$HOME"'),
        ("测试", '--job-name="测试"'),
        ("logs/%x-%j.out", "--job-name=logs/%x-%j.out"),
    ],
)
def test_a_directive_is_written_for_slurms_parser(name: str, line: str) -> None:
    """S9: `#` and spaces are quoted, quotes and backslashes escaped, the rest left readable."""
    assert quote_directive("job-name", name) == line


def test_a_flag_has_no_value() -> None:
    """A flag is written alone."""
    assert quote_directive("requeue") == "--requeue"


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\0b", "a\tb", "\x1b[31m"])
def test_a_control_character_is_refused(value: str) -> None:
    """S9: a line break can't be hidden in a name, where it would start a line of its own."""
    with pytest.raises(UsageError, match="control character"):
        quote_directive("job-name", value)


def read_as_sbatch(line: str) -> list[str]:
    """sbatch 22.05's reading of the rest of an #SBATCH line, written down from what it did."""
    words: list[str] = []
    rest = line
    while rest.strip(" "):
        rest = rest.lstrip(" ")
        word, quote, position = "", "", 0
        while position < len(rest) and (quote or rest[position] != " "):
            letter = rest[position]
            if letter == "\\":
                position += 1
                word += rest[position : position + 1]
            elif quote and letter == quote:
                quote = ""
            elif not quote and letter in "\"'":
                quote = letter
            elif not quote and letter == "#":
                return [*words, word] if word else words
            else:
                word += letter
            position += 1
        words.append(word)
        rest = rest[position:]
    return words


printable = st.text(
    st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("#\\\"' $%"), min_size=1
)


@given(printable)
@settings(max_examples=200)
def test_every_value_survives_slurms_parser(value: str) -> None:
    """S9: whatever one line of text is given, one word with that text is read."""
    assert read_as_sbatch(quote_directive("comment", value)) == [f"--comment={value}"]


def echo_through_bash(words: list[bytes]) -> list[bytes]:
    """The words that bash hands to a program, for a command line of ours."""
    line = quote_command([os.fsdecode(word) for word in words])
    assert "\n" not in line
    assert "\r" not in line
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, "-c", b"printf '%s\\0' " + os.fsencode(line)],
        capture_output=True,
        timeout=20,
        check=True,
    )
    return done.stdout.split(b"\0")[:-1]


def test_hostile_arguments_reach_the_program() -> None:
    """S11: substitutions, quotes, a line EOF, CR LF and bytes that are no UTF-8 arrive exactly."""
    words = [
        b"$(reboot)",
        b"`id`",
        b"it's",
        b'"quoted"',
        b"a\nEOF\nb",
        b"dos\r\nline",
        b"#SBATCH --account=other",
        b"x\n#SBATCH --account=other",
        b"\xff\xfe",
        b"",
        b"a\\",
        b"!!",
        b"*",
        b"~",
        b"\x01f",
        "测试".encode(),
    ]
    assert echo_through_bash(words) == words


@given(st.lists(st.binary(max_size=12).map(lambda raw: raw.replace(b"\0", b"")), min_size=1))
@settings(max_examples=25, deadline=None)
def test_every_argument_reaches_the_program(words: list[bytes]) -> None:
    """S11: any bytes that an argument can hold are read back by bash, from one line."""
    assert echo_through_bash(words) == words
