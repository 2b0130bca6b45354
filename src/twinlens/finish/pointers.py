"""Places in decoded JSON: JSON pointers (RFC 6901) in which a step “*” stands for every element of a list or object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from twinlens.errors import TaskError

Change: TypeAlias = Callable[[Any], Any]


def parsed(pointer: str, where: str) -> tuple[str, ...]:
    """The steps of a pointer. Raises TaskError where it is none."""
    if pointer and not pointer.startswith("/"):
        raise TaskError(f"{where}: “{pointer[:80]}” is no JSON pointer; they look like “/box” or “/defects/*/box”.")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])


def written(steps: tuple[str, ...]) -> str:
    """The reverse of `parsed`."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def changed(value: Any, steps: tuple[str, ...], change: Change) -> Any:
    """`value` with `change` made wherever `steps` lead; places that are not there are left out."""
    if not steps:
        return change(value)
    first, rest = steps[0], steps[1:]
    if isinstance(value, dict):
        names = list(value) if first == "*" else [first] if first in value else []
        return {key: changed(item, rest, change) if key in names else item for key, item in value.items()}
    if isinstance(value, list):
        return [
            changed(item, rest, change) if first == "*" or first == str(at) else item for at, item in enumerate(value)
        ]
    return value


def got(value: Any, steps: tuple[str, ...]) -> list[Any]:
    """All values to which `steps` lead."""
    found: list[Any] = []

    def look(item: Any) -> Any:
        found.append(item)
        return item

    changed(value, steps, look)
    return found
