"""Reads text that comes in pieces and hides what the finders find, as if it had come whole.

Text is looked at in a folded form, character by character: full-width and other digits as ASCII, all dashes and spaces
alike, invisible characters skipped. A place is decided once the finders have seen enough behind it; until then it, and
everything after it, is held back.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from twinlens.finish.redact_seam import BEHIND, WAIT, Found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinlens.finish.redact_seam import Finder

Hide: TypeAlias = Callable[[str, str], str]  # (kind, what was found) -> what stands there instead

_INVISIBLE = "\u00ad\u034f\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\ufeff"
_ALIKE = dict.fromkeys("‐‑‒–—―−﹘﹣－", "-") | dict.fromkeys("•‧∙⋅・･", "·") | dict.fromkeys(_INVISIBLE, "")
TRIM = 4096  # characters that are decided before the buffer is cut


@lru_cache(maxsize=4096)
def folded(char: str) -> str:
    """One character as the finders see it; empty for one that is not seen."""
    if char.isascii() or char in _ALIKE:
        return _ALIKE.get(char, char)
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    if "\uff01" <= char <= "\uff5e":
        return chr(ord(char) - 0xFEE0)
    return " " if unicodedata.category(char) == "Zs" else char


class Reader:
    """What makes `Scanner`s: the finders, and how what they find is hidden."""

    def __init__(self, finders: Sequence[Finder], hide: Hide) -> None:
        self.finders = tuple(finders)
        self.hide = hide
        self.starts = re.compile("|".join(f"(?:{finder.starts})" for finder in finders) or r"(?!)")

    def read(self, text: str) -> tuple[str, list[str]]:
        """(whole text with everything hidden, kinds of what was)."""
        scanner = Scanner(self)
        return scanner.feed(text) + scanner.end(), scanner.kinds


class Scanner:
    """One text. `kinds` lists what was hidden so far, in order."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._text = ""  # folded; everything before `_at` has left
        self._whole: list[str] = []  # for every folded character, what stood there, with invisible ones behind it
        self._at = 0
        self.kinds: list[str] = []

    def feed(self, text: str) -> str:
        """Take more text; give what is decided."""
        early = self._add(text)
        return early + self._advance(final=False)

    def end(self) -> str:
        """The rest."""
        return self._advance(final=True)

    def _add(self, text: str) -> str:
        """Append; gives invisible characters that belong to nothing that is still held back."""
        if text.isascii():
            self._text += text
            self._whole.extend(text)
            return ""
        early = ""
        seen = []
        for char in text:
            fold = folded(char)
            if fold:
                seen.append(fold)
                self._whole.append(char)
            elif self._at < len(self._whole):
                self._whole[-1] += char
            else:
                early += char
        self._text += "".join(seen)
        return early

    def _advance(self, *, final: bool) -> str:
        out: list[str] = []
        while self._at < len(self._text):
            start = self._reader.starts.search(self._text, self._at)
            place = start.start() if start else len(self._text)
            out += self._whole[self._at : place]
            self._at = place
            if not start:
                break
            found = self._found(place, final=final)
            if found == WAIT:
                break
            if isinstance(found, Found):
                out += self._whole[place : found.start]
                out.append(self._reader.hide(found.kind, "".join(self._whole[found.start : found.end])))
                self.kinds.append(found.kind)
                self._at = found.end
            else:
                out.append(self._whole[place])
                self._at = place + 1
        self._trim()
        return "".join(out)

    def _found(self, place: int, *, final: bool) -> Found | str | None:
        best: Found | None = None
        for finder in self._reader.finders:
            found = finder.at(self._text, place, final=final)
            if isinstance(found, str):
                return WAIT
            if found and (best is None or found.end > best.end):
                best = found
        return best

    def _trim(self) -> None:
        """Forget what has left, all but what finders may still look back at."""
        if self._at > TRIM:
            cut = self._at - 2 * BEHIND
            self._text, self._whole, self._at = self._text[cut:], self._whole[cut:], self._at - cut
