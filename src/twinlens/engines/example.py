"""The smallest value that a JSON schema allows, for the fake engine: enough for tests, not a solver.

Understood: type, enum, const, properties and required, items and minItems, minLength, minimum, exclusiveMinimum,
anyOf/oneOf (the first), allOf (the first) and local `$ref`. Anything else is ignored.
"""

from __future__ import annotations

from typing import Any

DEEPEST = 32


def example(schema: Any, root: Any = None, depth: int = 0) -> Any:
    """A value for `schema`; the same one each time. Recursion deeper than DEEPEST gives None."""
    if not isinstance(schema, dict) or depth > DEEPEST:
        return None if depth > DEEPEST else {}
    root = schema if root is None else root
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return example(schema[key][0], root, depth + 1)
    if "$ref" in schema:
        return example(_local(schema["$ref"], root), root, depth + 1)
    return _of_type(schema, root, depth)


def _of_type(schema: dict[str, Any], root: Any, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        properties = schema.get("properties", {})
        wanted = schema.get("required", properties)
        return {name: example(properties.get(name, {}), root, depth + 1) for name in wanted}
    if kind == "array":
        item = schema.get("items", {"type": "string"})
        return [example(item, root, depth + 1) for _ in range(schema.get("minItems", 0))]
    if kind in ("integer", "number"):
        least = schema.get("exclusiveMinimum")
        return schema.get("minimum", 0) if least is None else int(least) + 1
    plain: dict[Any, Any] = {"boolean": True, "null": None}
    return plain.get(kind, "x" * max(schema.get("minLength", 0), 1))


def _local(reference: str, root: Any) -> Any:
    found = root
    for step in filter(None, reference.removeprefix("#").split("/")):
        if isinstance(found, dict):
            found = found.get(step.replace("~1", "/").replace("~0", "~"), {})
    return found
