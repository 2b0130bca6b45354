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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 0.2


class Turns:
    """A lock with two sides; the side that waits goes next."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._adding = False
        self._stepping = False
        self._step_waits = False
        self._began = 0.0

    @contextlib.contextmanager
    def adding(self) -> Iterator[None]:
        """For the one thread that adds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._stepping and not self._step_waits)
            self._adding = True
            self._began = time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                self._adding = False
                self._changed.notify_all()

    @contextlib.contextmanager
    def stepping(self) -> Iterator[None]:
        """For the one thread that steps."""
        with self._changed:
            if self._adding:
                self._step_waits = True
                patience = self._began + PATIENCE_S - time.monotonic()
                self._changed.wait_for(lambda: not self._adding, timeout=max(patience, 0))
                self._step_waits = False
            self._stepping = True
        try:
            yield
        finally:
            with self._changed:
                self._stepping = False
                self._changed.notify_all()
