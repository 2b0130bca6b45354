"""Reads a table of a task file into a struct; unknown keys are named, with the nearest known one."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from twinlens.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

T = TypeVar("T")

_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`")


def read(kind: type[T], given: Mapping[str, Any], where: str) -> T:
    """`given` as `kind`, a msgspec Struct. Raises TaskError naming the key below `where`."""
    known(given, [_written(name) for name in kind.__struct_fields__], where)  # type: ignore[attr-defined]
    try:
        return msgspec.convert({name.replace("-", "_"): value for name, value in given.items()}, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        found = _PATH.search(text)
        place = ".".join(filter(None, (where, found["path"] if found else "")))
        raise TaskError(f"{place or 'The file'}: {_PATH.sub('', text)}.") from None


def known(names: Iterable[str], allowed: Iterable[str], where: str) -> None:
    """Raises TaskError for the first name that is not allowed, with the nearest allowed one."""
    allowed = list(allowed)
    for name in names:
        if str(name).replace("-", "_") not in allowed:
            near = difflib.get_close_matches(str(name), allowed, n=1)
            hint = f" Did you mean “{near[0]}”?" if near else f" Known are {', '.join(allowed)}."
            raise TaskError(f"{where + ': u' if where else 'U'}nknown key “{str(name)[:60]}”.{hint}")


def _written(name: str) -> str:
    return name.replace("-", "_")
