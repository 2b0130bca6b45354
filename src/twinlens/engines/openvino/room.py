"""The KV cache as a room with a fixed number of blocks.

A request takes at the door what it can need at most, and waits there if that is not free. So the pipeline never runs
out of blocks in the middle, where it would throw away work of one request for another. First come, first served.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True, eq=False)
class Guest:
    """A request for `blocks`; `admitted` is called once they are its own."""

    blocks: int
    admitted: Callable[[], None]


class Room:
    """Blocks of the KV cache, given out on the event loop."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.free = blocks
        self._door: deque[Guest] = deque()

    @property
    def waiting(self) -> int:
        """Requests at the door."""
        return len(self._door)

    @property
    def usage(self) -> float:
        """Share that is taken, in percent."""
        return 100.0 * (1 - self.free / self.blocks)

    def enter(self, guest: Guest) -> None:
        """Admit now or later. `guest.blocks` must not be more than there are at all."""
        self._door.append(guest)
        self._admit()

    def leave_door(self, guest: Guest) -> None:
        """No longer wait. Changes nothing for a guest that is inside, who gives back what it took."""
        if guest in self._door:
            self._door.remove(guest)
            self._admit()

    def give(self, blocks: int) -> None:
        """Bring `blocks` back."""
        self.free += blocks
        self._admit()

    def _admit(self) -> None:
        while self._door and self._door[0].blocks <= self.free:
            guest = self._door.popleft()
            self.free -= guest.blocks
            admitted, guest.admitted = guest.admitted, _nothing  # what it holds is let go as soon as it is used
            admitted()


def _nothing() -> None:
    """For guests that are inside already."""
