"""Whole numbers between two bounds, as a grammar of their digits."""

from __future__ import annotations

import math
from typing import Any

MOST_DIGITS = 18


def whole_bounds(schema: dict[str, Any]) -> tuple[int | None, int | None]:
    """The least and the greatest whole number that a schema allows; None where it sets no bound."""
    lows = [math.ceil(schema["minimum"])] if _number(schema.get("minimum")) else []
    if _number(schema.get("exclusiveMinimum")):
        lows.append(math.floor(schema["exclusiveMinimum"]) + 1)
    highs = [math.floor(schema["maximum"])] if _number(schema.get("maximum")) else []
    if _number(schema.get("exclusiveMaximum")):
        highs.append(math.ceil(schema["exclusiveMaximum"]) - 1)
    return max(lows, default=None), min(highs, default=None)


def between(low: int | None, high: int | None) -> str | None:
    """An expression for the numbers from `low` to `high`, both included; None if there are none or they are too long.

    A bound that is missing stands MOST_DIGITS digits away.
    """
    far = 10**MOST_DIGITS - 1
    low = -far if low is None else low
    high = far if high is None else high
    if low > high or max(abs(low), abs(high)) > far:
        return None
    found = []
    if low < 0:
        found += [f'"-" {part}' for part in _positive(max(-high, 1), -low)]
    if high >= 0:
        found += _positive(max(low, 0), high)
    return " | ".join(found)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _positive(low: int, high: int) -> list[str]:
    """Expressions for 0 <= low..high.

    Whole lengths of digits are said together: alternatives that only differ in how many digits follow are merged
    wrongly by the compiler of xgrammar 0.1.31, which then takes numbers of any length.
    """
    found = ['"0"'] if low == 0 else []
    lengths = range(len(str(max(low, 1))), len(str(high)) + 1) if high else range(0)
    whole = [length for length in lengths if low <= 10 ** (length - 1) and high >= 10**length - 1]
    if whole:
        found.append(f"[1-9] [0-9]{{{whole[0] - 1},{whole[-1] - 1}}}")
    for length in lengths:
        if length not in whole:
            first, last = max(low, 10 ** (length - 1)), min(high, 10**length - 1)
            found += _same_length(str(first), str(last))
    return found


def _same_length(low: str, high: str) -> list[str]:
    """Expressions for the numbers from `low` to `high`, written with the same count of digits."""
    if low == high:
        return [f'"{low}"']
    shared = next(place for place, (one, other) in enumerate(zip(low, high, strict=True)) if one != other)
    start = f'"{low[:shared]}" ' if shared else ""
    return [start + part for part in _parted(low[shared:], high[shared:])]


def _parted(low: str, high: str) -> list[str]:
    """The same where the first digits differ: from `low` up to full nines, the whole tens between, up to `high`."""
    rest = len(low) - 1
    first, last = int(low[0]), int(high[0])
    found = []
    if rest and int(low[1:]):
        found += [f'"{first}" {part}' for part in _same_length(low[1:], "9" * rest)]
        first += 1
    tail = []
    if rest and int(high[1:]) != 10**rest - 1:
        tail = [f'"{last}" {part}' for part in _same_length("0" * rest, high[1:])]
        last -= 1
    if first <= last:
        found.append(f"[{first}-{last}]" + (f" [0-9]{{{rest}}}" if rest else ""))
    return found + tail
