"""Hides what is personal in decoded JSON: by the names of fields, and by content. Keys stay, and it stays JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from twinlens.finish.redact_fields import kind_of, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from twinlens.finish.redact_text import Reader

Path = tuple[str | int, ...]
FIELD = "field"  # the kind of a field that the task itself names


@dataclass(slots=True)
class Found:
    """What was hidden, and where."""

    paths: list[tuple[Path, str]] = field(default_factory=list)  # (path of the value, kind)

    def changes(self, shown: Collection[str]) -> dict[str, int]:
        """Counts by place and kind. Only keys in `shown` are told; others might be content."""
        return dict(Counter(f"{told(path, shown)} {kind}" for path, kind in self.paths))


def told(path: Path, shown: Collection[str]) -> str:
    """A path as JSON pointer, list places as “*”, keys that are not known as “?”."""
    return "".join("/*" if isinstance(step, int) else f"/{step if step in shown else '?'}" for step in path) or "/"


class ValueReader:
    """Goes through a value. `fields` are names that the task adds; `kinds` those that are hidden."""

    def __init__(
        self, reader: Reader, kinds: Collection[str], fields: Collection[str], hide: Callable[[str, str], str | None]
    ) -> None:
        self._reader = reader
        self._kinds = frozenset(kinds)
        self._fields = frozenset(plain(name) for name in fields)
        self._hide = hide  # of a whole field; None: the value becomes null

    def read(self, value: Any) -> tuple[Any, Found]:
        """(the value with everything hidden, what was)."""
        found = Found()
        return self._any(value, (), None, found), found

    def _any(self, value: Any, path: Path, kind: str | None, found: Found) -> Any:
        if isinstance(value, dict):
            return self._object(value, path, kind, found)
        if isinstance(value, list):
            return [self._any(item, (*path, at), kind, found) for at, item in enumerate(value)]
        if isinstance(value, bool) or value is None or value == "":
            return value
        text = value if isinstance(value, str) else _digits(value)
        if kind is not None:
            found.paths.append((path, kind))
            return self._hide(kind, text)
        said, kinds = self._reader.read(text)
        found.paths += [(path, one) for one in kinds]
        if not kinds:
            return value
        return None if said == "" and not isinstance(value, str) else said

    def _object(self, value: dict[str, Any], path: Path, kind: str | None, found: Found) -> dict[str, Any]:
        done: dict[str, Any] = {}
        for key, item in value.items():
            inner = self._any(item, (*path, key), kind or self._kind(key), found)
            name, kinds = self._reader.read(key)
            if kinds:
                found.paths += [(path, one) for one in kinds]
                while name in done or (name in value and name != key):
                    name += "*"
            done[name if kinds else key] = inner
        return done

    def _kind(self, key: str) -> str | None:
        if plain(key) in self._fields:
            return FIELD if (kind_of(key) or "") not in self._kinds else kind_of(key)
        kind = kind_of(key)
        return kind if kind in self._kinds else None


def _digits(value: float) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e20 else str(value)
