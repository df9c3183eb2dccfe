"""The messages that commands, agents and jobs exchange with slurmwrapd, and the client.

A request is one MUNGE credential that carries the whole message and that only the daemon's
user can read; the answer is one credential that only the asker can read. So both sides are
authenticated and the text is encrypted by MUNGE itself.
"""

from __future__ import annotations

import os
import pwd
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from slurmwrap.config import Config
from slurmwrap.display import one_line
from slurmwrap.errors import (
    DaemonUnavailableError,
    MungeError,
    SlurmwrapError,
    error_kinds,
)
from slurmwrap.model import CardReading, MetricPoint, Phase, RunKey, WatchedMetric
from slurmwrap.munge import Munge

CALL_PATH = "/v1/call"
MAX_MESSAGE_BYTES = 512 * 1024
MAX_CREDENTIAL_BYTES = MAX_MESSAGE_BYTES * 4 // 3 + 4096
"""base64 of the sealed message; MUNGE adds less than a kilobyte of its own."""
CREDENTIAL_LIFETIME_SECONDS = 60
# A whole message as the result within an answer.
_MAX_ANSWER_BYTES = (MAX_MESSAGE_BYTES + 4096) * 4 // 3 + 4096


class Request(Struct, frozen=True, kw_only=True):
    """What a credential to the daemon carries."""

    call: str
    """One of the names in CALLS."""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    """JSON of the call's message type."""
    nonce: str = ""
    """Made up by the asker for this request alone."""


class Failure(Struct, frozen=True, kw_only=True):
    """An error of the other side, in the form that raises the same kind here."""

    kind: str
    exit_code: int
    message: str
    hint: str | None = None


class Response(Struct, frozen=True, kw_only=True):
    """What a credential from the daemon carries: a result or a failure."""

    result: msgspec.Raw = msgspec.Raw(b"{}")
    """JSON of the call's answer type. No optional: msgspec reads ``Raw | None`` as null only."""
    failure: Failure | None = None
    nonce: str = ""
    """The request's: MUNGE alone does not say which of a user's questions was answered."""


class Readings(Struct, frozen=True, kw_only=True):
    """push_readings: what an agent saw on its node. Sent again, it changes nothing."""

    node: str
    boot_id: str = ""
    readings: tuple[CardReading, ...]
    dropped_messages: int = 0
    """Messages that the agent's spool had to drop so far: a known gap."""
    error: str = ""
    """Why the node's cards can't be listed at all, in the driver's words; empty when they can."""


class RunEvents(Struct, frozen=True, kw_only=True):
    """push_run_events: what a job's supervisor publishes. Sent again, it changes nothing."""

    run: RunKey
    """A start of 0 means: the run of this job that is on nodes now. The supervisor sends it
    when Slurm did not tell it the start; the daemon then finds the run by slurmctld's list."""
    phases: tuple[Phase, ...] = ()
    metrics: tuple[MetricPoint, ...] = ()
    watch: WatchedMetric | None = None


class RunWarnings(Struct, frozen=True, kw_only=True):
    """Answer to push_run_events: warnings that the supervisor prints in the job's own log."""

    warnings: tuple[str, ...] = ()


class StatusQuestion(Struct, frozen=True, kw_only=True):
    """job_status: one job as the user writes it (12, 12_3), or all of the asker's."""

    job: str = ""
    user: str = ""
    """Another user's jobs: administrators and coordinators only."""
    ended_within_seconds: int = 86400


