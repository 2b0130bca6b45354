"""How long to wait before a child is started again."""

from __future__ import annotations

FIRST_S = 0.5
LONGEST_S = 30.0
HEALTHY_S = 60.0


class Pauses:
    """Growing pauses: 0.5 s, doubling to 30 s, and from the start again after a life of a minute."""

    def __init__(self) -> None:
        self._next = FIRST_S

    def after(self, lived_s: float) -> float:
        """Seconds to wait after a child that lived so long. Changes the next answer."""
        if lived_s >= HEALTHY_S:
            self._next = FIRST_S
        pause = self._next
        self._next = min(pause * 2, LONGEST_S)
        return pause
