"""Adding a request and driving a step take turns.

The pipeline lets one thread add requests while another steps, but with the prefix cache on both touch its table of
blocks, and not all of that is locked there. They would also only fight for the same cores. So a step waits for a
request that is being added, and the other way round; but no longer than PATIENCE_S after it began, because encoding a
large picture takes seconds and the answers that are already running must not stand still for so long.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 0.2
Side = Literal["add", "step"]


class Turns:
    """A lock with two sides, one thread each. Who lets go hands it to the other side if that waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._owner: Side | None = None
        self._waits: set[Side] = set()
        self._began = 0.0  # when the request that is being added got its turn
        self._over = False  # a step runs although a request is being added

    @contextlib.contextmanager
    def adding(self) -> Iterator[None]:
        """For the one thread that adds."""
        with self._changed:
            self._take("add")
            self._changed.wait_for(lambda: not self._over)
            self._began = time.monotonic()
        try:
            yield
        finally:
            self._let_go("add")

    @contextlib.contextmanager
    def stepping(self) -> Iterator[None]:
        """For the one thread that steps."""
        with self._changed:
            patience = self._began + PATIENCE_S - time.monotonic() if self._owner == "add" else None
            self._over = not self._take("step", patience)
        try:
            yield
        finally:
            self._let_go("step")

    def _take(self, side: Side, patience: float | None = None) -> bool:
        """Wait for the turn; for `patience` seconds at most, if given. Whether it came."""
        if self._owner is None:
            self._owner = side
            return True
        self._waits.add(side)
        timeout = None if patience is None else max(patience, 0)
        came = self._changed.wait_for(lambda: self._owner in (None, side), timeout)
        self._waits.discard(side)
        if came:
            self._owner = side
        return came

    def _let_go(self, side: Side) -> None:
        with self._changed:
            if side == "step" and self._over:
                self._over = False
            else:
                other: Side = "step" if side == "add" else "add"
                self._owner = other if other in self._waits else None
            self._changed.notify_all()
