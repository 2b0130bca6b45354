"""One thread that hands requests to the pipeline, which encodes their pictures: small ones need not wait long.

Whoever comes is served in the order of `arrival + yields`, where `yields` is how long it lets later ones pass. So a
question without a picture passes a queue of large pictures, and none of these is passed for ever.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Adder:
    """Calls functions in a thread of its own, one at a time."""

    def __init__(self) -> None:
        self.busy = False  # a call is being made
        self._queue: list[tuple[float, int, Future[Any], Callable[[], Any]]] = []
        self._count = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._run, name="add", daemon=True).start()

    def do(self, call: Callable[[], T], *, yields: float = 0.0) -> Future[T]:
        """Have `call` called; it lets pass what comes within `yields` seconds and yields less. From any thread."""
        future: Future[T] = Future()
        with self._changed:
            heapq.heappush(self._queue, (time.monotonic() + yields, next(self._count), future, call))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Call nothing more; what waits is cancelled."""
        with self._changed:
            self._closed = True
            waiting, self._queue = self._queue, []
            self._changed.notify()
        for _, _, future, _ in waiting:
            future.cancel()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if self._closed:
                    return
                _, _, future, call = heapq.heappop(self._queue)
            if future.set_running_or_notify_cancel():
                self.busy = True
                _call(future, call)
                self.busy = False
            del future, call  # they hold pixels, and the next may be long in coming


def _call(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        future.set_result(call())
    except Exception as error:  # noqa: BLE001 - it is the caller's, who finds it in the future
        future.set_exception(error)
