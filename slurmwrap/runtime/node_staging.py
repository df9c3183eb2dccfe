"""Staging sources on every node of the job: here in this process, elsewhere by a helper step."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from slurmwrap.errors import StagingError, error_kinds
from slurmwrap.runtime.launch import stage_step, step_environment

FAILED_EVENT = "stage-in-failed"
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class NodeCopy:
    """One source on one node."""

    node: str
    path: str
    is_hit: bool
    detail: str


StageHere = Callable[[str], NodeCopy]
"""Stages one source on this node."""


def failure_event(node: str, source: str, error: StagingError) -> str:
    """The line by which a node's helper says that it failed, and why."""
    return json.dumps(
        {
            "event": FAILED_EVENT,
            "node": node,
            "source": source,
            "kind": type(error).__name__,
            "message": error.message,
            "hint": error.hint,
        }
    )


def stage_on_nodes(
    source: str,
    nodes: Sequence[str],
    *,
    srun: str,
    config_file: Path | None,
    is_cancelled: Callable[[], bool],
) -> dict[str, NodeCopy]:
    """Stage a source on every node of the job at once.

    Args:
        config_file: the settings that this process was told to use, for the helpers too.

    Raises:
        StagingError: at least one node failed, in the kind of the first; all are named.
    """
    settings = [] if config_file is None else ["--config", str(config_file)]
    argv = stage_step(srun, len(nodes), [*settings, "stage", "in", "--json", "--", source])
    copies: dict[str, NodeCopy] = {}
    failures: dict[str, dict[str, object]] = {}
    for line in _run_step(argv, is_cancelled):
        event = _read_event(line)
        node = str(event.get("node"))
        if event.get("event") == "stage-in":
            copies[node] = NodeCopy(
                node, str(event["path"]), bool(event["hit"]), str(event.get("detail", ""))
            )
        elif event.get("event") == FAILED_EVENT:
            failures[node] = event
    if is_cancelled():
        raise StagingError(f"staging of {source!r} was interrupted")
    _check_all(source, nodes, copies, failures)
    return copies


def _check_all(
    source: str,
    nodes: Sequence[str],
    copies: dict[str, NodeCopy],
    failures: dict[str, dict[str, object]],
) -> None:
    silent = [node for node in nodes if node not in copies and node not in failures]
    if not silent and not failures:
        return
    words = [f"{node}: {event['message']}" for node, event in sorted(failures.items())]
    words += [f"{node}: no answer (see what srun says above)" for node in silent]
    good = f"{len(copies)} of {len(nodes)} nodes have {source!r}"
    kinds = {kind.__name__: kind for kind in error_kinds() if issubclass(kind, StagingError)}
    first = next(iter(failures.values()), {})
    kind = kinds.get(str(first.get("kind")), StagingError)
    hint = first.get("hint")
    raise kind(f"{good}; {'; '.join(words)}", hint=str(hint) if hint else None)


def _run_step(argv: list[str], is_cancelled: Callable[[], bool]) -> list[bytes]:
    """The step's lines on stdout; its stderr goes to the job's log as it comes."""
    try:
        process = subprocess.Popen(
            argv,
            env=step_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise StagingError(f"can't start {argv[0]}: {error.strerror}") from error
    ended = threading.Event()

    def stop_when_told() -> None:
        while not ended.wait(_POLL_SECONDS):
            if is_cancelled():
                process.terminate()
                return

    watcher = threading.Thread(target=stop_when_told, name="stage-step", daemon=True)
    watcher.start()
    try:
        output, _ = process.communicate()
    finally:
        ended.set()
        watcher.join()
    return output.splitlines()


def _read_event(line: bytes) -> dict[str, object]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def data_variables(paths: Sequence[str]) -> dict[str, str]:
    """How the command learns where its data lie: SLURMWRAP_DATA is the first."""
    if not paths:
        return {}
    numbered = {f"SLURMWRAP_DATA_{number}": path for number, path in enumerate(paths, 1)}
    return {"SLURMWRAP_DATA": paths[0], **numbered}


PATHS_BY_NODE = "SLURMWRAP_DATA_BY_NODE"
"""JSON of the paths on each node, where they differ between nodes."""


def variables_by_node(paths: dict[str, list[str]]) -> dict[str, str]:
    """The variable with all nodes' paths; empty when they are the same everywhere."""
    different = {tuple(node_paths) for node_paths in paths.values()}
    return {PATHS_BY_NODE: json.dumps(paths)} if len(different) > 1 else {}


def become_task(command: Sequence[str], node: str) -> NoReturn:
    """In a task that srun started: point SLURMWRAP_DATA to this node's copies, then be the command.

    Raises:
        OSError: the command can't be started.
    """
    environment = dict(os.environ)
    text = environment.pop(PATHS_BY_NODE, "")
    if text:
        paths = json.loads(text).get(node)
        if paths is None:
            raise StagingError(f"nothing was staged for node {node!r}")
        environment.update(data_variables(paths))
    os.execvpe(command[0], list(command), environment)
