"""Checks a JSON answer against what was asked for, although the engine's grammar held it already.

Pieces pass as they come; the verdict falls with the last piece of each choice. An answer cut by the token limit
keeps its finish reason “length” and is not judged: it says itself that it is not whole. A schema is checked with
`check_schema` before the engine is asked, so that a broken one never reaches it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import msgspec

from twinlens.errors import AnswerError, AnswerStalled, InvalidSchema
from twinlens.finish.schema_cost import Cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinlens.core import AnswerFormat, Piece

MAX_SCHEMA_BYTES = 256 * 1024
MAX_PATTERN_CHARS = 512
MAX_DEPTH = 64
MAX_REPEAT = 1000
# Grammar-guided models can fall into endless white space where the grammar allows it; no JSON needs so much.
MAX_WHITESPACE = 200
# The grammar holds the shape of an answer, and not every bound of every value: more tokens would not help.
UNFIT_CURE = "Ask again, or leave what is named out of the schema and check it in the answer yourself."

_REPEAT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_DIALECT = re.compile(r"https?://json-schema\.org/(draft-0[467]|draft/2019-09|draft/2020-12)/schema#?")
_LINEAR = jsonschema_rs.RegexOptions()  # the regex engine without backtracking


def check_schema(schema: Any, param: str) -> None:
    """Raise InvalidSchema, with a JSON pointer to the bad place, unless `schema` is a JSON schema we take.

    Bounds on size, depth and patterns come first, because a grammar compiler can be driven into endless work.
    """
    if not isinstance(schema, dict):
        raise InvalidSchema("The schema must be a JSON object.", param=param)
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"The schema is larger than {MAX_SCHEMA_BYTES} bytes.", param=param)
    _check_node(schema, "", 0, param)
    try:
        jsonschema_rs.meta.validate(schema)
    except jsonschema_rs.ValidationError as error:
        place = "/".join(str(step) for step in error.instance_path)[:80]
        raise InvalidSchema(f"Not a valid JSON schema at “/{place}”: {error.message[:200]}.", param=param) from error
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise InvalidSchema("The schema cannot be checked.", param=param) from error
    _build(schema, param)
    Cost(schema, param)


def _check_node(node: Any, place: str, depth: int, param: str) -> None:
    if depth > MAX_DEPTH:
        raise InvalidSchema(f"The schema is nested more than {MAX_DEPTH} deep at “{place[:80]}”.", param=param)
    if isinstance(node, dict):
        _check_keywords(node, place, param)
        for key, value in node.items():
            _check_node(value, f"{place}/{key}", depth + 1, param)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            _check_node(value, f"{place}/{index}", depth + 1, param)


def _check_keywords(node: dict[str, Any], place: str, param: str) -> None:
    patterns = node.get("patternProperties")
    for pattern in (node.get("pattern"), *(patterns if isinstance(patterns, dict) else ())):
        if isinstance(pattern, str):
            _check_pattern(pattern, place, param)
    # Nothing may be looked up outside the schema: the validator would follow such a name over the network.
    reference = node.get("$ref")
    if isinstance(reference, str) and not (reference == "#" or reference.startswith("#/")):
        raise InvalidSchema(f"The “$ref” at “{place[:80]}” is not a path inside the schema.", param=param)
    for keyword in ("$dynamicRef", "$recursiveRef"):
        if isinstance(node.get(keyword), str):
            raise InvalidSchema(f"“{keyword}” at “{place[:80]}” is not supported.", param=param)
    dialect = node.get("$schema")
    if isinstance(dialect, str) and not _DIALECT.fullmatch(dialect):
        raise InvalidSchema(f"The “$schema” at “{place}” is not a published JSON Schema dialect.", param=param)


def _check_pattern(pattern: str, place: str, param: str) -> None:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise InvalidSchema(f"A pattern at “{place}” is longer than {MAX_PATTERN_CHARS} characters.", param=param)
    product = 1
    for low, high in _REPEAT.findall(pattern):
        product *= max(int(low[:9]), int((high or "0")[:9]), 1)
    if product > MAX_REPEAT:
        raise InvalidSchema(f"The repeats of a pattern at “{place}” multiply to over {MAX_REPEAT}.", param=param)


def _build(schema: dict[str, Any], param: str) -> jsonschema_rs.Validator:
    def nothing_outside(uri: str) -> Any:
        raise ValueError(uri)

    try:
        return jsonschema_rs.validator_for(schema, retriever=nothing_outside, pattern_options=_LINEAR)
    except jsonschema_rs.ReferencingError as error:
        raise InvalidSchema("A “$ref” points to nothing inside the schema.", param=param) from error
    except jsonschema_rs.ValidationError as error:
        keyword = str(error.kind.name) if error.kind else "schema"
        raise InvalidSchema(f"Not usable as a JSON schema: see its “{keyword}”.", param=param) from error
    except ValueError as error:
        raise InvalidSchema("The schema cannot be used.", param=param) from error


class Blanks:
    """Watches for an answer that has become nothing but white space."""

    def __init__(self) -> None:
        self._blank: dict[int, int] = {}

    def stalled(self, piece: Piece) -> bool:
        """Whether the choice of this piece has ended in more white space than any JSON needs."""
        kept = piece.text.rstrip()
        trailing = len(piece.text) - len(kept)
        blank = trailing if kept else self._blank.get(piece.index, 0) + trailing
        self._blank[piece.index] = blank
        return blank > MAX_WHITESPACE


class Judge:
    """Says whether a decoded answer is what was asked for."""

    def __init__(self, answer: AnswerFormat) -> None:
        schema = answer.schema if isinstance(answer.schema, dict) else None
        self._validator = None if schema is None else _build(schema, "response_format")
        self._cost = None if schema is None else Cost(schema, "response_format")

    def fault(self, value: Any) -> str:
        """What is wrong, in a sentence that holds nothing of the answer; empty: nothing."""
        if self._validator is None or self._cost is None:
            return "" if isinstance(value, dict) else "The model's answer is not a JSON object."
        if not self._cost.allows(_depth(value)):
            return "The model's answer is nested too deeply to be checked against its schema."
        if self._validator.is_valid(value):
            return ""
        keyword = _keyword(next(self._validator.iter_errors(value)))
        return f"The model's answer does not satisfy “{keyword}” of the schema."

    def told(self, value: Any) -> str:
        """The first fault, for the model: it may quote the answer."""
        for error in self._validator.iter_errors(value) if self._validator else ():
            place = "/".join(str(step) for step in error.instance_path)[:80]
            return f"at “/{place}”: {error.message[:300]}"
        return "it is not a JSON object"


def _keyword(error: jsonschema_rs.ValidationError) -> str:
    """What of the schema is not satisfied: a keyword, never a name of the client's."""
    name = str(error.kind.name) if error.kind else "schema"
    if name != "falseSchema":
        return name
    last = error.schema_path[-1] if error.schema_path else ""
    return (
        str(last) if last in ("additionalProperties", "items", "unevaluatedProperties", "unevaluatedItems") else "false"
    )


class SchemaCheck:
    """Lets pieces pass and raises AnswerError at the end of a choice that is not what was asked for."""

    def __init__(self, answer: AnswerFormat) -> None:
        self._judge = Judge(answer)
        self._blanks = Blanks()
        self._texts: dict[int, list[str]] = {}

    def feed(self, piece: Piece) -> Sequence[Piece]:
        """Take a piece, give the pieces that may leave now."""
        if piece.text:
            self._texts.setdefault(piece.index, []).append(piece.text)
            if self._blanks.stalled(piece):
                raise AnswerStalled("The answer stalled: the model wrote nothing but white space.")
        if piece.finish_reason == "stop":
            self._decide("".join(self._texts.pop(piece.index, [])))
        return (piece,)

    def _decide(self, text: str) -> None:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise AnswerError("The model's answer is not valid JSON.") from error
        if fault := self._judge.fault(value):
            raise AnswerError(fault, cure=UNFIT_CURE)


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [
        inner
        for outer in level
        if isinstance(outer, dict | list)
        for inner in (outer.values() if isinstance(outer, dict) else outer)
    ]:
        depth += 1
    return depth
