"""Which pages of a document are meant: the field `pages` of a part, such as "1-3,7" or "5-"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from twinlens.errors import InvalidField, NoSuchPage, TooManyPages

if TYPE_CHECKING:
    from twinlens.core import Choice

LONGEST = 200  # characters of a choice
_ONE = re.compile(r"(\d{1,9})(?:(-)(\d{1,9})?)?", re.ASCII)

Numbers: TypeAlias = "tuple[int, ...]"


def choice(text: str, param: str) -> Choice:
    """Ranges (first, last) in their order; last 0 is the end of the document. Raises InvalidField."""
    ranges = []
    for word in text.split(",") if len(text) <= LONGEST else [""]:
        match = _ONE.fullmatch(word.strip())
        first = int(match[1]) if match else 0
        last = int(match[3]) if match and match[3] else 0 if match and match[2] else first
        if not first or (last and last < first) or (match and match[3] and not last):
            raise InvalidField(f'“{param}” is no choice of pages such as "1-3,7" or "5-".', param=param)
        ranges.append((first, last))
    return tuple(ranges)


def written(chosen: Numbers) -> str:
    """The choice that means exactly these pages."""
    runs: list[list[int]] = []
    for number in chosen:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def numbers(chosen: Choice, count: int, where: str, most: int, first: int | None = None) -> Numbers:
    """The pages that are meant, each once, of a document with `count`: all where none are chosen; at most `first`.

    Raises NoSuchPage, and TooManyPages for more than `most`, before anything is made of them.
    """
    bound = most + 1 if first is None else min(first, most + 1)  # more need not be counted
    found: dict[int, None] = {}
    for start, last in chosen or ((1, 0),):
        if max(start, last) > count:
            pages = "1 page" if count == 1 else f"{count} pages"
            raise NoSuchPage(f"{where} has {pages}; page {max(start, last)} was asked for.", param=where)
        found |= dict.fromkeys(range(start, min(last or count, start + most) + 1))
    meant = tuple(found)[:bound]
    if len(meant) > most:
        asked = f"more than {most} of its {count} pages" if chosen else f"all {count} pages"
        raise TooManyPages(f"{where}: {asked} are meant, and {most} can be taken in this request.", param=where)
    return meant
