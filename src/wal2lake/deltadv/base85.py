"""Z85: binary data in 85 characters that need no escape in JSON, five for each four bytes.

Source: ZeroMQ RFC 32; Delta transaction log protocol, "Deletion Vector Descriptor Schema".
"""

from __future__ import annotations

import base64
from typing import Final

_PYTHONS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85: Final = str.maketrans(_PYTHONS, _Z85)
_FROM_Z85: Final = str.maketrans(_Z85, _PYTHONS)


def encode(data: bytes) -> str:
    """The data, filled up with zero bytes to a multiple of four."""
    return base64.b85encode(data + bytes(-len(data) % 4)).decode("ascii").translate(_TO_Z85)


def decode(text: str, size: int) -> bytes:
    """The first ``size`` bytes. Raises ValueError for a text that is not Z85, or of less than ``size`` bytes."""
    if not set(text) <= set(_Z85) or len(text) % 5:
        raise ValueError("This is not Z85.")
    data = base64.b85decode(text.translate(_FROM_Z85))
    if not 0 <= size <= len(data):
        raise ValueError(f"Z85 of {len(data)} bytes, where {size} are said.")
    return data[:size]
