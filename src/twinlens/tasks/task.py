"""A task: a prompt with variables, the form of its answer, and the finishing steps, under a name.

Everything that can be wrong with a task file is found when it is read; asking it can only fail for what a client gives.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from twinlens.core import AnswerFormat, ImagePart, Message, Sampling, TextPart
from twinlens.errors import FinishError, InvalidField, InvalidSchema, TaskError
from twinlens.finish import options, pointers, steps
from twinlens.finish.geometry import Geometry
from twinlens.finish.sandbox import Bounded, TemplateProblem
from twinlens.finish.schema import check_schema
from twinlens.finish.seam import About
from twinlens.tasks import reading
from twinlens.tasks.variables import Variable, check_declared, filled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from twinlens.finish.seam import Plan

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MAX_STEPS = 16
MAX_COLUMNS = 256

Pixels = Annotated[int, Meta(ge=1, le=10_000_000)]


class Pictures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many pictures a question takes, and their size for the model, in pixels of the resized picture."""

    least: Annotated[int, Meta(ge=0, le=64)] = 1
    most: Annotated[int, Meta(ge=0, le=64)] = 1
    min_pixels: Pixels | None = None
    max_pixels: Pixels | None = None
    detail: Literal["auto", "low", "high"] = "auto"


class SamplingBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the answer is drawn. Most tasks want the likeliest answer: temperature 0."""

    max_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = 0.0
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] = 0.0
    frequency_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] = 0.0
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=10.0)] | None = None


class File(msgspec.Struct, frozen=True):
    """The keys of a task file."""

    prompt: Annotated[str, Meta(min_length=1)]
    description: str = ""
    system: str = ""
    pages: str = "each"
    pictures: dict[str, Any] = {}
    variables: dict[str, dict[str, Any]] = {}
    schema: dict[str, Any] | str | None = None  # a table, or the name of a JSON file beside this one
    sampling: dict[str, Any] = {}
    steps: Annotated[tuple[dict[str, Any], ...], Meta(max_length=MAX_STEPS)] = ()
    columns: Annotated[tuple[str | dict[str, Any], ...], Meta(max_length=MAX_COLUMNS)] = ()


class ColumnBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column: its heading, and the JSON pointer to its value."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    path: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table of answers."""

    name: str
    steps: tuple[str, ...]

    def of(self, value: Any) -> Any:
        """The value of one answer: None where it is not there, a list where the pointer leads to several."""
        found = pointers.got(value, self.steps)
        return found if "*" in self.steps else found[0] if found else None


@dataclass(frozen=True, slots=True)
class Pages:
    """How the pages of one document are asked: each by itself, or together; at most the first `most`."""

    together: bool = False
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A task that was read and checked. `version` is the digest of its file and of those that it names."""

    name: str
    version: str
    description: str
    pages: Pages
    pictures: Pictures
    variables: Mapping[str, Variable]
    answer: AnswerFormat
    sampling: Sampling
    steps: tuple[Plan, ...]
    columns: tuple[Column, ...]
    _prompt: Bounded
    _system: Bounded | None

    def filled(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All variables. Raises InvalidField naming the first that is not known or does not fit."""
        return filled(self.variables, given)

    def messages(self, variables: Mapping[str, Any], pictures: int, more: str = "") -> tuple[Message, ...]:
        """The turns of the question: pictures first, then the prompt, then `more`. `variables` are filled.

        Raises InvalidField for a number of pictures that the task does not take.
        """
        least, most = self.pictures.least, self.pictures.most
        if not least <= pictures <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise InvalidField(f"The task “{self.name}” takes {wanted} pictures, not {pictures}.", param="images")
        text = self.prompt(variables) + (f"\n{more}" if more else "")
        system = self._rendered(self._system, variables) if self._system else ""
        turns = (Message("system", (TextPart(system),)),) if system else ()
        return (*turns, Message("user", (*(ImagePart(at) for at in range(pictures)), TextPart(text))))

    def prompt(self, variables: Mapping[str, Any]) -> str:
        """The prompt with the variables in it."""
        return self._rendered(self._prompt, variables)

    def row(self, value: Any) -> dict[str, Any]:
        """The columns of one answer; all top-level keys where the task names no columns."""
        if self.columns:
            return {column.name: column.of(value) for column in self.columns}
        return dict(value) if isinstance(value, dict) else {"answer": value}

    def drawable(self) -> list[tuple[str, str]]:
        """(JSON pointer, “pixels” or “fractions”) of boxes in the result that lie in the upright picture."""
        return [one for step in self.steps if isinstance(step, Geometry) for one in step.drawable()]

    @property
    def of_documents(self) -> bool:
        """Whether it wants pages of PDFs as such, not drawn as pictures: its boxes are in points of them."""
        return any(isinstance(step, Geometry) and step.chosen.to == "points" for step in self.steps)

    def _rendered(self, template: Bounded, variables: Mapping[str, Any]) -> str:
        schema = msgspec.json.encode(self.answer.schema).decode() if self.answer.kind == "json_schema" else ""
        try:
            return template.render({**variables, "schema": schema}).strip()
        except TemplateProblem as error:
            raise FinishError(f"The prompt of the task “{self.name}” could not be filled: {error}.") from error


