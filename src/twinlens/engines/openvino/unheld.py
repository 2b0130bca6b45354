"""What of a schema neither translation into a grammar holds an answer to.

The pipeline's translation leaves out in silence what it does not know, and for some schemas nearly everything: beside
several `allOf` it takes any JSON at all. An answer would then fail its check whenever the model did not hit upon the
shape by itself. So a schema whose shape would be lost is refused, by the keyword. What merely narrows a value inside a
shape that holds (`uniqueItems`, `multipleOf`, bounds of fractions, lengths beside a `pattern`, large counts) is left to
the check of the finished answer: models mostly satisfy it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinlens.engines.openvino.means import DATA, invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinlens.errors import InvalidSchema

NEVER_HELD = ("not", "dependentSchemas", "dependentRequired", "dependencies", "contains")
NAMES = frozenset(("properties", "patternProperties", "$defs", "definitions"))  # their keys are names, not keywords
SHAPE = ("properties", "required", "additionalProperties", "patternProperties", "items", "prefixItems")
# The first of these in a schema is all that the pipeline's translation sees of it.
ALONE = ("$ref", "anyOf", "oneOf", "allOf")


def refuse(schema: Any) -> None:
    """Raise InvalidSchema, naming the keyword, if the shape of answers would not be held."""
    for place, node in _nodes(schema, ""):
        if fault := _fault(node):
            raise _refusal(fault, place)


def _fault(node: dict[str, Any]) -> str:
    """The keyword that is not held, and beside what; empty: none."""
    for keyword in NEVER_HELD:
        if keyword in node:
            return f"“{keyword}”"
    if "if" in node and ("then" in node or "else" in node):
        return "“if”"
    if isinstance(node.get("allOf"), list) and len(node["allOf"]) > 1:
        return "“allOf” of several schemas"
    for keyword in ALONE:
        if keyword in node:
            beside = next((other for other in (*ALONE, *SHAPE) if other in node and other != keyword), "")
            return f"“{keyword}” beside “{beside}”" if beside else ""
    return _of_object(node)


def _of_object(node: dict[str, Any]) -> str:
    properties = node.get("properties", {})
    if properties and "patternProperties" in node:
        return "“patternProperties” beside “properties”"
    names_held = not properties and not isinstance(node.get("additionalProperties"), dict)
    if "propertyNames" in node and not names_held:
        return f"“propertyNames” beside “{'properties' if properties else 'additionalProperties'}”"
    required = node.get("required")
    if isinstance(required, list) and set(required) - set(properties):
        return "“required” with a name that “properties” does not have"
    return ""


def _nodes(node: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema inside a schema, with its place."""
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from _nodes(item, f"{place}/{index}")
    elif isinstance(node, dict):
        yield place, node
        for key, value in node.items():
            if key in NAMES and isinstance(value, dict):
                for name, inner in value.items():
                    yield from _nodes(inner, f"{place}/{key}/{name}")
            elif key not in DATA and key != "required":
                yield from _nodes(value, f"{place}/{key}")


def _refusal(fault: str, place: str) -> InvalidSchema:
    error = invalid(f"The engine's grammar cannot enforce {fault}, at “{place[:80] or '/'}” of the schema.")
    error.cure = "Say it in another way, or leave it out of the schema and check it in the answer yourself."
    return error
