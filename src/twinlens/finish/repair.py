"""Mends what is certain about an answer that should be JSON: fences, thoughts and text around one JSON value.

Nothing is invented: no bracket is closed, no quote is turned, no comma is dropped. Where two readings are possible
there is none.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

_THOUGHT = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_FENCE = re.compile(r"```[A-Za-z]*[ \t]*\r?\n(.*?)\r?\n?```", re.DOTALL)
_OPENING = re.compile(r"[{\[]")


class Ambiguous(ValueError):
    """The text can be read in more than one way, or in none."""


def read(text: str) -> tuple[Any, list[str]]:
    """(value, names of what had to be mended). Raises Ambiguous."""
    try:
        return _strict(text), []
    except Ambiguous:
        pass
    mended = []
    body = text.removeprefix("\ufeff")
    if _THOUGHT.match(body):
        body = _THOUGHT.sub("", body)
        mended.append("thought")
    fenced = _FENCE.findall(body)
    if len(fenced) > 1:
        raise Ambiguous("several fenced blocks")
    if fenced:
        body = fenced[0]
        mended.append("fence")
    try:
        return _strict(body), mended
    except Ambiguous:
        return _within(body), [*mended, "text around"]


def _within(text: str) -> Any:
    """The only JSON object or array in `text`."""
    first = _OPENING.search(text)
    if not first:
        raise Ambiguous("no JSON")
    try:
        value, end = _decoder.raw_decode(text, first.start())
    except (ValueError, RecursionError) as error:
        raise Ambiguous("no JSON") from error
    if _OPENING.search(text, end):
        raise Ambiguous("several JSON values")
    return value


def _strict(text: str) -> Any:
    try:
        return _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise Ambiguous("not JSON") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Ambiguous("a key stands twice")  # which of the two is meant cannot be known
    return found


def _constant(name: str) -> Any:
    raise Ambiguous(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise Ambiguous("a number is too large")  # written again it would no longer be one
    return value


_decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant, parse_float=_finite)
