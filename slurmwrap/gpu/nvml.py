"""NVIDIA cards through the vendor's library, by way of its own binding pynvml.

The library is thread-safe, needs no root, and answers each call with a code of its own, so
one broken card does not hide the others. Function names differ between versions of binding
and driver: what is not there is "not supported".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from slurmwrap.errors import ReaderError
from slurmwrap.gpu.indexing import Device, index_cards
from slurmwrap.gpu.plausibility import doubt
from slurmwrap.gpu.reader import CardIdentity, CardRead, DriverProcess
from slurmwrap.model import ReadStatus

# Return codes of NVML (source: nvmlReturn_t of nvml.h).
_STATUS_OF_CODE = {
    3: ReadStatus.NOT_SUPPORTED,
    4: ReadStatus.NO_PERMISSION,
    11: ReadStatus.LOST,  # no interrupts arrive
    12: ReadStatus.NOT_SUPPORTED,  # function not found in this library
    15: ReadStatus.LOST,  # fell off the bus
    16: ReadStatus.LOST,  # reset required
    25: ReadStatus.NOT_SUPPORTED,  # structure version unknown to this driver
    26: ReadStatus.NOT_SUPPORTED,  # deprecated
    28: ReadStatus.LOST,  # GPU not found
    999: ReadStatus.LOST,  # unknown error
}
_SM_CLOCK = 1
_CORE_TEMPERATURE = 0
_UNCORRECTED = 1
_VOLATILE = 0


class _Question(NamedTuple):
    """One call of the library and the fields it fills."""

    fields: tuple[str, ...]
    functions: tuple[str, ...]
    """Names to try, newest first."""
    arguments: tuple[int, ...]
    pick: Callable[[Any], tuple[Any, ...]]


def _itself(answer: Any) -> tuple[Any, ...]:
    return (answer,)


_UTILISATION = _Question(
    ("utilisation",), ("nvmlDeviceGetUtilizationRates",), (), lambda answer: (answer.gpu,)
)
_EVERY_TIME = (
    _Question(
        ("memory_total_bytes", "memory_used_bytes"),
        ("nvmlDeviceGetMemoryInfo",),
        (),
        lambda answer: (answer.total, answer.used),
    ),
    _Question(("power_milliwatts",), ("nvmlDeviceGetPowerUsage",), (), _itself),
)
_WHEN_FULLY = (
    _Question(("energy_millijoules",), ("nvmlDeviceGetTotalEnergyConsumption",), (), _itself),
    _Question(
        ("temperature_celsius",), ("nvmlDeviceGetTemperature",), (_CORE_TEMPERATURE,), _itself
    ),
    _Question(("sm_clock_mhz",), ("nvmlDeviceGetClockInfo",), (_SM_CLOCK,), _itself),
    _Question(
        ("ecc_uncorrected",), ("nvmlDeviceGetTotalEccErrors",), (_UNCORRECTED, _VOLATILE), _itself
    ),
    _Question(
        ("processes",),
        (
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetComputeRunningProcesses_v2",
            "nvmlDeviceGetComputeRunningProcesses",
        ),
        (),
        lambda answer: (_processes(answer),),
    ),
)


class NvmlReader:
    """A GpuReader over libnvidia-ml.so.1."""

    def __init__(
        self,
        *,
        explicit_minors: Sequence[int] = (),
        remembered: Sequence[CardIdentity] = (),
    ) -> None:
        """``remembered``: the cards of an earlier process since the same boot."""
        self._explicit_minors = tuple(explicit_minors)
        self._remembered = tuple(remembered)
        self._library: Any = None
        self._handles: dict[int, Any] = {}
        self._sliced: frozenset[int] = frozenset()
        self._fault = "the driver was not asked yet"
        self._listing = threading.Lock()

    def list_cards(self) -> tuple[CardIdentity, ...]:
        """See GpuReader. Opens the library when it is not open."""
        with self._listing:
            try:
                cards = self._list()
            except ReaderError as error:
                self._fault = error.message
                self.close()
                raise
        self._remembered = cards
        return cards

    def read(self, card: CardIdentity, *, fully: bool) -> CardRead:
        """See GpuReader."""
        questions = (*_EVERY_TIME, *_WHEN_FULLY) if fully else _EVERY_TIME
        handle = self._handles.get(card.index)
        if handle is None or card.status is not ReadStatus.OK:
            status = ReadStatus.NO_ANSWER if card.status is ReadStatus.OK else card.status
            return CardRead(
                status=status,
                missing=_all_missing((_UTILISATION, *questions), status),
                error=card.error or self._fault,
            )
        values: dict[str, Any] = {}
        missing: dict[str, ReadStatus] = {}
        if card.index in self._sliced:
            # The counter belongs to the whole device, whatever a driver may answer here.
            errors = ["the driver keeps no utilisation in MIG mode"]
            missing["utilisation"] = ReadStatus.NOT_SUPPORTED
        else:
            errors = self._ask(_UTILISATION, handle, values, missing)
            if missing.get("utilisation") is ReadStatus.LOST:
                return CardRead(
                    status=ReadStatus.LOST,
                    missing=_all_missing((_UTILISATION, *questions), ReadStatus.LOST),
                    error=errors[0],
                )
        for question in questions:
            errors += self._ask(question, handle, values, missing)
        _compare_memory(values, missing, errors)
        return CardRead(
            status=missing.get("utilisation", ReadStatus.OK),
            missing=missing,
            error=errors[0] if errors else "",
            **values,
        )

    def close(self) -> None:
        """See GpuReader. Never raises: there is nothing left to do about it."""
        library, self._library = self._library, None
        self._handles = {}
        if library is None:
            return
        try:
            library.nvmlShutdown()
        except library.NVMLError as error:
            self._fault = f"the driver would not be closed: {_words(error)}"

    def _list(self) -> tuple[CardIdentity, ...]:
        library = self._opened_library()
        try:
            count = library.nvmlDeviceGetCount()
        except library.NVMLError as error:
            raise ReaderError(f"the NVIDIA driver lists no cards: {_words(error)}") from error
        found = [_look_at(library, position) for position in range(count)]
        cards = index_cards(
            [device for device, _ in found],
            explicit_minors=self._explicit_minors,
            remembered=self._remembered,
        )
        handles: dict[int, Any] = {}
        sliced: set[int] = set()
        for card in cards:
            if card.position is None:
                continue
            whole, slices, has_mig = found[card.position][1]
            handles[card.index] = whole if card.slice_number is None else slices[card.slice_number]
            if has_mig:
                sliced.add(card.index)
        self._sliced = frozenset(sliced)
        self._handles = {index: handle for index, handle in handles.items() if handle is not None}
        return cards

    def _opened_library(self) -> Any:
        if self._library is not None:
            return self._library
        import pynvml  # 8,000 lines: only who reads cards pays for them

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise ReaderError(
                f"the NVIDIA driver can't be reached: {_words(error)}",
                hint="`nvidia-smi` tells more; after a driver upgrade the modules must be"
                " loaded again",
            ) from error
        self._library = pynvml
        return pynvml

    def _ask(
        self,
        question: _Question,
        handle: Any,
        values: dict[str, Any],
        missing: dict[str, ReadStatus],
    ) -> list[str]:
        """Fill in the question's fields; the words for those that stay missing."""
        library = self._library
        try:
            answer = question.pick(_call(library, question, handle))
        except _UnavailableError as error:
            missing.update(dict.fromkeys(question.fields, error.status))
            return [error.words]
        errors: list[str] = []
        for field, value in zip(question.fields, answer, strict=True):
            reason = doubt(field, value) if isinstance(value, int) else ""
            if reason:
                missing[field] = ReadStatus.NO_ANSWER
                errors.append(reason)
            else:
                values[field] = value
        return errors


