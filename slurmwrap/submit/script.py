"""Rendering a request through a template into the script that sbatch gets."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from slurmwrap import __version__
from slurmwrap.errors import SlurmwrapError, SubmitError, TemplateError, UsageError
from slurmwrap.submit.quoting import quote_command, quote_directive, quote_word
from slurmwrap.submit.request import JobRequest
from slurmwrap.submit.templates import ParameterValue, Template

if TYPE_CHECKING:
    import minijinja

LARGEST_SCRIPT_BYTES = 4 * 1024 * 1024
"""sbatch refuses larger ones."""

_LATE_DIRECTIVE = re.compile(r"\s*#SBATCH\b")


class Rendering(NamedTuple):
    """Who renders, when, and what the script calls."""

    user: str
    rendered_at: int
    program: tuple[str, ...]
    """The slurmwrap in use, by absolute path."""
    config_file: str | None = None
    """The configuration file to pass on, when one was named."""
    exports: Mapping[str, str] = MappingProxyType({})
    """Variables that the script sets, so that it does not depend on what sbatch exports."""


def render(
    request: JobRequest,
    template: Template,
    parameters: Mapping[str, ParameterValue],
    rendering: Rendering,
) -> str:
    """The whole script.

    A text that holds bytes which are not UTF-8 (a path, an argument) holds them as surrogate
    escapes, as Python's own argv does: write it with ``os.fsencode``.

    Raises:
        TemplateError: the template uses a name that nobody gave, or makes a script that sbatch
            would refuse or read in part.
        UsageError: the template refuses the request.
        SubmitError: the script is too large.
    """
    import minijinja  # loaded by what renders only

    try:
        script = _restore(
            _environment().render_str(
                _shield(template.source),
                template.path.name,
                **_shield(_names(request, template, parameters, rendering)),
            )
        )
    except SlurmwrapError:
        raise
    except minijinja.TemplateError as error:
        line = f", line {error.line}" if error.line is not None else ""
        raise TemplateError(
            f"template {template.path}{line}: {error.detail or error.message}",
            hint="docs/templates.md lists the names that a template may use",
        ) from error
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise TemplateError(
            f"template {template.path} can't be rendered: {error}",
            hint="docs/templates.md lists the names that a template may use",
        ) from error
    if not script.endswith("\n"):
        script += "\n"
    _check_script(script, template)
    return script


def _environment() -> minijinja.Environment:
    # It reaches nothing but what it is given: users and sites bring templates that others use.
    import minijinja

    environment = minijinja.Environment(
        undefined_behavior="strict",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.add_filter("quote", lambda value: quote_word(str(value)))
    environment.add_filter("words", lambda value: tuple(shlex.split(str(value))))
    environment.add_filter("directive", _directive)
    environment.add_global("refuse", _refuse)
    return environment


# The engine's texts hold no bytes that are not UTF-8, and it would replace them without a word.
# On the way through it they are characters that Unicode leaves to programs.
_SHIELDS = {surrogate: surrogate + 0x100000 for surrogate in range(0xDC80, 0xDD00)}
_SHIELDED = {shield: surrogate for surrogate, shield in _SHIELDS.items()}


def _shield(value: Any) -> Any:
    """The value with every surrogate escape in its texts replaced by its shield.

    Raises:
        UsageError: a text that holds a shield of its own, which would come out as a byte.
    """
    if isinstance(value, str):
        if value.isascii():
            return value
        if not _SHIELDED.keys().isdisjoint(map(ord, value)):
            raise UsageError(f"{value!r} holds a character that is reserved (U+10DC80 to U+10DCFF)")
        return value.translate(_SHIELDS)
    if isinstance(value, tuple):
        return tuple(_shield(item) for item in value)
    if isinstance(value, dict):
        return {key: _shield(item) for key, item in value.items()}
    return value


def _restore(text: str) -> str:
    return text if text.isascii() else text.translate(_SHIELDED)


def _directive(value: object, option: str) -> str:
    return quote_directive(option, str(value))


def _refuse(message: str, hint: str | None = None) -> NoReturn:
    raise UsageError(str(message), hint=hint)


def _names(
    request: JobRequest,
    template: Template,
    parameters: Mapping[str, ParameterValue],
    rendering: Rendering,
) -> dict[str, object]:
    """What a template may use; docs/templates.md explains each."""
    return {
        "heading": _heading(template, rendering),
        "directives": tuple(quote_directive(*directive) for directive in request.directives),
        "exports": tuple(
            f"{name}={quote_word(value)}" for name, value in _exports(request, rendering).items()
        ),
        "run": _run_command(request, rendering),
        "command": quote_command(request.command),
        "param": dict(parameters),
        "has_directive": lambda option: request.directive(option) is not None,
        "name": request.name,
        "nodes": request.nodes,
        "cards_per_node": request.cards_per_node,
        "gpu_type": request.gpu_type,
    }


def _heading(template: Template, rendering: Rendering) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(rendering.rendered_at))
    user = "".join(letter if letter.isprintable() else "?" for letter in rendering.user)
    return (
        f"# Rendered by slurmwrap {__version__} for {user} on {when} UTC"
        f" from template {template.name!r}."
    )


def _exports(request: JobRequest, rendering: Rendering) -> dict[str, str]:
    exports = dict(rendering.exports)
    if (request.directive("export") or "ALL").partition(",")[0] != "ALL":
        # Else srun inside the job would get the little environment that the user asked for here.
        exports["SLURM_EXPORT_ENV"] = "ALL"
    return exports


def _run_command(request: JobRequest, rendering: Rendering) -> str:
    words = list(rendering.program)
    if rendering.config_file is not None:
        words += ["--config", rendering.config_file]
    words.append("run")
    for source in request.stage:
        words += ["--stage", source]
    if request.watch is not None:
        words += ["--watch", request.watch]
    if request.patience is not None:
        words += ["--patience", str(request.patience)]
    return quote_command(words)


def _check_script(script: str, template: Template) -> None:
    """What sbatch would refuse, or worse, silently not read."""
    if not script.startswith("#!"):
        raise TemplateError(
            f"template {template.path}: the script does not begin with #!",
            hint="its first line after the header is #!/bin/bash",
        )
    if "\r" in script or "\0" in script:
        raise TemplateError(
            f"template {template.path}: the script holds a carriage return or NUL,"
            " which sbatch refuses"
        )
    command_seen = False
    for number, line in enumerate(script.split("\n"), 1):
        stripped = line.strip()
        command_seen = command_seen or bool(stripped and not stripped.startswith("#"))
        if _LATE_DIRECTIVE.match(line) and (command_seen or line[0].isspace()):
            raise TemplateError(
                f"template {template.path}: sbatch would ignore line {number} of the script:"
                f" {stripped}",
                hint="#SBATCH lines start in the first column, before the first command",
            )
    size_bytes = len(script.encode("utf-8", "surrogateescape"))
    if size_bytes >= LARGEST_SCRIPT_BYTES:
        raise SubmitError(
            f"the script would have {size_bytes} bytes; sbatch takes less than"
            f" {LARGEST_SCRIPT_BYTES}",
            hint="put long argument lists into a file that the command reads",
        )
