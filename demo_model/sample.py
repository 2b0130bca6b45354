"""The nouns of the generator: a turn, and a sample made of pictures and turns."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Turn:
    """One question and its right answer. `schema` is set where the answer is JSON; `kind` says how to score."""

    prompt: str
    answer: str
    skill: str
    kind: str = "text"  # text | json | box | refuse
    schema: dict[str, Any] | None = None
    lang: str = "en"


@dataclass
class Sample:
    images: list[Image.Image]
    turns: list[Turn]
    noise: bool
    system: str | None = None
    #: where in the first user message the pictures stand
    text_first: bool = False
    notes: dict[str, Any] = field(default_factory=dict)


_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def compact(value: object) -> str:
    return _compact.encode(value)


class Number(str):
    """A number that keeps its printed form (1284.50 stays 1284.50) when written as JSON."""


def written(value: object) -> str:
    """JSON without spaces; `Number` values unquoted as printed."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{compact(key)}:{written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(item) for item in value) + "]"
    return compact(value)


def schema_of(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


BOX_SCHEMA: dict[str, Any] = {"type": "array", "items": {"type": "integer"}, "minItems": 4, "maxItems": 4}
