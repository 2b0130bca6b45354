"""What a finder of the redaction is: it looks at one place of a text and says what begins there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

WAIT: Final = "wait"
BEHIND = 32  # characters before a place that a finder may look at


@dataclass(frozen=True, slots=True)
class Found:
    """Something to hide: from `start` to before `end`, of this kind. `start` may lie behind the place looked at."""

    start: int
    end: int
    kind: str


class Finder(Protocol):
    """Finds one or more kinds.

    What it says of a place may depend on BEHIND characters before it and on a bounded number behind it, and on nothing
    else: an answer that comes in pieces is then read exactly like a whole one.
    """

    @property
    def starts(self) -> str:
        """A regular expression of one character (and what stands before it) where something may begin."""
        ...

    def at(self, text: str, at: int, *, final: bool) -> Found | str | None:
        """What begins at `at` of the folded text; WAIT when that needs more text than there is. Not so if `final`."""
        ...
