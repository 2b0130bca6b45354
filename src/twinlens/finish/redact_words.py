"""Finds e-mail addresses, Chinese number plates, passport numbers, and names behind their labels, in text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twinlens.finish.redact_seam import BEHIND, WAIT, Found

if TYPE_CHECKING:
    from collections.abc import Iterable

PROVINCE = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼"


@dataclass(frozen=True)
class Pattern:
    """A finder by a regular expression over a run of characters that everything it matches is made of.

    `run` matches the beginning of everything that `pattern` matches, as far as it has come; the decision falls when a
    character follows that does not go on with it, or when it is `longest` characters long, longer than any match.
    """

    kind: str
    starts: str
    run: str
    pattern: str
    longest: int
    context: str = ""  # has to stand within BEHIND characters before the match
    _first: re.Pattern[str] = field(init=False, repr=False)
    _run: re.Pattern[str] = field(init=False, repr=False)
    _pattern: re.Pattern[str] = field(init=False, repr=False)
    _context: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        compiled = {"_first": self.starts, "_run": self.run, "_pattern": self.pattern}
        for name, expression in compiled.items():
            object.__setattr__(self, name, re.compile(expression))
        object.__setattr__(self, "_context", re.compile(self.context, re.IGNORECASE))

    def at(self, text: str, at: int, *, final: bool) -> Found | str | None:
        """See `Finder.at`."""
        if not self._first.match(text, at):
            return None
        limit = at + self.longest
        run = self._run.match(text, at, limit)
        end = run.end() if run else at
        if end == len(text) and end < limit and not final:
            return WAIT
        if end == limit and len(text) == limit and not final:
            return WAIT
        match = self._pattern.match(text, at, min(len(text), limit + 1))
        if not match or match.end() > limit:
            return None
        if self.context and not self._context.search(text, max(0, at - BEHIND), at):
            return None
        return Found(at, match.end(), self.kind)


EMAIL = Pattern(
    "email",
    starts=r"(?<![A-Za-z0-9_])[A-Za-z0-9_]",
    run=r"[A-Za-z0-9._%+@-]*",
    pattern=r"[A-Za-z0-9_][A-Za-z0-9._%+-]{0,127}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9])",
    longest=400,
)
_LETTERS = "A-HJ-NP-Za-hj-np-z"
_NEW = "[DABCEFGHJKdabcefghjk]"
PLATE = Pattern(
    "plate",
    starts=f"[{PROVINCE}使]|(?<![A-Za-z0-9])[Ww]",
    run=rf"[{PROVINCE}A-Za-z0-9 ·.\-警学挂港澳使领应急试超]*",
    pattern=(
        rf"(?:[{PROVINCE}][{_LETTERS}][ ·.\-]{{0,3}}(?:"
        # New energy: six characters, a letter for the kind of drive in front or at the end.
        rf"{_NEW}[{_LETTERS}\d]\d{{4}}|\d{{5}}{_NEW}"
        # Ordinary: five characters, at most two of them letters; or four and a character for the use.
        rf"|(?=(?:\d*[{_LETTERS}]){{0,2}}\d*(?![A-Za-z0-9]))[{_LETTERS}\d]{{5}}"
        rf"|[{_LETTERS}\d]{{4}}[警学挂港澳使领应急试超]"
        rf")|使[ ·]?\d{{6}}|[Ww][Jj][ ·]?[{PROVINCE}]?[ ·]?\d{{4}}[\dA-Za-z])(?![A-Za-z0-9])"
    ),
    longest=16,
)
PASSPORT = Pattern(
    "passport",
    starts=r"(?<![A-Za-z0-9])[A-Za-z0-9]",
    run=r"[A-Za-z]{0,2} ?\d*",
    pattern=r"(?:[A-Za-z]{1,2} ?\d{6,9}|[Ee][A-Za-z]\d{7}|\d{9})(?![A-Za-z0-9])",
    longest=16,
    context="护照|passport|旅券|여권",
)
MRZ = Pattern(
    "passport",
    starts=r"(?<![A-Z0-9<])[A-Z0-9]",
    run=r"[A-Z0-9<]*",
    pattern=r"(?:P[A-Z<][A-Z<]{3}[A-Z<]{39}|[A-Z0-9<]{9}\d[A-Z<]{3}\d{7}[MFX<]\d{7}[A-Z0-9<]{14,16})(?![A-Z0-9<])",
    longest=48,
)


class Labelled:
    """A finder of values that stand behind a label in the same line: “Name: Ada”, “姓名：张三”, “"name": "Ada"”."""

    LONGEST = 96
    _SEPARATOR = re.compile(r"[\"'”’]?[ \t]{0,3}(?:[:=]|(?<=[一-鿿])[是为])[ \t]{0,3}[\"'“‘]?")
    _UNDECIDED = re.compile(r"[\"'”’]?[ \t]{0,3}")
    # A name in Chinese characters ends with them; any other with the phrase, at a digit or after five words.
    _VALUE = re.compile(r"[一-鿿·]+(?:[ ]?\([一-鿿·]+\))?|(?:[^\s\d,;。|/\"”{}\[\]、一-鿿()]+ ?){1,5}")
    _CELL = re.compile(r"[ \t]{1,3}([一-鿿·]{2,20})(?=[ \t]*(?:[\n\r]|$))")  # “姓名 张三” at the end of a line

    def __init__(self, labels: Iterable[str], kind: str = "name") -> None:
        self.kind = kind
        self._labels = sorted({label.lower() for label in labels}, key=len, reverse=True)
        firsts = "".join(sorted({re.escape(c) for label in self._labels for c in (label[0], label[0].upper())}))
        self.starts = f"(?<![A-Za-z])[{firsts}]" if firsts else r"(?!)"
        self._first = re.compile(self.starts)
        self._deepest = max(map(len, self._labels), default=0)

    def at(self, text: str, at: int, *, final: bool) -> Found | str | None:
        """See `Finder.at`."""
        if not self._first.match(text, at):
            return None
        head = text[at : at + self._deepest].lower()
        short = len(head) < self._deepest and not final
        if short and any(label.startswith(head) for label in self._labels):
            return WAIT
        for label in self._labels:
            if head.startswith(label):
                found = self._behind(text, at, at + len(label), final=final)
                if found is not None:
                    return found
        return None

    def _behind(self, text: str, at: int, place: int, *, final: bool) -> Found | str | None:
        limit = at + self.LONGEST
        if not final and self._UNDECIDED.fullmatch(text, place):
            return WAIT
        separator = self._SEPARATOR.match(text, place)
        if not separator:
            return self._cell(text, place, limit, final=final)
        value = self._VALUE.match(text, separator.end(), limit)
        end = value.end() if value else separator.end()
        if end == len(text) and end < limit and not final:
            return WAIT
        said = value.group().strip() if value else ""
        if value is None or not said or said[0] == "*":  # hidden already
            return None
        start = value.start() + len(value.group()) - len(value.group().lstrip())
        return Found(start, start + len(said), self.kind)

    def _cell(self, text: str, place: int, limit: int, *, final: bool) -> Found | str | None:
        run = re.compile(r"[ \t]{1,3}[一-鿿·]*[ \t]*").match(text, place, limit)
        if not run:
            return None
        if run.end() == len(text) and run.end() < limit and not final:
            return WAIT
        cell = self._CELL.match(text, place, limit)
        return Found(cell.start(1), cell.end(1), self.kind) if cell else None
