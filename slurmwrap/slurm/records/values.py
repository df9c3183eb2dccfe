"""Single values as sacct prints them: ids, times, durations, states, resources."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

# What sacct prints for a time that there is none of (source: slurm_make_time_str).
_NO_TIME = frozenset({"", "Unknown", "None", "N/A", "NONE", "0"})
# Beyond this a number is no moment that a calendar can show.
_LAST_MOMENT = 253_402_300_799
_LONGEST_SECONDS = 10**10
_LARGEST_ID = 2**40

_RAW_ID = re.compile(r"[0-9]{1,15}(?:\+[0-9]+)?(?:\.[A-Za-z0-9_+-]+)?")
_SHOWN_ID = re.compile(r"[0-9]{1,15}(?:_[0-9]+|_\[[0-9,:%.\-]*\]|\+[0-9]+)?(?:\.[A-Za-z0-9_+-]+)?")
_ISO_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
    r"(?P<offset>Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_DURATION = re.compile(r"(?:([0-9]+)-)?(?:([0-9]+):)?([0-9]+):([0-9]+)(?:\.[0-9]+)?")
_STATE = re.compile(r"[A-Z][A-Z_]*\+?(?: by .*)?")
_COUNT = re.compile(r"[0-9]{0,19}")
_EXIT_CODE = re.compile(r"(?:[0-9]+:[0-9]+)?")


def is_raw_id(text: str) -> bool:
    """A JobIDRaw, of a job or of a step."""
    return _RAW_ID.fullmatch(text) is not None


def is_shown_id(text: str) -> bool:
    """A JobID as people write it: 12, 12_3, 12_[4-9], 12+1, with a step or without."""
    return _SHOWN_ID.fullmatch(text) is not None


def is_time(text: str) -> bool:
    """A time in one of the forms that parse_moments reads."""
    return text in _NO_TIME or _is_epoch(text) or _ISO_TIME.fullmatch(text) is not None


def is_count(text: str) -> bool:
    """A whole number, or nothing."""
    return _COUNT.fullmatch(text) is not None


def is_duration(text: str) -> bool:
    """``[D-]HH:MM:SS``, nothing, or Slurm's word for a negative one."""
    return text in ("", "INVALID") or _DURATION.fullmatch(text) is not None


def is_state(text: str) -> bool:
    """A state word with its tail, or nothing."""
    return not text or _STATE.fullmatch(text) is not None


def is_exit_code(text: str) -> bool:
    """``code:signal``, or nothing."""
    return _EXIT_CODE.fullmatch(text) is not None


def is_tres(text: str) -> bool:
    """Entries ``name=value`` between commas, or nothing. A cut entry is no entry."""
    return not text or is_tres_list(text)


def is_tres_list(text: str) -> bool:
    """At least one ``name=value``, and nothing else."""
    return all(
        name != "" and separator != "" and value != "" and "=" not in value
        for name, separator, value in (entry.partition("=") for entry in text.split(","))
    )


def _is_epoch(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 12


def parse_state(text: str) -> str:
    """The state word alone: ``CANCELLED by 1001`` is CANCELLED."""
    word, _, _ = text.partition(" ")
    return word.rstrip("+")


def parse_id(text: str) -> int:
    """A raw job id.

    Raises:
        ValueError: not a whole number that Slurm could have given.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > 12 or int(text) > _LARGEST_ID:
        raise ValueError(f"{text[:40]!r} is no job id")
    return int(text)


def parse_seconds(text: str) -> int:
    """Seconds as ElapsedRaw has them.

    Raises:
        ValueError: not a whole number of seconds, or longer than three centuries.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > 12:
        raise ValueError(f"{text[:40]!r} is not a number of seconds")
    seconds = int(text)
    if seconds > _LONGEST_SECONDS:
        raise ValueError(f"{text} seconds are more than three centuries")
    return seconds


def parse_duration_text(text: str) -> int:
    """Whole seconds of ``[D-]HH:MM:SS`` or ``MM:SS``, as Elapsed and Suspended have them.

    Raises:
        ValueError: any other form.
    """
    match = _DURATION.fullmatch(text)
    if match is None or len(text) > 40:
        raise ValueError(f"{text[:40]!r} is not a duration of the form [D-]HH:MM:SS")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total = days * 86400 + hours * 3600 + minutes * 60 + seconds
    if total > _LONGEST_SECONDS:
        raise ValueError(f"{text[:40]} is more than three centuries")
    return total


class MomentParser:
    """Reads times in the three forms that dumps have: epoch, ISO with offset, local."""

    def __init__(self, zone: ZoneInfo | None) -> None:
        self._zone = zone
        # Few hours hold a clock change; over the others the offset from UTC is the same.
        self._hours: dict[str, int | None] = {}

    def parse(self, text: str) -> tuple[int, ...]:
        """The moments that the text can mean, as UTC epoch seconds, earlier first.

        None for ``Unknown`` and its like, two for a local time in the hour that a clock
        change repeats.

        Raises:
            ValueError: no form that is known, or a local time and no zone is given.
        """
        if text in _NO_TIME:
            return ()
        if len(text) == 19 and self._zone is not None:
            hour = text[:13]
            if hour not in self._hours:
                self._hours[hour] = self._plain_hour(hour)
            start = self._hours[hour]
            minutes, seconds = text[14:16], text[17:]
            if (
                start is not None
                and text[13] == text[16] == ":"
                and (minutes + seconds).isascii()
                and minutes.isdecimal()
                and seconds.isdecimal()
                and minutes < "60"
                and seconds < "60"
            ):
                return (start + 60 * int(minutes) + int(seconds),)
        if _is_epoch(text):
            moment = int(text)
            if moment > _LAST_MOMENT:
                raise ValueError(f"{text} is beyond the calendar")
            return (moment,)
        return self._parse_iso(text)

    def _plain_hour(self, hour: str) -> int | None:
        """The moment at which a local hour begins; None when its offset may change within it,
        or it is no hour."""
        try:
            first, last = self._parse_iso(f"{hour}:00"), self._parse_iso(f"{hour}:59")
        except ValueError:
            return None
        is_plain = len(first) == len(last) == 1 and last[0] - first[0] == 59 * 60
        return first[0] if is_plain else None

    def _parse_iso(self, text: str) -> tuple[int, ...]:
        match = _ISO_TIME.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{text[:40]!r} is no time: expected epoch seconds or YYYY-MM-DDTHH:MM:SS"
            )
        try:
            moment = datetime.fromisoformat(text)
            moments = (
                self._place(moment, text) if moment.tzinfo is None else (int(moment.timestamp()),)
            )
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{text!r} is no time: {error}") from None
        if moments[0] < 0 or moments[-1] > _LAST_MOMENT:
            raise ValueError(f"{text!r} is not within 1970 and 9999")
        return moments

    def _place(self, local: datetime, text: str) -> tuple[int, ...]:
        zone = self._zone
        if zone is None:
            raise ValueError(f"{text!r} is local time and no time zone is given")
        candidates: dict[int, None] = {}
        for fold in (0, 1):
            moment = local.replace(tzinfo=zone, fold=fold)
            back = moment.astimezone(UTC).astimezone(zone)
            if back.replace(tzinfo=None) == local:
                candidates[int(moment.timestamp())] = None
        if not candidates:  # an hour that a clock change leaves out: read by the old offset
            candidates[int(local.replace(tzinfo=zone, fold=0).timestamp())] = None
        return tuple(sorted(candidates))
