"""The seam of the finishing steps, and the steps of a request in their order."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

from twinlens.finish.schema import SchemaCheck

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from twinlens.core import Piece, Request


class Step(Protocol):
    """A transform of pieces. One instance serves one request; it may keep state between pieces."""

    def feed(self, piece: Piece) -> Sequence[Piece]:
        """Take a piece, give the pieces that may leave now. Raises an error of the tree to end the answer."""
        ...


def steps_of(request: Request) -> list[Step]:
    """The finishing steps that this request asks for."""
    return [] if request.answer.kind == "text" else [SchemaCheck(request.answer)]


async def finished(pieces: AsyncGenerator[Piece, None], steps: Sequence[Step]) -> AsyncGenerator[Piece, None]:
    """The pieces after all steps. Plain answers and streams take this same path. Closing it closes `pieces`."""
    async with aclosing(pieces):
        async for piece in pieces:
            ready: Sequence[Piece] = (piece,)
            for step in steps:
                ready = [out for waiting in ready for out in step.feed(waiting)]
            for out in ready:
                yield out
