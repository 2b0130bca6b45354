"""How fast the engine works off requests, learned from those that ended, to tell who would wait past its deadline."""

from __future__ import annotations

LEARNED = 10  # ended requests before anybody is refused by what was learned
WEIGHT = 0.1  # of a new one in the averages


class Pace:
    """Moving averages of seconds at the engine and of cost."""

    def __init__(self) -> None:
        self._ended = 0
        self._seconds = 0.0
        self._cost = 0.0

    @property
    def seconds(self) -> float:
        """What a request takes at the engine; 0 before anything is known."""
        return self._seconds if self._ended >= LEARNED else 0.0

    def ended(self, seconds: float, cost: int) -> None:
        """A request was answered."""
        weight = max(WEIGHT, 1 / (self._ended + 1))
        self._seconds += weight * (seconds - self._seconds)
        self._cost += weight * (cost - self._cost)
        self._ended += 1

    def wait(self, ahead: float, places: int) -> float:
        """Seconds until a request gets its place behind queued requests that cost `ahead` together."""
        if not self.seconds:
            return 0.0
        return (ahead / max(1.0, self._cost) + 1) * self._seconds / max(1, places)