class CardStatus(Struct, frozen=True, kw_only=True):
    """One card of a run, as `slurmwrap status` shows it."""

    node: str
    index: int
    gpu_type: str
    recent: tuple[float | None, ...]
    """Mean utilisation per slot of ``recent_slot_seconds``, oldest first; None: unknown."""
    mean: float | None
    """Over what was measured."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    status: str = ""
    """Status of the newest reading; empty when there is none."""
    last_reading_at: int | None = None


class RuleView(Struct, frozen=True, kw_only=True):
    """What a rule thinks of a run, in words."""

    rule: str
    mode: str
    text: str
    warned_at: int | None = None
    cancel_at: int | None = None


class JobStatus(Struct, frozen=True, kw_only=True):
    """One run as `slurmwrap status` shows it."""

    run: RunKey
    action_id: str
    name: str
    user: str
    account: str
    partition: str
    state: str
    nodes: tuple[str, ...]
    ended_at: int | None
    time_limit_seconds: int | None
    cards: tuple[CardStatus, ...]
    recent_slot_seconds: int
    card_seconds: int
    measured_card_seconds: int
    """Card-seconds for which there is a good reading."""
    gaps: tuple[tuple[int, int], ...]
    """Stretches ``[from, to)`` in which at least one card was not seen."""
    cost: str | None
    """Decimal text; None: no price."""
    currency: str
    phases: tuple[Phase, ...] = ()
    metrics: dict[str, tuple[tuple[int, float], ...]] = {}
    """Per metric its newest (step, value) pairs."""
    rules: tuple[RuleView, ...] = ()
    end_reason: str = ""


class StatusAnswer(Struct, frozen=True, kw_only=True):
    """Answer to job_status."""

    now: int
    jobs: tuple[JobStatus, ...]
    truncated: bool = False


class BudgetQuestion(Struct, frozen=True, kw_only=True):
    """budgets: those that the asker's own use counts against, or may see."""

    account: str = ""


class BudgetStatus(Struct, frozen=True, kw_only=True):
    """One budget in its current period. Amounts are decimal text."""

    account: str
    user: str
    period: str
    period_start: int
    period_end: int
    unit: str
    """``card-hours`` or the currency."""
    limit: str
    settled: str
    in_flight: str
    committed: str
    """Time limit still to come of what runs."""
    left: str
    """limit - settled - in_flight."""
    used_percent: float
    alerts: tuple[tuple[int, int], ...] = ()
    """(threshold, sent at)."""


class BudgetAnswer(Struct, frozen=True, kw_only=True):
    """Answer to budgets."""

    now: int
    timezone: str
    budgets: tuple[BudgetStatus, ...]


class BillQuestion(Struct, frozen=True, kw_only=True):
    """bill: a page of the statement of a month."""

    month: str
    """``2026-11``, in the billing time zone."""
    account: str = ""
    user: str = ""
    offset: int = 0


class BillAnswer(Struct, frozen=True, kw_only=True):
    """Answer to bill: a page of the statement, in the JSON form of docs/commands/bill.md."""

    statement: msgspec.Raw
    next_offset: int | None = None


class HealthCheck(Struct, frozen=True, kw_only=True):
    """One line of `slurmwrapd check` and /readyz."""

    name: str
    ok: bool
    detail: str
    hint: str = ""


class HealthAnswer(Struct, frozen=True, kw_only=True):
    """Answer to health."""

    ready: bool
    checks: tuple[HealthCheck, ...]


class Nothing(Struct, frozen=True):
    """A message without fields."""


CALLS: dict[str, tuple[type[Struct], type[Struct]]] = {
    "push_readings": (Readings, Nothing),
    "push_run_events": (RunEvents, RunWarnings),
    "job_status": (StatusQuestion, StatusAnswer),
    "budgets": (BudgetQuestion, BudgetAnswer),
    "bill": (BillQuestion, BillAnswer),
    "health": (Nothing, HealthAnswer),
}
"""Every call: what is asked and what is answered."""

Answer = TypeVar("Answer", bound=Struct)