class _UnavailableError(Exception):
    """A call that gave no value."""

    def __init__(self, status: ReadStatus, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


def _call(library: Any, question: _Question, handle: Any) -> Any:
    """The answer of the first of the question's functions that this library has."""
    words = f"this driver has no {question.functions[0]}"
    if library is None:
        raise _UnavailableError(ReadStatus.NO_ANSWER, "the driver was closed meanwhile")
    for name in question.functions:
        function = getattr(library, name, None)
        if function is None:
            continue
        try:
            return function(handle, *question.arguments)
        except library.NVMLError as error:
            if error.value == 12:  # this version of the function is missing: try the older one
                continue
            raise _UnavailableError(_status(error), _words(error)) from error
    raise _UnavailableError(ReadStatus.NOT_SUPPORTED, words)


def _look_at(library: Any, position: int) -> tuple[Device, tuple[Any, list[Any], bool]]:
    """A device of the driver's list with its handle, the handles of its slices, and MIG mode."""
    try:
        handle = library.nvmlDeviceGetHandleByIndex(position)
    except library.NVMLError as error:
        device = Device(position=position, minor=None, status=_lost(error), error=_words(error))
        return device, (None, [], False)
    try:
        minor = library.nvmlDeviceGetMinorNumber(handle)
    except library.NVMLError as error:
        status = _status(error)
        if status is not ReadStatus.NOT_SUPPORTED:
            device = Device(position=position, minor=None, status=_lost(error), error=_words(error))
            return device, (None, [], False)
        minor = None
    slice_handles = _slices(library, handle)
    slices = slice_handles or []
    device = Device(
        position=position,
        minor=minor,
        uuid=_text(library, "nvmlDeviceGetUUID", handle),
        name=_text(library, "nvmlDeviceGetName", handle),
        slices=tuple(
            (_text(library, "nvmlDeviceGetUUID", one), _text(library, "nvmlDeviceGetName", one))
            for one in slices
        ),
    )
    return device, (handle, slices, slice_handles is not None)


def _slices(library: Any, handle: Any) -> list[Any] | None:
    """Handles of a device's MIG slices; None: MIG is off or unknown to the device."""
    if not hasattr(library, "nvmlDeviceGetMigMode"):
        return None
    try:
        if library.nvmlDeviceGetMigMode(handle)[0] != 1:
            return None
        most = library.nvmlDeviceGetMaxMigDeviceCount(handle)
    except library.NVMLError:
        return None
    found: list[Any] = []
    for number in range(most):
        try:
            found.append(library.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
        except library.NVMLError:
            continue  # numbers without a slice are answered with "not found"
    return found


def _text(library: Any, function: str, handle: Any) -> str:
    """A device's own words; empty when it has none."""
    try:
        answer = getattr(library, function)(handle)
    except library.NVMLError:
        return ""
    return answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)


def _processes(answer: Sequence[Any]) -> tuple[DriverProcess, ...]:
    return tuple(
        DriverProcess(pid=process.pid, memory_bytes=process.usedGpuMemory) for process in answer
    )


def _compare_memory(
    values: dict[str, Any], missing: dict[str, ReadStatus], errors: list[str]
) -> None:
    """More memory used than there is: neither number can be believed."""
    used, total = values.get("memory_used_bytes"), values.get("memory_total_bytes")
    if used is None or total is None or used <= total:
        return
    for field in ("memory_used_bytes", "memory_total_bytes"):
        del values[field]
        missing[field] = ReadStatus.NO_ANSWER
    errors.append(f"memory_used_bytes {used} is more than the card's {total}")


def _all_missing(questions: Sequence[_Question], status: ReadStatus) -> dict[str, ReadStatus]:
    return {field: status for question in questions for field in question.fields}


def _status(error: Any) -> ReadStatus:
    return _STATUS_OF_CODE.get(error.value, ReadStatus.NO_ANSWER)


def _lost(error: Any) -> ReadStatus:
    """A device that can't even be found is lost, unless we may not look at it."""
    status = _status(error)
    return status if status is ReadStatus.NO_PERMISSION else ReadStatus.LOST


def _words(error: Any) -> str:
    return f"{error} (NVML error {error.value})"