def read(path: Path, *, secret: str = "") -> Task:
    """Read and check a task file. `secret` is the setting redact_key. Raises TaskError naming file and place."""
    name = path.stem
    if path.suffix not in reading.ENDINGS:
        raise TaskError(f"{path}: a task file ends with {', '.join(reading.ENDINGS)}.")
    if not NAME.fullmatch(name):
        raise TaskError(f"{path}: the name of a task is made of small letters, digits, “-” and “_”.")
    data = reading.content(path)
    digest = hashlib.sha256(data)

    def beside(other: str) -> bytes:
        if "/" in other or "\\" in other or other.startswith("."):
            raise TaskError(f"“{other[:80]}”: files of a task lie beside it, and are named without a folder.")
        more = reading.content(path.parent / other)
        digest.update(other.encode() + b"\0" + more)
        return more

    try:
        task = _made(name, reading.tables(path, data), About(read=beside, secret=secret))
    except TaskError as error:
        if str(path) in error.message:
            raise
        raise TaskError(f"{path}: {error.message}", cure=error.cure) from error
    return replace(task, version=digest.hexdigest())


def _made(name: str, tables: dict[str, Any], about: About) -> Task:
    said = options.read(File, tables, "")
    variables = {key: options.read(Variable, given, f"variables.{key}") for key, given in said.variables.items()}
    check_declared(variables, "variables")
    answer = _answer(said.schema, about)
    about = About(answer, "", frozenset(variables), about.read, about.secret)
    pictures = options.read(Pictures, said.pictures, "pictures")
    if pictures.least > pictures.most:
        raise TaskError(f"pictures: least {pictures.least} is more than most {pictures.most}.")
    return Task(
        name=name,
        version="",
        description=said.description,
        pages=_pages(said.pages),
        pictures=pictures,
        variables=variables,
        answer=answer,
        sampling=Sampling(**msgspec.structs.asdict(options.read(SamplingBody, said.sampling, "sampling"))),
        steps=tuple(_plans(said.steps, about)),
        columns=tuple(_column(given, at) for at, given in enumerate(said.columns)),
        _prompt=Bounded(said.prompt, "prompt"),
        _system=Bounded(said.system, "system") if said.system else None,
    )


def _answer(schema: dict[str, Any] | str | None, about: About) -> AnswerFormat:
    if schema is None:
        return AnswerFormat()
    if isinstance(schema, str):
        try:
            schema = msgspec.json.decode(about.file(schema), type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise TaskError(f"schema: {schema} holds no JSON object.") from error
    try:
        check_schema(schema, "schema")
    except InvalidSchema as error:
        raise TaskError(f"schema: {error.message}", cure=error.cure) from error
    return AnswerFormat("json_schema", _ordered(schema))


def _ordered(schema: Any) -> Any:
    """The same schema with its keywords in the order in which people, and models, expect them.

    A table of a TOML file has to name its simple keys first, and the order stands in the prompt.
    """
    if isinstance(schema, list):
        return [_ordered(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    first = [name for name in ("type", "properties", "items") if name in schema]
    last = [name for name in ("required", "additionalProperties") if name in schema]
    middle = [name for name in schema if name not in (*first, *last)]
    return {name: _of_keyword(name, schema[name]) for name in (*first, *middle, *last)}


def _of_keyword(name: str, value: Any) -> Any:
    if name in ("properties", "patternProperties", "$defs", "definitions") and isinstance(value, dict):
        return {key: _ordered(inner) for key, inner in value.items()}
    return value if name in ("enum", "const", "default", "examples", "required") else _ordered(value)


def _plans(given: tuple[dict[str, Any], ...], about: About) -> list[Plan]:
    """The steps in their order. A task with a schema is always held to it, first of all if it does not say where."""
    named = [dict(step) for step in given]
    if about.answer.kind != "text" and not any(step.get("use") == "schema" for step in named):
        named.insert(0, {"use": "schema"})
    offset = len(named) - len(given)
    return [
        steps.prepare(
            step, About(about.answer, f"steps[{max(0, at - offset)}]", about.variables, about.read, about.secret)
        )
        for at, step in enumerate(named)
    ]


def _pages(said: str) -> Pages:
    match = re.fullmatch(r"(each|together)|(?:(each|together),? )?first (\d{1,5})", said.strip())
    if not match or (match[3] and int(match[3]) < 1):
        raise TaskError(f"pages: “{said[:60]}” is none of: each, together, first N, together first N.")
    together = "together" in (match[1], match[2])
    return Pages(together, int(match[3]) if match[3] else None)


def _column(given: str | dict[str, Any], at: int) -> Column:
    if isinstance(given, str):
        return Column(given, (given,))
    said = options.read(ColumnBody, given, f"columns[{at}]")
    return Column(said.name, pointers.parsed(said.path, f"columns[{at}].path"))
