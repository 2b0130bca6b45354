"""How much work a schema can make of an answer, told from the schema alone.

A validator follows every `$ref`, so a few kilobytes of `allOf` that double at each level keep it busy for days. Two
numbers bound it: how many subschemas one place of an answer meets when all references are written out, and, for
schemas that refer to themselves, how many times over one place can be checked again at each level of nesting.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from twinlens.errors import InvalidSchema

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_EXPANDED = 100_000  # subschemas met when all references are written out
MAX_WORK = 1_000_000  # checks of one place of an answer

# Applied to the same place of the answer ...
HERE_LISTS = ("allOf", "anyOf", "oneOf")
HERE_ONE = ("not", "if", "then", "else")
HERE_MAPS = ("dependentSchemas",)
# ... and to places inside it: by name, or to any.
INSIDE_NAMED = ("properties",)
INSIDE_MAPS = ("patternProperties",)
INSIDE_LISTS = ("prefixItems", "items")
INSIDE_ONE = (
    *("additionalProperties", "unevaluatedProperties", "propertyNames"),
    *("items", "additionalItems", "unevaluatedItems", "contains"),
)

Node = dict[str, Any]


class Cost:
    """The two numbers of one schema. Raises InvalidSchema, naming `param`, for one that has no bound."""

    def __init__(self, schema: Node, param: str) -> None:
        self._root = schema
        self._param = param
        self._nodes: dict[int, Node] = {}
        self._met: dict[int, Counter[int]] = {}
        self._sizes: dict[int, int] = {}
        self._collect()
        for key in list(self._nodes):
            self._meet(key, frozenset())
        self._expanded(id(schema), frozenset())
        self.repeats = self._repeats()

    def allows(self, depth: int) -> bool:
        """Whether an answer nested so deep can be checked in bounded time."""
        return self.repeats == 1 or self.repeats**depth <= MAX_WORK

    def _collect(self) -> None:
        waiting: list[Any] = [self._root]
        while waiting:
            node = waiting.pop()
            if isinstance(node, dict) and id(node) not in self._nodes:
                self._nodes[id(node)] = node
                waiting += self._here(node)
                waiting += [target for _, target in _inside(node)]

    def _here(self, node: Node) -> Iterator[Any]:
        for name in HERE_LISTS:
            yield from node[name] if isinstance(node.get(name), list) else ()
        for name in HERE_MAPS:
            yield from node[name].values() if isinstance(node.get(name), dict) else ()
        yield from (node[name] for name in HERE_ONE if name in node)
        if isinstance(node.get("$ref"), str):
            yield self._target(node["$ref"])

    def _target(self, reference: str) -> Any:
        found: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(name)] if isinstance(found, list) else found[name]
            except (KeyError, IndexError, ValueError, TypeError):
                raise InvalidSchema("A “$ref” points to nothing inside the schema.", param=self._param) from None
        return found

    def _meet(self, key: int, above: frozenset[int]) -> Counter[int]:
        """How often each subschema is met at the place of this one."""
        if key in above:
            raise InvalidSchema("A “$ref” leads back to itself without going deeper.", param=self._param)
        if key not in self._met:
            met = Counter({key: 1})
            for child in self._here(self._nodes[key]):
                if isinstance(child, dict):
                    met.update(self._meet(id(child), above | {key}))
                    self._limit(met.total())
            self._met[key] = met
        return self._met[key]

    def _expanded(self, key: int, above: frozenset[int]) -> int:
        """Subschemas met at this place and inside; what leads back counts once."""
        if key in above:
            return 1
        if key not in self._sizes:
            size = 0
            for met, times in self._met[key].items():
                for _, child in _inside(self._nodes[met]):
                    size += times * self._expanded(id(child), above | {key}) if isinstance(child, dict) else 1
                    self._limit(size)
            self._sizes[key] = size + self._met[key].total()
            self._limit(self._sizes[key])
        return self._sizes[key]

    def _limit(self, size: int) -> None:
        if size > MAX_EXPANDED:
            raise InvalidSchema(
                f"With all references written out the schema has over {MAX_EXPANDED} parts.", param=self._param
            )

    def _repeats(self) -> int:
        """Most checks of one inner place by parts of the schema that lead back to themselves; 1 without any."""
        recursive = self._recursive()
        most = 1
        for key in recursive:
            named: Counter[str] = Counter()
            anywhere = 0
            for met, times in self._met[key].items():
                for name, child in _inside(self._nodes[met]):
                    if id(child) not in recursive:
                        continue
                    if name is None:
                        anywhere += times
                    else:
                        named[name] += times
            most = max(most, anywhere + max(named.values(), default=0))
        return most

    def _recursive(self) -> set[int]:
        """Subschemas on a way that leads back to itself (or between two such)."""
        after: dict[int, set[int]] = {
            key: {
                id(child) for met in self._met[key] for _, child in _inside(self._nodes[met]) if isinstance(child, dict)
            }
            for key in self._nodes
        }
        left = set(self._nodes)
        for edges in (after, _turned(after)):
            while ends := {key for key in left if not edges[key] & left}:
                left -= ends
        return left


def _inside(node: Node) -> Iterator[tuple[str | None, Any]]:
    """(name of the place, or None for any; subschema)."""
    for keyword in INSIDE_NAMED:
        yield from node[keyword].items() if isinstance(node.get(keyword), dict) else ()
    for keyword in INSIDE_MAPS:
        yield from ((None, child) for child in node[keyword].values()) if isinstance(node.get(keyword), dict) else ()
    for keyword in INSIDE_LISTS:
        yield from ((None, child) for child in node[keyword]) if isinstance(node.get(keyword), list) else ()
    yield from ((None, node[keyword]) for keyword in INSIDE_ONE if isinstance(node.get(keyword), dict))


def _turned(edges: dict[int, set[int]]) -> defaultdict[int, set[int]]:
    turned: defaultdict[int, set[int]] = defaultdict(set)
    for start, ends in edges.items():
        for end in ends:
            turned[end].add(start)
    return turned
