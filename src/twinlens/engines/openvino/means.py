"""What of a schema a grammar can afford to hold an answer to.

Counting costs states, and a grammar with very many of them slows down every answer of the step. So counts over the
limits below are left out of the grammar; the finished answer is checked against the whole schema anyway. What no
answer could ever satisfy, or would take seconds to compile, is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from twinlens.errors import InvalidSchema

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH = 48
MAX_REPEATS = 4096  # product of the repetitions of a pattern
NEVER = 100_000  # no answer has so many characters, items or properties
LIMITS = {"minLength": 64, "maxLength": 256, "minItems": 64, "maxItems": 1024, "minProperties": 64, "maxProperties": 64}
CHARACTERS = 512  # sum over the different lengths of strings in one schema
DATA = frozenset(("const", "enum", "default", "examples"))  # values, not schemas
_QUANTIFIER = re.compile(r"\{(\d*),?(\d*)\}")


class Means:
    """What is left to spend on one schema."""

    def __init__(self) -> None:
        self._left = CHARACTERS
        self._paid: set[tuple[Any, Any]] = set()

    def afford(self, schema: Any, depth: int = 0) -> Any:
        """The schema without the counts that are too dear. Raises InvalidSchema."""
        if depth > MAX_DEPTH:
            raise invalid(f"The schema is nested deeper than {MAX_DEPTH} levels.")
        if isinstance(schema, list):
            return [self.afford(item, depth + 1) for item in schema]
        if not isinstance(schema, dict):
            return schema
        kept = {key: value for key, value in schema.items() if _keep(key, value)}
        if not self._pay(kept.get("minLength"), kept.get("maxLength")):
            kept = {key: value for key, value in kept.items() if not (key.endswith("Length") and _is_count(value))}
        return {key: value if key in DATA else self.afford(value, depth + 1) for key, value in kept.items()}

    def _pay(self, low: Any, high: Any) -> bool:
        """Strings of the same lengths share their states."""
        cost = max([count for count in (low, high) if _is_count(count)], default=0)
        if (low, high) not in self._paid and cost:
            if cost > self._left:
                return False
            self._left -= cost
            self._paid.add((low, high))
        return True


def invalid(message: str) -> InvalidSchema:
    """A refusal of the schema."""
    return InvalidSchema(message, param="response_format.json_schema.schema")


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _keep(key: str, value: Any) -> bool:
    if key == "pattern" and isinstance(value, str) and _repeats(value) > MAX_REPEATS:
        raise invalid(f"A pattern repeats more than {MAX_REPEATS} times.")
    if key not in LIMITS or not _is_count(value):
        return True
    if key.startswith("min") and value > NEVER:
        raise invalid(f"{key} is over {NEVER}, which no answer can reach.")
    return bool(value <= LIMITS[key])


def _repeats(pattern: str) -> int:
    """The product of all bounds in a pattern: what nested ones can come to."""
    product = 1
    for count in _counts(pattern):
        product *= max(count, 1)
        if product > MAX_REPEATS:
            break
    return product


def _counts(pattern: str) -> Iterator[int]:
    for found in _QUANTIFIER.finditer(pattern):
        bounds = [int(bound) if len(bound) < 10 else NEVER for bound in found.groups() if bound]
        yield max(bounds, default=1)
