"""MUNGE credentials: proof of who sent a message, through libmunge.

Only return code 0 counts. A replayed (17) or expired (15) credential still yields its uid
and payload; here it is an error and its payload is never seen.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import ipaddress
from dataclasses import dataclass
from functools import cache
from typing import Any

from slurmwrap.errors import MungeError

# Options of munge_ctx_set/get and special values (source: munge.h of MUNGE 0.5).
_OPT_TTL = 4
_OPT_ADDR4 = 5
_OPT_ENCODE_TIME = 6
_OPT_DECODE_TIME = 7
_OPT_SOCKET = 8
_OPT_UID_RESTRICTION = 9
_ANY_UID = 2**32 - 1

NO_MEMORY = 5
SOCKET_FAILED = 6
TIMED_OUT = 7
EXPIRED = 15
REWOUND = 16
REPLAYED = 17
NOT_AUTHORISED = 18


@dataclass(frozen=True)
class Credential:
    """What a valid credential proves."""

    uid: int
    gid: int
    payload: bytes
    address: str
    """IPv4 address of the host that encoded it."""
    encoded_at: int
    decoded_at: int
    reader_uid: int | None = None
    """The only uid that can decode it; None: anybody can."""


class Munge:
    """One munged, reached by its socket (empty: MUNGE's default). Safe in several threads."""

    def __init__(self, socket: str = "") -> None:
        self._socket = socket.encode()

    def encode(self, payload: bytes, *, reader_uid: int, lifetime_seconds: int = 60) -> str:
        """A credential of the caller that only ``reader_uid`` can decode.

        Raises:
            MungeError: munged is away or refused.
        """
        library = _library()
        context = self._context(library)
        try:
            _set_int(library, context, _OPT_UID_RESTRICTION, reader_uid)
            _set_int(library, context, _OPT_TTL, lifetime_seconds)
            text = ctypes.c_void_p()
            code = library.munge_encode(
                ctypes.byref(text), context, payload, ctypes.c_int(len(payload))
            )
            try:
                if code != 0 or text.value is None:
                    raise _error(library, context, code, "encode")
                return ctypes.string_at(text.value).decode("ascii")
            finally:
                library.free(text)
        finally:
            library.munge_ctx_destroy(context)

    def decode(self, text: str) -> Credential:
        """What the credential proves.

        Raises:
            MungeError: any return code but 0, with the code in ``code``.
        """
        library = _library()
        context = self._context(library)
        payload = ctypes.c_void_p()
        length, uid, gid = ctypes.c_int(), ctypes.c_uint32(), ctypes.c_uint32()
        try:
            code = library.munge_decode(
                _as_c_string(text),
                context,
                ctypes.byref(payload),
                ctypes.byref(length),
                ctypes.byref(uid),
                ctypes.byref(gid),
            )
            try:
                if code != 0:
                    raise _error(library, context, code, "decode")
                data = ctypes.string_at(payload.value, length.value) if payload.value else b""
            finally:
                library.free(payload)
            address = (ctypes.c_ubyte * 4)()
            library.munge_ctx_get(context, _OPT_ADDR4, ctypes.byref(address))
            return Credential(
                uid=uid.value,
                gid=gid.value,
                payload=data,
                address=str(ipaddress.IPv4Address(bytes(address))),
                encoded_at=_get_time(library, context, _OPT_ENCODE_TIME),
                decoded_at=_get_time(library, context, _OPT_DECODE_TIME),
                reader_uid=_get_reader(library, context),
            )
        finally:
            library.munge_ctx_destroy(context)

    def _context(self, library: Any) -> Any:
        context = library.munge_ctx_create()
        if not context:
            raise MungeError("libmunge has no memory for a context")
        if self._socket:
            library.munge_ctx_set(context, _OPT_SOCKET, ctypes.c_char_p(self._socket))
        return context


@cache
def _library() -> Any:
    name = ctypes.util.find_library("munge") or "libmunge.so.2"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise MungeError(
            "libmunge.so.2 can't be loaded",
            hint="install MUNGE's library (Debian: libmunge2, RHEL: munge-libs)",
        ) from error
    library.munge_ctx_create.restype = ctypes.c_void_p
    library.munge_ctx_create.argtypes = []
    library.munge_ctx_destroy.argtypes = [ctypes.c_void_p]
    library.munge_ctx_destroy.restype = None
    # munge_ctx_set and munge_ctx_get are variadic: only the fixed part may be declared.
    library.munge_ctx_set.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.munge_ctx_get.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.munge_ctx_strerror.argtypes = [ctypes.c_void_p]
    library.munge_ctx_strerror.restype = ctypes.c_char_p
    library.munge_strerror.restype = ctypes.c_char_p
    pointer = ctypes.c_void_p
    library.munge_encode.argtypes = [pointer, pointer, ctypes.c_char_p, ctypes.c_int]
    library.munge_decode.argtypes = [ctypes.c_char_p, *[pointer] * 5]
    library.free.argtypes = [pointer]
    library.free.restype = None
    return library


def _as_c_string(text: str) -> bytes:
    """The credential's bytes; text that is no credential must not be cut at a NUL."""
    if not text.isascii() or "\0" in text:
        raise MungeError("not a MUNGE credential: it holds bytes that none can hold")
    return text.strip().encode("ascii")


def _set_int(library: Any, context: Any, option: int, value: int) -> None:
    code = library.munge_ctx_set(context, option, ctypes.c_int(value))
    if code != 0:
        raise _error(library, context, code, "set up")


def _get_time(library: Any, context: Any, option: int) -> int:
    value = ctypes.c_long()
    library.munge_ctx_get(context, option, ctypes.byref(value))
    return value.value


def _get_reader(library: Any, context: Any) -> int | None:
    value = ctypes.c_uint32(_ANY_UID)
    library.munge_ctx_get(context, _OPT_UID_RESTRICTION, ctypes.byref(value))
    return None if value.value == _ANY_UID else value.value


def _error(library: Any, context: Any, code: int, verb: str) -> MungeError:
    words = library.munge_ctx_strerror(context) or library.munge_strerror(code) or b""
    hint = None if code in (EXPIRED, REWOUND, REPLAYED, NOT_AUTHORISED) else "is munged running?"
    return MungeError(
        f"MUNGE could not {verb} a credential: {words.decode(errors='replace')} (code {code})",
        code=code,
        hint=hint,
    )
