"""Every call of the API: who may make it and what answers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from slurmwrap.api import CALLS, Request
from slurmwrap.errors import UnknownNameError, UsageError
from slurmwrap.munge import Credential
from slurmwrapd.authority import Asker, identify
from slurmwrapd.bills import answer_bill
from slurmwrapd.budgets import answer_budgets
from slurmwrapd.health import answer_health
from slurmwrapd.intake import take_events, take_readings
from slurmwrapd.service import Service
from slurmwrapd.status import answer_status

# Calls in which the asker's reach in Slurm decides what they see.
_OF_PEOPLE: dict[str, Callable[[Service, Asker, Any], Struct]] = {
    "push_run_events": take_events,
    "job_status": answer_status,
    "budgets": answer_budgets,
    "bill": answer_bill,
    "health": answer_health,
}


def answer_call(service: Service, credential: Credential, request: Request) -> Struct:
    """The answer to one authenticated request.

    Raises:
        UnknownNameError: no such call.
        UsageError: arguments of another form than the call's.
        SlurmwrapError: what the call itself has against it.
    """
    if request.call not in CALLS:
        raise UnknownNameError("call", request.call, CALLS)
    question_type, _ = CALLS[request.call]
    try:
        question = msgspec.json.decode(request.arguments, type=question_type)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"{request.call}: {error}") from error
    if request.call == "push_readings":
        return take_readings(service, credential, question)  # type: ignore[arg-type]
    return _OF_PEOPLE[request.call](service, identify(service, credential), question)
