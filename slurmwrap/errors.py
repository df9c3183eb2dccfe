"""Every error that slurmwrap raises on purpose, each kind with an exit code of its own.

Codes 0, 1 and 2 keep their usual meaning (success, unexpected failure, wrong usage of the
command line, which click reports). 128 and above belong to signals. Everything between is
listed in docs/errors.md; a test checks that no two kinds share a code.
"""

from __future__ import annotations

from collections.abc import Iterable


class SlurmwrapError(Exception):
    """What went wrong, and in ``hint`` what the reader can do next.

    ``message`` names the object, what was expected and what was found.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class UsageError(SlurmwrapError):
    """Options or arguments that contradict each other or can't be read."""

    exit_code = 2


class ConfigError(SlurmwrapError):
    """A configuration file that can't be read or holds a value of the wrong form."""

    exit_code = 10


class UnknownNameError(SlurmwrapError):
    """A template, option, setting, rule, partition or GPU type that nobody knows."""

    exit_code = 11

    def __init__(
        self, what: str, name: str, known: Iterable[str], *, hint: str | None = None
    ) -> None:
        import difflib  # most commands misspell nothing

        names = sorted(set(known))
        message = f"unknown {what} {name!r}"
        guess = difflib.get_close_matches(name, names, n=1)
        if guess:
            message += f" (did you mean {guess[0]!r}?)"
        message += f"; known: {', '.join(names)}" if names else "; none are known"
        super().__init__(message, hint=hint)
        self.what = what
        self.name = name
        self.known = names


class NotFoundError(SlurmwrapError):
    """A job, file or account that does not exist, or is not the asker's to see."""

    exit_code = 12


class NotPermittedError(SlurmwrapError):
    """The uid that MUNGE proved may not do this."""

    exit_code = 13


class DaemonUnavailableError(SlurmwrapError):
    """slurmwrapd did not answer, or answered something that is not ours."""

    exit_code = 20


class SlurmCommandError(SlurmwrapError):
    """A Slurm command failed. ``argv``, ``status`` and ``stderr`` are kept as they were."""

    exit_code = 21

    def __init__(
        self, argv: list[str], status: int | None, stderr: str, *, hint: str | None = None
    ) -> None:
        how = "timed out" if status is None else f"exited with {status}"
        detail = stderr.strip() or "it printed nothing on stderr"
        super().__init__(f"{argv[0]} {how}: {detail}", hint=hint)
        self.argv = argv
        self.status = status
        self.stderr = stderr


class SlurmUnavailableError(SlurmwrapError):
    """Slurm's commands are missing, or its daemons do not answer."""

    exit_code = 22


class MungeError(SlurmwrapError):
    """MUNGE is away, or refused a credential (replayed, expired, not for us)."""

    exit_code = 23

    def __init__(self, message: str, *, code: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class SlurmOutputError(SlurmwrapError):
    """A Slurm command succeeded but printed something that can't be read as its answer."""

    exit_code = 24


class StoreError(SlurmwrapError):
    """The database can't be opened, read or written."""

    exit_code = 30


class SchemaError(SlurmwrapError):
    """The database was written by an older or newer slurmwrap."""

    exit_code = 31


class SacctFormatError(SlurmwrapError):
    """A sacct dump without a column that the bill needs, or not a dump at all."""

    exit_code = 40


class PartialResultError(SlurmwrapError):
    """A result was given, but some of the input could not be used; the message counts it."""

    exit_code = 41


class PriceError(SlurmwrapError):
    """A price file that can't be read or holds an entry of the wrong form."""

    exit_code = 42


class PriceTieError(PriceError):
    """Two price entries of the same rank match one record."""

    exit_code = 43


class TemplateError(SlurmwrapError):
    """A template that can't be rendered with the parameters it was given."""

    exit_code = 50


class SubmitError(SlurmwrapError):
    """sbatch refused the job, or the job can't be submitted as asked."""

    exit_code = 51


class StagingError(SlurmwrapError):
    """Data could not be staged to the node."""

    exit_code = 60


class NoRoomError(StagingError):
    """The node-local file system has too little room for what should be staged."""

    exit_code = 61


class LaunchError(SlurmwrapError):
    """The command's processes can't be started on the nodes of the job."""

    exit_code = 62


class UnhealthyError(SlurmwrapError):
    """A check found something that would silently ruin accounting or evidence."""

    exit_code = 70


class ReaderError(SlurmwrapError):
    """The accelerators of this node can't be read at all."""

    exit_code = 71


class AlreadyRunningError(SlurmwrapError):
    """Another instance of the same service holds the lock."""

    exit_code = 72


class NotifyError(SlurmwrapError):
    """A message could not be delivered; secrets of its target are masked in the words."""

    exit_code = 73


def error_kinds() -> list[type[SlurmwrapError]]:
    """All kinds of error, each class once, ordered by exit code."""
    kinds: list[type[SlurmwrapError]] = []
    queue: list[type[SlurmwrapError]] = [SlurmwrapError]
    while queue:
        kind = queue.pop()
        kinds.append(kind)
        queue.extend(kind.__subclasses__())
    return sorted(kinds, key=lambda kind: (kind.exit_code, kind.__name__))
