"""A JSON schema as a grammar of compact JSON.

The pipeline's own translation lets white space run on without end between the parts of a document, and a model that
falls into it writes nothing else until its tokens are used up. This one allows at most one space behind a comma or
a colon. It knows the part of JSON Schema that answers are described with; for anything else `grammar` gives None
and the pipeline's translation is used, with a watch on its white space (`answer`).

As in OpenAI's strict mode, an object with `properties` has no others unless `additionalProperties` says so, and they
come in the order of the schema. `uniqueItems`, `multipleOf` and bounds of fractions are left to the check of the
finished answer.
"""

from __future__ import annotations

import json
from typing import Any

from twinlens.engines.openvino import ebnf_numbers

NOTES = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")
ANNOTATIONS = frozenset((*NOTES, "$schema", "$id", "$comment", "$defs", "definitions"))
CHECKED_LATER = frozenset(("uniqueItems", "multipleOf"))
KNOWN = {
    "object": frozenset(("properties", "required", "additionalProperties")),
    "array": frozenset(("items", "minItems", "maxItems")),
    "string": frozenset(("minLength", "maxLength", "format")),
    "integer": frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    "number": frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    "boolean": frozenset[str](),
    "null": frozenset[str](),
}
MAX_RULES = 4000

# A control character needs its escape; every other character is written as it is. An exponent has two digits, so that
# no number is beyond what a double holds: JSON allows it, and readers make infinity or null of it.
CHAR = r"""[^"\\\x00-\x1F] | "\\" ["\\/bfnrt] | "\\u00" [01] [0-9a-fA-F]"""
BASE = rf"""
string ::= "\"" ({CHAR})* "\""
digits ::= [0-9]{{1,17}}
natural ::= "0" | [1-9] [0-9]{{0,17}}
integer ::= "-"? natural
number ::= "-"? decimal
decimal ::= natural ("." digits)? ([eE] [+-]? [0-9]{{1,2}})?
comma ::= "," " "?
colon ::= ":" " "?
pair ::= string colon any
object ::= "{{" (pair (comma pair)*)? "}}"
array ::= "[" (any (comma any)*)? "]"
any ::= object | array | string | number | "true" | "false" | "null"
"""
FORMATS = {
    "date": r'"\"" day "\""',
    "time": r'"\"" clock "\""',
    "date-time": r'"\"" day "T" clock "\""',
    "uuid": r'"\"" [0-9a-f]{8} "-" [0-9a-f]{4} "-" [0-9a-f]{4} "-" [0-9a-f]{4} "-" [0-9a-f]{12} "\""',
}
DATES = r"""
day ::= [0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [12] [0-9] | "3" [01])
minutes ::= ":" [0-5] [0-9]
clock ::= ([01] [0-9] | "2" [0-3]) minutes minutes ("." [0-9]{1,6})? ("Z" | [+-] [0-2] [0-9] minutes)
"""


class Unknown(Exception):
    """The schema holds something that this translation does not know."""


def grammar(schema: Any) -> str | None:
    """The grammar in EBNF, or None where the schema goes beyond what is known here."""
    writer = _Writer(schema)
    try:
        start = writer.rule(schema)
    except (Unknown, RecursionError):
        return None
    return "\n".join([f"root ::= {start}", *writer.rules, BASE, DATES])