class Client:
    """Asks slurmwrapd on behalf of the calling process's user."""

    def __init__(self, config: Config) -> None:
        self._url = config.daemon.url.rstrip("/") + CALL_PATH
        self._daemon_user = config.daemon.user
        self._timeout_seconds = config.daemon.request_timeout
        self._munge = Munge(config.munge.socket)
        self._pool: Any = None

    def call(self, name: str, question: Struct, answer_type: type[Answer]) -> Answer:
        """The daemon's answer.

        Raises:
            DaemonUnavailableError: no answer, or none that the daemon's user signed for us.
            MungeError: our munged is away.
            SlurmwrapError: what the daemon says went wrong, in its own kind.
        """
        arguments = msgspec.Raw(msgspec.json.encode(question))
        nonce = os.urandom(16).hex()
        message = msgspec.json.encode(Request(call=name, arguments=arguments, nonce=nonce))
        if len(message) > MAX_MESSAGE_BYTES:
            raise DaemonUnavailableError(
                f"a {name} message of {len(message)} bytes is over the limit of {MAX_MESSAGE_BYTES}"
            )
        credential = self._munge.encode(
            message,
            reader_uid=self._daemon_uid(),
            lifetime_seconds=CREDENTIAL_LIFETIME_SECONDS,
        )
        return self._open(name, nonce, self._post(credential), answer_type)

    def _daemon_uid(self) -> int:
        try:
            return pwd.getpwnam(self._daemon_user).pw_uid
        except KeyError:
            raise DaemonUnavailableError(
                f"user {self._daemon_user!r}, which slurmwrapd runs as, does not exist here",
                hint="set daemon.user in slurmwrap.toml",
            ) from None

    def _post(self, credential: str) -> str:
        import urllib3  # heavy: only commands that talk to the daemon pay for it

        if self._pool is None:
            self._pool = urllib3.PoolManager(
                timeout=float(self._timeout_seconds),
                retries=urllib3.Retry(connect=1, read=0, redirect=0),
            )
        try:
            response = self._pool.request(
                "POST", self._url, body=credential.encode("ascii"), preload_content=False
            )
            # Whoever answers: never more is kept than an answer can have.
            data = response.read(_MAX_ANSWER_BYTES + 1)
            if len(data) <= _MAX_ANSWER_BYTES:
                response.release_conn()
            else:
                response.close()
        except urllib3.exceptions.HTTPError as error:
            raise DaemonUnavailableError(
                f"slurmwrapd does not answer at {self._url}: {_innermost(error)}",
                hint="an administrator starts it with `systemctl start slurmwrapd`",
            ) from error
        if response.status != 200:
            detail = one_line(data.decode(errors="replace").strip(), width=200)
            raise DaemonUnavailableError(
                f"slurmwrapd at {self._url} refused the request: HTTP {response.status} {detail}"
            )
        if len(data) > _MAX_ANSWER_BYTES:
            raise DaemonUnavailableError(
                f"the answer from {self._url} is longer than any of slurmwrapd's",
                hint="is another program listening on that port?",
            )
        text: str = data.decode("ascii", errors="replace")
        return text

    def _open(self, name: str, nonce: str, text: str, answer_type: type[Answer]) -> Answer:
        try:
            credential = self._munge.decode(text)
        except MungeError as error:
            raise DaemonUnavailableError(
                f"the answer from {self._url} is no credential for uid {os.getuid()}: {error}",
                hint="is another program listening on that port?",
            ) from error
        if credential.uid != self._daemon_uid():
            raise DaemonUnavailableError(
                f"the answer from {self._url} was signed by uid {credential.uid},"
                f" not by {self._daemon_user!r}"
            )
        try:
            response = msgspec.json.decode(credential.payload, type=Response)
            if response.nonce != nonce:
                raise DaemonUnavailableError(
                    f"the answer from {self._url} belongs to another request than this {name}",
                    hint="did something between here and slurmwrapd send an older answer again?",
                )
            if response.failure is not None:
                raise rebuild_error(response.failure)
            return msgspec.json.decode(response.result, type=answer_type)
        except msgspec.MsgspecError as error:
            raise DaemonUnavailableError(
                f"the answer of slurmwrapd at {self._url} to {name} can't be read: {error}",
                hint="do slurmwrapd and this command have the same version?",
            ) from error


def describe_failure(error: SlurmwrapError) -> Failure:
    """An error in the form that travels."""
    return Failure(
        kind=type(error).__name__,
        exit_code=error.exit_code,
        message=error.message,
        hint=error.hint,
    )


def rebuild_error(failure: Failure) -> SlurmwrapError:
    """The error of the other side with its own kind and exit code, its words unchanged."""
    kinds = {kind.__name__: kind for kind in error_kinds()}
    kind = kinds.get(failure.kind, SlurmwrapError)
    error = kind.__new__(kind)
    SlurmwrapError.__init__(error, failure.message, hint=failure.hint)
    return error


def _innermost(error: BaseException) -> BaseException:
    """The cause that a person can act on, under the pool's own wrappers."""
    reason = getattr(error, "reason", None)
    return _innermost(reason) if isinstance(reason, BaseException) else error
