"""The deadline of one request: one timer for all that it waits for.

`asyncio.timeout_at` around every piece of an answer costs more than the piece; this costs a timer a request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from twinlens.errors import DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import TracebackType

T = TypeVar("T")

LATE = "The request's deadline passed before its answer was whole."


class Deadline:
    """Bounds what is awaited through it, from entering until leaving. For one task at a time.

    `when` is a time of the running loop's clock, in seconds. Between two awaits nothing happens when it passes: who
    sends a piece to a slow client is not interrupted, the next await is refused.
    """

    def __init__(self, when: float) -> None:
        self._when = when
        self._passed = False
        self._waiting: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Deadline:
        loop = asyncio.get_running_loop()
        self._passed = loop.time() >= self._when
        self._timer = loop.call_at(self._when, self._pass)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def over(self, work: Awaitable[T]) -> T:
        """The result of `work`. Raises DeadlineExceeded when the time passes first; `work` is cancelled then."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline can only be kept inside a task")
        self._refuse_late(work)
        asked = task.cancelling()
        self._waiting = task
        try:
            return await work
        except asyncio.CancelledError:
            # As in asyncio.timeout: a cancellation from elsewhere at the same time goes on as such.
            if self._passed and task.uncancel() <= asked:
                raise DeadlineExceeded(LATE) from None
            raise
        finally:
            self._waiting = None

    def _refuse_late(self, work: Awaitable[object]) -> None:
        if not self._passed:
            return
        close = getattr(work, "close", None)  # coroutines complain when they are neither awaited nor closed
        if close is not None:
            close()
        raise DeadlineExceeded(LATE)

    def _pass(self) -> None:
        self._passed = True
        if self._waiting is not None:
            self._waiting.cancel()
