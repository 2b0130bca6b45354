"""The first 256 bytes of every object: what it is, how long it is, and what its bytes sum up to.

Plain numbers and bytes, little-endian; nothing is ever unpickled. Bounds are checked at every open.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from dataclasses import dataclass

import numpy as np

from twinlens.store.keys import is_key

MAGIC = b"TWINLENS"
VERSION = 1
SIZE = 256  # bytes; what follows is aligned for every dtype
MAX_DIMENSIONS = 8
MAX_LENGTH = 1 << 40  # bytes of one object
KIND = re.compile(r"[a-z][a-z0-9_]{0,15}")
DTYPES = frozenset(["|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8"])

_LAYOUT = struct.Struct("<8s H H 16s 8s 8Q Q 128s Q")
_CHECK = struct.Struct("<I")


class BadHeader(ValueError):
    """Bytes that are not the header of a whole, valid object; inside this room it means a miss."""


@dataclass(frozen=True, slots=True)
class Header:
    """`kind`: what the object is for, such as "pixels"; `checksum`: of the bytes after the header."""

    key: str
    kind: str
    dtype: str  # one of DTYPES
    shape: tuple[int, ...]
    checksum: int = 0

    def __post_init__(self) -> None:
        if not is_key(self.key) or not KIND.fullmatch(self.kind) or self.dtype not in DTYPES:
            raise BadHeader("key, kind or dtype out of range")
        if len(self.shape) > MAX_DIMENSIONS or not all(0 <= side < 1 << 63 for side in self.shape):
            raise BadHeader("shape out of range")
        if self.length > MAX_LENGTH:
            raise BadHeader("too long")

    @property
    def length(self) -> int:
        """Bytes after the header."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def pack(self) -> bytes:
        """SIZE bytes."""
        sides = (*self.shape, *(0,) * (MAX_DIMENSIONS - len(self.shape)))
        packed = _LAYOUT.pack(
            MAGIC,
            VERSION,
            len(self.shape),
            self.kind.encode(),
            self.dtype.encode(),
            *sides,
            self.length,
            self.key.encode(),
            self.checksum,
        )
        packed = packed.ljust(SIZE - _CHECK.size, b"\0")
        return packed + _CHECK.pack(zlib.crc32(packed))


def unpack(data: bytes, *, key: str, file_size: int) -> Header:
    """The header of object `key` in a file of `file_size` bytes. Raises BadHeader for whatever else it is."""
    if len(data) != SIZE or not data.startswith(MAGIC):
        raise BadHeader("not an object")
    if _CHECK.unpack_from(data, SIZE - _CHECK.size)[0] != zlib.crc32(data[: -_CHECK.size]):
        raise BadHeader("damaged header")
    _, version, dimensions, kind, dtype, *sides, length, name, checksum = _LAYOUT.unpack_from(data)
    if version != VERSION or dimensions > MAX_DIMENSIONS:
        raise BadHeader("another version")
    try:
        header = Header(_text(name), _text(kind), _text(dtype), tuple(sides[:dimensions]), checksum)
    except UnicodeDecodeError as error:
        raise BadHeader("not text") from error
    if header.key != key or header.length != length or file_size != SIZE + length or header.pack() != data:
        raise BadHeader("key or length differ")
    return header


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode("ascii")
