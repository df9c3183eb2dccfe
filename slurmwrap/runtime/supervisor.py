"""The job's supervisor: stage in, run the command, report, and end with the command's status."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from slurmwrap.clock import Clock
from slurmwrap.errors import StagingError
from slurmwrap.model import Phase, WatchedMetric
from slurmwrap.runtime.identity import JobIdentity
from slurmwrap.runtime.job_folder import JobFolder
from slurmwrap.runtime.metrics import VARIABLE as METRICS_VARIABLE
from slurmwrap.runtime.node_staging import NodeCopy, data_variables, variables_by_node
from slurmwrap.runtime.processes import CommandProcess, SignalInbox, start_failure

_LEFTOVER_GRACE_SECONDS = 5.0
# After a request to end, Slurm itself kills what is left (KillWait, 30 s by default).
_STOPPED_GRACE_SECONDS = 25.0
_LAST_REPORT_SECONDS = 3.0
_LONGEST_DETAIL = 500
# Of one run the daemon keeps 500 phases; staging begins and ends on all nodes at once.
_NODES_NAMED = 100
_SIGNALS_REPORTED = 100
_TO_GROUP = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCONT})
_ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_ON_REQUEST = frozenset({signal.SIGUSR1, signal.SIGUSR2})
_OUR_VARIABLE = re.compile(rf"SLURMWRAP_DATA(_\d+|_BY_NODE)?|{METRICS_VARIABLE}")


class Reporter(Protocol):
    """Where the supervisor's events go."""

    def start(self) -> None: ...

    def note_phases(self, phases: list[Phase]) -> None: ...

    def finish(self, timeout_seconds: float) -> bool: ...


class SilentReporter:
    """Outside a job nobody asks for events."""

    def start(self) -> None:
        pass

    def note_phases(self, phases: list[Phase]) -> None:
        pass

    def finish(self, timeout_seconds: float) -> bool:
        return True


@dataclass(frozen=True)
class RunPlan:
    """What the supervisor shall do."""

    command: tuple[str, ...]
    """As typed."""
    sources: tuple[str, ...] = ()
    watch: WatchedMetric | None = None
    forwarded: frozenset[signal.Signals] = field(default_factory=frozenset)
    """Of USR1 and USR2: a program without a handler dies of them."""


StageSource = Callable[[str, Callable[[], bool]], dict[str, NodeCopy]]
"""(source, is_cancelled) → the copies per node."""


PrepareStart = Callable[[Sequence[str], dict[str, str]], tuple[list[str], dict[str, str]]]
"""(command, environment) → the argument list and environment of the process to start."""


