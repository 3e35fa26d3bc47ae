"""The TLS session of a connection of libpq's, read for a whole buffer at once.

A walsender sends each message in a TLS record of its own, and OpenSSL gives one record for each SSL_read: a call from
Python for each would cost what libpq's call for each message costs. OpenSSL's own buffering filter in front of the
session asks it again and again until the buffer is full or nothing more is there, and that in one call, during which
Python's other threads run. The session also reads ahead: one recv brings many records, where libpq does two for each.

libpq's session is OpenSSL's ``SSL``; PQsslStruct hands it out. What works on it must be the very OpenSSL that made it:
the functions are taken from what the loaded libpq has loaded, and from there only if libpq itself names that library.

Source: PostgreSQL documentation, "libpq: Connection Status Functions" (PQsslStruct); OpenSSL manual, BIO_f_buffer(3),
BIO_f_ssl(3), BIO_should_retry(3), SSL_CTX_set_read_ahead(3); buffer_read in crypto/bio/bf_buff.c, which reads into
what is larger than its own buffer directly, and goes on until that is full.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any, Final

from wal2lake.postgres.errors import connection_lost

_SET_SSL: Final = 109  # BIO_C_SET_SSL; the functions named like macros are such
_SHOULD_RETRY: Final = 8  # BIO_FLAGS_SHOULD_RETRY
_FILTER_BYTES: Final = 4096  # of BIO_f_buffer: only what is larger is filled in one call
_FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "BIO_new": (ctypes.c_void_p, (ctypes.c_void_p,)),
    "BIO_f_ssl": (ctypes.c_void_p, ()),
    "BIO_f_buffer": (ctypes.c_void_p, ()),
    "BIO_push": (ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_void_p)),
    "BIO_ctrl": (ctypes.c_long, (ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p)),
    "BIO_read": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)),
    "BIO_write": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)),
    "BIO_test_flags": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)),
    "BIO_free_all": (None, (ctypes.c_void_p,)),
    "ERR_clear_error": (None, ()),
    "SSL_set_read_ahead": (None, (ctypes.c_void_p, ctypes.c_int)),
    "SSL_set_quiet_shutdown": (None, (ctypes.c_void_p, ctypes.c_int)),
    "SSL_set_shutdown": (None, (ctypes.c_void_p, ctypes.c_int)),
}


class _Place(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class Tls:
    """A Transport (transport.py) over ``session``, an ``SSL *`` of ``openssl``'s that stays libpq's."""

    def __init__(self, openssl: ctypes.CDLL, session: int) -> None:
        self._openssl, self._ssl = openssl, session
        openssl.SSL_set_read_ahead(session, 1)
        self._session = openssl.BIO_new(openssl.BIO_f_ssl())
        openssl.BIO_ctrl(self._session, _SET_SSL, 0, session)
        self._filled = openssl.BIO_push(openssl.BIO_new(openssl.BIO_f_buffer()), self._session)

    def read_into(self, room: memoryview) -> int:
        assert len(room) > _FILTER_BYTES
        openssl, size = self._openssl, len(room)
        openssl.ERR_clear_error()
        count: int = openssl.BIO_read(self._filled, ctypes.addressof(ctypes.c_char.from_buffer(room)), size)
        return count if count > 0 else self._nothing("receive")

    def write(self, data: memoryview) -> int:
        self._openssl.ERR_clear_error()
        count: int = self._openssl.BIO_write(self._session, bytes(data), len(data))
        return count if count > 0 else self._nothing("send")

    def _nothing(self, what: str) -> int:
        """0 when it is only that nothing can be done now; otherwise the connection has ended."""
        if self._openssl.BIO_test_flags(self._session, _SHOULD_RETRY):
            return 0
        raise connection_lost(f"the TLS session could not {what} data: the server closed it, or it was cut")

    def close(self) -> None:
        """A filter that is freed shuts its session down: here without a word, and as if it had not been."""
        openssl, session = self._openssl, self._ssl
        openssl.SSL_set_quiet_shutdown(session, 1)
        openssl.BIO_free_all(self._filled)
        openssl.SSL_set_shutdown(session, 0)
        openssl.SSL_set_quiet_shutdown(session, 0)
        openssl.SSL_set_read_ahead(session, 0)


def tls_of(libpq: ctypes.CDLL, pgconn_ptr: int) -> tuple[ctypes.CDLL, int] | None:
    """libpq's OpenSSL, and the session of a connection that uses TLS; None where they cannot be had."""
    openssl = _openssl_of(libpq)
    session = None if openssl is None else libpq.PQsslStruct(pgconn_ptr, b"OpenSSL")
    return (openssl, session) if openssl is not None and session else None


@functools.cache
def _openssl_of(libpq: ctypes.CDLL) -> ctypes.CDLL | None:
    try:
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(libpq, name)
            function.restype, function.argtypes = result, arguments
        libpq.PQsslStruct.restype, libpq.PQsslStruct.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
        user, used = (_file_of(function) for function in (libpq.PQsslStruct, libpq.SSL_set_read_ahead))
        named = used.name.encode() in user.read_bytes()
    except (AttributeError, OSError):
        return None
    return libpq if named else None


def _file_of(function: Any) -> Path:
    """The file of the library that has it. Raises OSError."""
    place = _Place()
    if not ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(place)) or not place.file:
        raise OSError("no library has this function")
    return Path(place.file.decode())