class _Writer:
    """Collects rules. Each method gives an expression for a place in the schema."""

    def __init__(self, root: Any) -> None:
        self.rules: list[str] = []
        self._root = root
        self._names: dict[str, str] = {}  # of references, so that recursion ends
        self._made: dict[str, str] = {}  # expression to name: what is said once is compiled once

    def rule(self, schema: Any) -> str:
        """Name of a rule, or of a basic one, for any schema."""
        if schema is True or schema == {}:
            return "any"
        if not isinstance(schema, dict):
            raise Unknown
        if "$ref" in schema:
            return self._reference(schema)
        if "const" in schema or "enum" in schema:
            return self._new(self._values(schema))
        for key in ("anyOf", "oneOf", "allOf"):
            if key in schema:
                return self._several(key, schema)
        return self._typed(schema)

    def _new(self, expression: str, name: str = "") -> str:
        if not name and expression in self._made:
            return self._made[expression]
        name = name or f"r{len(self.rules)}"
        if len(self.rules) > MAX_RULES:
            raise Unknown
        self._made[expression] = name
        self.rules.append(f"{name} ::= {expression}")
        return name

    def _reference(self, schema: dict[str, Any]) -> str:
        _only(schema, {"$ref"})
        reference = schema["$ref"]
        if reference not in self._names:
            self._names[reference] = f"ref{len(self._names)}"
            self._new(self.rule(self._find(reference)), self._names[reference])
        return self._names[reference]

    def _find(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise Unknown
        found = self._root
        for step in reference[1:].split("/")[1:]:
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        if found is None or (isinstance(found, dict) and found.get("$ref") == reference):
            raise Unknown
        return found

    def _values(self, schema: dict[str, Any]) -> str:
        _only(schema, {"const", "enum", "type"})
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        if not isinstance(values, list) or not values:
            raise Unknown
        return " | ".join(_literal(json.dumps(value, ensure_ascii=False, separators=(",", ":"))) for value in values)

    def _several(self, key: str, schema: dict[str, Any]) -> str:
        _only(schema, {key})
        choices = schema[key]
        if not isinstance(choices, list) or not choices or (key == "allOf" and len(choices) > 1):
            raise Unknown
        return self._new(" | ".join([self.rule(choice) for choice in choices]))

    def _typed(self, schema: dict[str, Any]) -> str:
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            allowed = ANNOTATIONS.union(*(KNOWN.get(one, frozenset()) for one in kind))
            _only(schema, {"type", *allowed})
            parts = [self._typed(_narrowed(schema, one)) for one in kind]
            return self._new(" | ".join(parts))
        if kind is None and ("properties" in schema or "items" in schema):
            kind = "object" if "properties" in schema else "array"
        if not isinstance(kind, str) or kind not in KNOWN:
            raise Unknown
        _only(schema, {"type", *KNOWN[kind]})
        return str(getattr(self, f"_{kind}")(schema))

    def _boolean(self, _: dict[str, Any]) -> str:
        return self._new('"true" | "false"')

    def _null(self, _: dict[str, Any]) -> str:
        return self._new('"null"')

    def _string(self, schema: dict[str, Any]) -> str:
        form = schema.get("format")
        if form is not None:
            if form not in FORMATS or "minLength" in schema or "maxLength" in schema:
                raise Unknown
            return self._new(FORMATS[form])
        if "minLength" not in schema and "maxLength" not in schema:
            return "string"
        return self._new(f'"\\"" ({CHAR}){_times(schema, "Length")} "\\""')

    def _integer(self, schema: dict[str, Any]) -> str:
        low, high = ebnf_numbers.whole_bounds(schema)
        if low is None and high is None:
            return "integer"
        expression = ebnf_numbers.between(low, high)
        if expression is None:
            raise Unknown
        return self._new(expression)

    def _number(self, schema: dict[str, Any]) -> str:
        low = schema.get("minimum", schema.get("exclusiveMinimum"))
        not_negative = isinstance(low, int | float) and low >= 0
        return "decimal" if not_negative else "number"

    def _array(self, schema: dict[str, Any]) -> str:
        item = self.rule(schema.get("items", True))
        low, high = _bounds(schema, "Items")
        if high == 0:
            return self._new('"[" "]"')
        most = "" if high is None else high - 1
        some = f"{item} (comma {item}){{{max(low - 1, 0)},{most}}}"
        return self._new(f'"[" {some} "]"' if low else f'"[" ({some})? "]"')

    def _object(self, schema: dict[str, Any]) -> str:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        extra = schema.get("additionalProperties", "properties" not in schema)
        if not isinstance(properties, dict) or not isinstance(required, list) or set(required) - set(properties):
            raise Unknown
        more = "" if extra is False else self._new(f"string colon {self.rule(extra)}")
        after = f"(comma {more})*" if more else '""'
        first = f"({more} {after})?" if more else '""'
        for name in reversed(properties):
            pair = self._new(f"{_literal(json.dumps(name, ensure_ascii=False))} colon {self.rule(properties[name])}")
            if name in required:
                first = self._new(f"{pair} {after}")
                after = self._new(f"comma {pair} {after}")
            else:
                first = self._new(f"{pair} {after} | {first}")
                after = self._new(f"(comma {pair})? {after}")
        return self._new(f'"{{" {first} "}}"')


def _only(schema: dict[str, Any], keys: set[str]) -> None:
    if any(key not in keys and key not in ANNOTATIONS and key not in CHECKED_LATER for key in schema):
        raise Unknown


def _narrowed(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """The schema of one of several types, with the keywords that speak of it."""
    return {key: value for key, value in schema.items() if key in KNOWN.get(kind, ())} | {"type": kind}


def _bounds(schema: dict[str, Any], what: str) -> tuple[int, int | None]:
    low, high = schema.get(f"min{what}", 0), schema.get(f"max{what}")
    if not isinstance(low, int) or not (high is None or isinstance(high, int)) or (high is not None and high < low):
        raise Unknown
    return low, high


def _times(schema: dict[str, Any], what: str) -> str:
    low, high = _bounds(schema, what)
    return f"{{{low},{'' if high is None else high}}}"


def _literal(text: str) -> str:
    """Text as a string of the grammar."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char >= " " else f"\\x{ord(char):02x}" for char in escaped) + '"'
