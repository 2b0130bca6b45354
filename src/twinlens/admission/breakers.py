"""Two breakers: one leaves an engine alone that fails, the other keeps a flood of over-long prompts from the rest.

Both are plain counts over a sliding time, fed and asked by the desk; times are seconds of the monotonic clock.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Literal

from twinlens.errors import EngineFailing, LongPromptsPaused

if TYPE_CHECKING:
    from collections.abc import Callable

Phase = Literal["closed", "open", "probing"]

FAILURE_WINDOW_S = 30.0
LEAST_FAILURES = 5
FAILURE_SHARE = 0.5
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0
TRIAL_S = 30.0  # a trial that says nothing for so long is taken for lost, and another one is let through

PROMPT_WINDOW_S = 60.0
LEAST_PROMPTS = 20  # fewer say nothing about a share
LEAST_LONG = 3
LONG_PAUSE_S = 30.0
KEPT = 10_000  # of the newest events of a window


class EngineBreaker:
    """Open while the engine fails: at least LEAST_FAILURES, and half of what it did in the last FAILURE_WINDOW_S."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, bool]] = deque(maxlen=200)
        self._pause = FIRST_PAUSE_S
        self._until = 0.0
        self._trial = 0.0  # when the trial began; 0: none runs
        self.phase: Phase = "closed"

    @property
    def until(self) -> float:
        """The time at which the next trial may begin; 0 while closed."""
        return 0.0 if self.phase == "closed" else self._until

    def adopt(self, until: float) -> None:
        """What another desk knew before this one: open until then."""
        if until > max(self._until, self._clock()):
            self.phase, self._until = "open", until

    def check(self) -> None:
        """Raise EngineFailing where a request would be refused; lets none through by itself."""
        now = self._clock()
        if self.phase == "open" and now < self._until:
            raise failing(self._until - now)
        if self.phase == "probing" and now - self._trial < TRIAL_S:
            raise failing(1.0)

    def enter(self) -> None:
        """A request goes to the engine. Raises EngineFailing; the first one after the pause is the trial."""
        if self.phase == "closed":
            return
        self.check()
        self.phase, self._trial = "probing", self._clock()

    def lost(self) -> None:
        """A request ended without telling anything of the engine: if it was the trial, the next one is."""
        if self.phase == "probing":
            self.phase, self._until = "open", self._clock()

    def outcome(self, *, failed: bool) -> None:
        """How a request at the engine ended."""
        now = self._clock()
        if self.phase == "probing":
            if failed:
                self._open(now)
            else:
                self.phase, self._pause = "closed", FIRST_PAUSE_S
                self._seen.clear()
            return
        if self.phase == "open":
            return  # began before the pause
        self._seen.append((now, failed))
        if not failed:
            return
        recent = [bad for at, bad in self._seen if now - at < FAILURE_WINDOW_S]
        if sum(recent) >= LEAST_FAILURES and sum(recent) >= FAILURE_SHARE * len(recent):
            self._open(now)

    def _open(self, now: float) -> None:
        self.phase, self._until = "open", now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
        self._seen.clear()


class LongPrompts:
    """Refuses over-long prompts for LONG_PAUSE_S once their share of the last PROMPT_WINDOW_S is above `share`."""

    def __init__(self, tokens: int, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._tokens = tokens
        self._share = share
        self._clock = clock
        self._seen: deque[tuple[float, bool]] = deque()
        self._long = 0
        self.until = 0.0

    @property
    def paused(self) -> bool:
        """Whether over-long prompts are refused now."""
        return self._clock() < self.until

    @property
    def share(self) -> float:
        """Of over-long prompts in the window."""
        self._forget(self._clock())
        return self._long / len(self._seen) if self._seen else 0.0

    def adopt(self, until: float) -> None:
        """What another desk knew before this one."""
        self.until = max(self.until, until)

    def take(self, tokens: int) -> None:
        """One more prompt. Raises LongPromptsPaused for an over-long one while they are refused."""
        if not self._share:
            return
        now = self._clock()
        long = tokens > self._tokens
        if long and now < self.until:
            raise LongPromptsPaused(
                f"The prompt has {tokens} tokens; too many over {self._tokens} came, and they are refused for a while.",
                retry_after=self.until - now,
            )
        self._forget(now)
        self._seen.append((now, long))
        self._long += long
        few = len(self._seen) < LEAST_PROMPTS or self._long < LEAST_LONG
        if not few and self._long > self._share * len(self._seen):
            self.until = now + LONG_PAUSE_S
            self._seen.clear()
            self._long = 0

    def _forget(self, now: float) -> None:
        while self._seen and (now - self._seen[0][0] > PROMPT_WINDOW_S or len(self._seen) > KEPT):
            self._long -= self._seen.popleft()[1]


def failing(seconds: float) -> EngineFailing:
    """The refusal while the engine is left alone for so many more seconds."""
    return EngineFailing("The engine failed several times in a row and is left alone for a while.", retry_after=seconds)
