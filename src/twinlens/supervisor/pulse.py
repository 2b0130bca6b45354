"""The rule of life: when an engine counts as alive, as stalled, and as lost. Pure arithmetic over observed signs.

A *sign of life* is an answer to the health probe from an engine that has no work, or whose progress counter moved
since the sign before. *Effort* is time that its threads spent on a core or waiting for one. Of the two silences,

    quiet    since the last sign of life or effort       (stopped, deadlocked, waiting for ever)
    silence  since the last sign of life                 (these and: one very long step, an event loop that starves)

the first is short and the second long: a busy engine is not replaced for being slow. With S = engine_stall_timeout_s,

    stalled (takes no new requests)  quiet >= S/2  or  silence >= 3 S
    lost    (killed and replaced)    quiet >= S    or  silence >= 15 S

A gateway worker has no long steps: its loop only hands over. One that is busy for 2 S without a beat is lost.
Time in which the watcher itself did not run (a suspended machine) counts as one probe only. Why the rule is this
one: docs/decisions/0006-supervisor.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["alive", "stalled", "lost"]

LONGEST_GAP_S = 5.0  # of one observation to the next, as far as it counts
LEAST_EFFORT = 0.05  # of a core: above what answering probes takes, below what a starved engine gets
STALLED_FACTOR = 3
BUSY_FACTOR = 15


@dataclass(frozen=True, slots=True)
class Sign:
    """One observation."""

    at: float  # monotonic seconds
    progress: int | None  # None: no answer within the probe's deadline
    idle: bool = False  # nothing running and nothing waiting
    effort: float | None = None  # seconds since the process began; None: not to be known (not our process)


class Pulse:
    """Feels one life of an engine. `feel` changes it with every observation, `verdict` does not."""

    def __init__(self, stall_timeout_s: float, busy_factor: int = BUSY_FACTOR) -> None:
        self._limit = stall_timeout_s
        self._busy_factor = busy_factor
        self._quiet = 0.0
        self._silence = 0.0
        self._last: Sign | None = None
        self._progress: int | None = None

    @property
    def silence(self) -> float:
        """Seconds since the last sign of life."""
        return self._silence

    def feel(self, sign: Sign) -> Verdict:
        """Take in an observation and give the verdict after it."""
        gap = min(sign.at - self._last.at, LONGEST_GAP_S) if self._last else 0.0
        alive = self._is_alive(sign)
        self._silence = 0.0 if alive else self._silence + gap
        self._quiet = 0.0 if alive or self._has_effort(sign, gap) else self._quiet + gap
        self._last = sign
        self._progress = self._progress if sign.progress is None else sign.progress
        return self.verdict

    @property
    def verdict(self) -> Verdict:
        """How the engine is after what was felt so far."""
        if self._quiet >= self._limit or self._silence >= self._limit * self._busy_factor:
            return "lost"
        if self._quiet >= self._limit / 2 or self._silence >= self._limit * STALLED_FACTOR:
            return "stalled"
        return "alive"

    def _is_alive(self, sign: Sign) -> bool:
        return sign.progress is not None and (sign.idle or sign.progress != self._progress)

    def _has_effort(self, sign: Sign, gap: float) -> bool:
        if self._last is None or sign.effort is None or self._last.effort is None:
            return False
        return sign.effort - self._last.effort >= LEAST_EFFORT * gap > 0