class Supervisor:
    """Runs one command inside a job.

    Args:
        nodes: the nodes whose phases are reported.
        stage: stages one source on all of them.
        prepare_start: what to start for the command; asked after staging.
        make_reporter: given the metrics file.
        talk: a line for the job's log.
    """

    def __init__(
        self,
        plan: RunPlan,
        identity: JobIdentity,
        nodes: Sequence[str],
        *,
        stage: StageSource,
        prepare_start: PrepareStart,
        make_reporter: Callable[[Path], Reporter],
        clock: Clock,
        talk: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._identity = identity
        self._nodes = tuple(nodes)
        self._stage = stage
        self._prepare_start = prepare_start
        self._make_reporter = make_reporter
        self._clock = clock
        self._talk = talk
        self._reporter: Reporter = SilentReporter()
        self._stop_signal: signal.Signals | None = None
        self._signals = 0
        self._phases: dict[str, int] = {}
        self._here = {identity.node: ""}
        """The command itself is of this node; only staging happens on all."""

    @property
    def was_asked_to_end(self) -> bool:
        """Whether a signal told us to end, rather than the command ending by itself."""
        return self._stop_signal is not None

    def run(self) -> int:
        """The command's exit status, 128+n when signal n ended it.

        Raises:
            SlurmwrapError: its data could not be staged, or its processes not be launched; then
                the command has not run.
        """
        folder = self._make_folder()
        metrics = None if folder is None else folder.path / "metrics.jsonl"
        inbox = SignalInbox()
        try:
            self._reporter = self._make_reporter(metrics or Path(os.devnull))
            self._reporter.start()
            return self._stage_and_run(inbox, metrics)
        finally:
            self._report_end()
            inbox.close()
            if folder is not None:
                folder.remove()

    def _make_folder(self) -> JobFolder | None:
        try:
            return JobFolder(self._identity, os.environ.get("SLURM_CONF", ""))
        except OSError as error:
            # A full /tmp is no reason to end a job.
            self._talk(f"can't make a folder for metrics ({error.strerror}): they are not kept")
            return None

    def _stage_and_run(self, inbox: SignalInbox, metrics: Path | None) -> int:
        copies: list[dict[str, NodeCopy]] = []
        if self._plan.sources:
            sources = ", ".join(self._plan.sources)
            self._begin("staging", _by_place(dict.fromkeys(self._nodes, sources)))
            try:
                copies = self._stage_all(inbox)
            finally:
                details = {node: _details(copies, node) for node in self._nodes}
                self._end("staging", _by_place(details))
            if self._stop_signal is not None:
                return 128 + self._stop_signal
        try:
            environment = self._environment(copies, metrics)
            argv, environment = self._prepare_start(self._plan.command, environment)
            process = CommandProcess(argv, environment)
        except OSError as error:
            status, words = start_failure(error, argv[0])
            self._talk(words)
            return status
        self._begin("running", self._here)
        try:
            return self._watch_over(process, inbox)
        finally:
            self._end("running", self._here)

    def _stage_all(self, inbox: SignalInbox) -> list[dict[str, NodeCopy]]:
        """Stage in a thread, so that signals are heard meanwhile."""
        copies: list[dict[str, NodeCopy]] = []
        failure: list[BaseException] = []
        cancelled = threading.Event()

        def stage() -> None:
            try:
                for source in self._plan.sources:
                    copies.append(self._stage(source, cancelled.is_set))
            except BaseException as error:  # noqa: BLE001 - raised again in the main thread
                failure.append(error)
            finally:
                inbox.wake()

        thread = threading.Thread(target=stage, name="staging")
        thread.start()
        while thread.is_alive():
            for number in inbox.wait():
                self._note_signal(number)
            if self._stop_signal is not None:
                cancelled.set()
        if failure and not (self._stop_signal and isinstance(failure[0], StagingError)):
            raise failure[0]
        return copies

    def _watch_over(self, process: CommandProcess, inbox: SignalInbox) -> int:
        while (status := process.poll()) is None:
            for number in inbox.wait():
                self._note_signal(number)
                if number in _TO_GROUP:
                    process.signal_group(number)
                elif number in self._plan.forwarded:
                    process.signal_command(number)
        # Slurm signals the whole batch step: the command may have ended of it before we looked.
        for number in inbox.wait(0):
            self._note_signal(number)
        was_stopped = self._stop_signal is not None
        process.end_leftovers(
            _STOPPED_GRACE_SECONDS if was_stopped else _LEFTOVER_GRACE_SECONDS, self._talk
        )
        return status

    def _note_signal(self, number: signal.Signals) -> None:
        if number in _ENDING:
            if self._stop_signal is None:
                self._talk(f"asked to end ({number.name})")
            self._stop_signal = self._stop_signal or number
        elif number in _ON_REQUEST:
            words = "the time limit is near" if number is signal.SIGUSR1 else "a signal came"
            told = "told to" if number in self._plan.forwarded else "kept from"
            self._talk(f"{words} ({number.name}); it is {told} the command")
            self._signals += 1
            if self._signals > _SIGNALS_REPORTED:
                return
            now = self._clock.now()
            self._reporter.note_phases(
                [
                    Phase(
                        name="signalled",
                        node=self._identity.node,
                        started_at=now,
                        ended_at=now,
                        detail=number.name,
                    )
                ]
            )

    def _environment(
        self, copies: list[dict[str, NodeCopy]], metrics: Path | None
    ) -> dict[str, str]:
        """The command's environment: ours, with what it may want to know."""
        environment = {
            name: value for name, value in os.environ.items() if not _OUR_VARIABLE.fullmatch(name)
        }
        if metrics is not None:
            environment[METRICS_VARIABLE] = str(metrics)
        paths = {node: [copy[node].path for copy in copies] for node in self._nodes}
        environment.update(data_variables(paths[self._nodes[0]]))
        environment.update(variables_by_node(paths))
        return environment

    def _begin(self, name: str, details: dict[str, str]) -> None:
        self._phases[name] = self._clock.now()
        self._note(name, None, details)

    def _end(self, name: str, details: dict[str, str]) -> None:
        self._note(name, self._clock.now(), details)

    def _note(self, name: str, ended_at: int | None, details: dict[str, str]) -> None:
        self._reporter.note_phases(
            [
                Phase(
                    name=name,
                    node=node,
                    started_at=self._phases[name],
                    ended_at=ended_at,
                    detail=detail[:_LONGEST_DETAIL],
                )
                for node, detail in details.items()
            ]
        )

    def _report_end(self) -> None:
        """Say that the run ends; a daemon that is away must not keep the cards busy."""
        self._begin("ending", self._here)
        self._end("ending", self._here)
        self._reporter.finish(_LAST_REPORT_SECONDS)


def _details(copies: list[dict[str, NodeCopy]], node: str) -> str:
    return "; ".join(copy[node].detail for copy in copies if node in copy)


def _by_place(details: dict[str, str]) -> dict[str, str]:
    """A phase's words per node, or for all of very many together: their times are the same."""
    if len(details) <= _NODES_NAMED:
        return details
    return {f"{len(details)} nodes": f"first node: {next(iter(details.values()))}"}
