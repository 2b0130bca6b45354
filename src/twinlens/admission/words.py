"""What gateway workers and the desk they share say to each other over a Unix socket, as frames: length, then msgpack.

A worker asks with a number of its own and gets a `Reply` with that number; `Leave` and `Owe` have none. The desk shows
its `State` to all, at least once a second. A worker that comes back after the desk was replaced begins with `Hello` and
says what it holds, so that the new desk counts it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Literal

import msgspec

from twinlens.core import Caller  # noqa: TC001 - msgspec reads the annotations when it decodes
from twinlens.errors import ServerError, TwinlensError, tree

if TYPE_CHECKING:
    from collections.abc import Iterator

End = Literal["answered", "failed", "left"]

MAX_FRAME = 1 << 20
_LENGTH = struct.Struct("!I")


class State(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """How the desk stands. Times are of the monotonic clock."""

    running: int = 0
    waiting: int = 0
    places: int = 1
    booked: int = 0
    room: int = 0
    seconds: float = 0.0  # what a request takes at the engine
    wait: float = 0.0  # what a request that comes now would wait
    engine: Literal["closed", "open", "probing"] = "closed"
    engine_until: float = 0.0
    long_until: float = 0.0
    long_share: float = 0.0
    shared: Literal["none", "up", "down"] = "none"  # the limits that several gateways share


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A place, or a wish for one. `deadline` is of the monotonic clock."""

    number: int
    tenant: str
    cost: int
    deadline: float
    bulk: bool


class Hello(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The first word of a worker. `last` is the state that it saw last, if it saw any."""

    worker: int
    held: list[Held]
    last: State | None = None


class Enter(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """May this caller send one more request?"""

    number: int
    caller: Caller


class Charge(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """May it have so many tokens?"""

    number: int
    caller: Caller
    vision: int
    text: int


class Take(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A place at the engine, please."""

    need: Held


class Leave(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The place is free again, or no longer wanted."""

    number: int
    end: End


class Owe(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Tokens that were used, or, negative, that were charged for nothing."""

    caller: Caller
    vision: int
    text: int


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """An error of the tree on its way between processes."""

    code: str
    message: str
    retry_after: float | None
    headers: list[tuple[bytes, bytes]]


class Reply(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Yes, with headers for the answer, or no."""

    number: int
    headers: list[tuple[bytes, bytes]] = []
    fault: Fault | None = None


Ask = Hello | Enter | Charge | Take | Leave | Owe
Tell = State | Reply

_encoder = msgspec.msgpack.Encoder()
asks = msgspec.msgpack.Decoder(Ask)
tells = msgspec.msgpack.Decoder(Tell)
_kinds = {kind.code: kind for kind in reversed(tree())}


def framed(word: Ask | Tell) -> bytes:
    """The word as a frame."""
    body = _encoder.encode(word)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Cuts a stream of bytes into the bodies of frames. Raises ValueError for one that is too long."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies that are whole."""
        data = self._rest + data if self._rest else data
        at = 0
        while len(data) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, at)
            if length > MAX_FRAME:
                raise ValueError("a frame is too long")
            if len(data) - at - _LENGTH.size < length:
                break
            at += _LENGTH.size
            yield data[at : at + length]
            at += length
        self._rest = data[at:]


def fault_of(error: TwinlensError) -> Fault:
    """The error for its way."""
    return Fault(error.code, error.message, error.retry_after, list(error.headers))


def error_of(fault: Fault) -> TwinlensError:
    """The error at the end of its way."""
    kind = _kinds.get(fault.code, ServerError)
    return kind(fault.message, retry_after=fault.retry_after, headers=fault.headers)
