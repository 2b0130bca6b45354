"""Jinja2 templates of task files, bounded in time, memory and output.

Templates come from the operator and their data from a model and from clients. Jinja2's sandbox keeps them from Python's
insides; what it leaves open is work without end. So every turn of a loop and every call of a macro counts against a
budget, everything that joins or repeats is checked before it is made, methods and filters are a short list of harmless
ones, and the output is counted while it is written.
"""

from __future__ import annotations

import datetime as dt
import difflib
import json
import re
import time
from typing import TYPE_CHECKING, Any

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, nodes, pass_context
from jinja2.exceptions import SecurityError, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from twinlens.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Template
    from jinja2.runtime import Context

MAX_SOURCE = 64 << 10  # characters of a template
MAX_TURNS = 100_000  # of all loops and macros of one rendering together, with the weight of what it makes
MAX_SECONDS = 2.0
MAX_OUTPUT = 1 << 20  # characters
LETTERS = 16  # characters of a text that weigh as much as one turn

_TEXT = frozenset(
    (
        *("capitalize", "casefold", "lower", "upper", "swapcase", "title", "strip", "lstrip", "rstrip", "count"),
        *("find", "rfind", "startswith", "endswith", "removeprefix", "removesuffix", "split", "rsplit", "splitlines"),
        *("partition", "rpartition", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isspace"),
        *("istitle", "isupper"),
    )
)
_METHODS: dict[type, frozenset[str]] = {
    str: _TEXT,
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
}
_FILTERS = (
    *("abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby", "int"),
    *("items", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "round"),
    *("select", "selectattr", "sort", "string", "sum", "title", "trim", "truncate", "unique", "upper", "wordcount"),
)


class TooMuch(SecurityError):
    """The template asks for more than it may have."""


class _Count(NodeTransformer):
    """Puts a call that counts into every loop and macro, and around everything that makes a text or a list."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - the visitor's way of naming
        return self._counted(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._counted(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        return self._counted(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("twinlens_joined", node.nodes, node)

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("twinlens_made", [node], node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("twinlens_made", [node], node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("twinlens_made", [node], node) if node.ctx == "load" else node

    def _counted(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        node.body = [nodes.ExprStmt(_call("twinlens_turn", [], node), lineno=node.lineno), *node.body]
        return node  # type: ignore[no-any-return]


def _call(name: str, arguments: list[nodes.Expr], at: nodes.Node) -> nodes.Call:
    function = nodes.Name(name, "load", lineno=at.lineno)
    return nodes.Call(function, arguments, [], None, None, lineno=at.lineno)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if not super().is_safe_attribute(obj, attr, value):
            return False
        if not callable(value):
            return True
        return any(isinstance(obj, kind) and attr in names for kind, names in _METHODS.items())

    def wrap_str_format(self, value: Any) -> Any:
        # The sandbox lets texts format themselves, to any width.
        return None

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            raise TooMuch("texts are not formatted with %")
        if operator == "**" and not (_small(left, 1e6) and _small(right, 64)):
            raise TooMuch("the power is too large")
        if operator == "*" and (hasattr(left, "__len__") or hasattr(right, "__len__")):
            raise TooMuch("texts and lists are not multiplied")
        if operator == "*" and not (_small(left, 1e18) and _small(right, 1e18)):
            raise TooMuch("the product is too large")
        made = super().call_binop(context, operator, left, right)
        if operator == "+" and not isinstance(made, int | float):
            context["twinlens_made"](made)
        return made


def _small(value: Any, most: float) -> bool:
    return isinstance(value, int | float) and abs(value) <= most


class _Budget:
    """What one rendering has left."""

    def __init__(self) -> None:
        self.turns = MAX_TURNS
        self.end = time.monotonic() + MAX_SECONDS

    def turn(self) -> str:
        """One more turn of a loop or call of a macro."""
        self.spend(1)
        return ""

    def spend(self, count: int) -> None:
        """So many more."""
        self.turns -= count
        if self.turns < 0:
            raise TooMuch("loops and macros take too many turns")
        if time.monotonic() > self.end:
            raise TooMuch("it takes too long")

    def fits(self, length: int) -> None:
        """So many characters of output."""
        if length > MAX_OUTPUT:
            raise TooMuch("the output is too long")
        if time.monotonic() > self.end:
            raise TooMuch("it takes too long")

    def made(self, value: Any) -> Any:
        """A text or list that the template has made, weighed as it would be written out."""
        waiting = [value]
        while waiting:
            one = waiting.pop()
            self.spend(1 + len(one) // LETTERS if isinstance(one, str) else 1)
            if isinstance(one, list | tuple):
                waiting += one
            elif isinstance(one, dict):
                waiting += [*one.keys(), *one.values()]
        return value

    def joined(self, *parts: Any) -> str:
        """“~”."""
        texts = [part if isinstance(part, str) else str(part) for part in parts]
        self.spend(sum(map(len, texts)) // LETTERS)
        return "".join(texts)

    def range(self, *bounds: int) -> range:
        """`range`, bounded."""
        found = range(*bounds)
        if len(found) > MAX_TURNS:
            raise TooMuch("a range is too long")
        return found


@pass_context
def _join(context: Context, value: Any, glue: str = "", attribute: Any = None) -> str:
    budget: _Budget = context["twinlens_budget"]
    items = [
        str(item.get(attribute, "") if attribute is not None and isinstance(item, dict) else item) for item in value
    ]
    budget.spend(len(items) + (sum(map(len, items)) + len(str(glue)) * len(items)) // LETTERS)
    joined: str = str(glue).join(items)
    return joined


@pass_context
def _replace(context: Context, text: Any, old: str, new: str, count: int = -1) -> str:
    budget: _Budget = context["twinlens_budget"]
    text, old, new = str(text), str(old), str(new)
    budget.spend((len(text) + text.count(old) * len(new)) // LETTERS)
    replaced: str = text.replace(old, new, count)
    return replaced


@pass_context
def _tojson(context: Context, value: Any) -> str:
    """Plain UTF-8, no escapes beyond need. An undefined value is an error, not a null."""
    budget: _Budget = context["twinlens_budget"]
    budget.made(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


_DATES = ("%Y-%m-%d", "%Y.%m.%d", "%Y/%m/%d", "%Y年%m月%d日", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y")
_ORDERS = {"dmy": ("%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y"), "mdy": ("%m/%d/%Y", "%m-%d-%Y")}


def _isodate(text: Any, order: str = "dmy") -> str:
    """A date as it is printed, as YYYY-MM-DD; empty for what is none. `order`: how numbers like 3/4/2025 are meant."""
    for form in (*_DATES, *_ORDERS.get(order, ())):
        try:
            return dt.datetime.strptime(str(text).strip(), form).date().isoformat()
        except ValueError:
            continue
    return ""


class Bounded:
    """A compiled template. Made once, rendered from any thread."""

    def __init__(self, source: str, where: str) -> None:
        """Raises TaskError for a template that cannot be compiled."""
        if len(source) > MAX_SOURCE:
            raise TaskError(f"{where}: the template has more than {MAX_SOURCE} characters.")
        self._environment = _Environment(
            undefined=StrictUndefined,
            autoescape=False,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=False,
        )
        self._environment.filters = {name: self._environment.filters[name] for name in _FILTERS} | {
            "join": _join,
            "replace": _replace,
            "tojson": _tojson,
            "isodate": _isodate,
        }
        self._environment.globals = {}
        self._source = source
        try:
            parsed = self._environment.parse(source)
            self._check_names(parsed, where)
            tree = _Count().visit(parsed)
            self._template: Template = self._environment.from_string(tree)
        except TemplateSyntaxError as error:
            raise TaskError(f"{where}, line {error.lineno}: {error.message}.") from error
        except (TemplateError, RecursionError) as error:
            raise TaskError(f"{where}: the template cannot be compiled.") from error

    def _check_names(self, tree: nodes.Template, where: str) -> None:
        """Jinja2 would find a wrong name inside a condition only when it comes to it."""
        for kind, known in ((nodes.Filter, self._environment.filters), (nodes.Test, self._environment.tests)):
            for node in tree.find_all(kind):
                if node.name not in known:
                    near = difflib.get_close_matches(node.name, known, n=1)
                    hint = f" Did you mean “{near[0]}”?" if near else ""
                    raise TaskError(f"{where}, line {node.lineno}: there is no “{node.name}”.{hint}")

    def render(self, values: Mapping[str, Any]) -> str:
        """The text. Raises TemplateProblem, whose words hold nothing of `values`."""
        budget = _Budget()
        named = {
            "twinlens_turn": budget.turn,
            "twinlens_made": budget.made,
            "twinlens_joined": budget.joined,
            "twinlens_budget": budget,
            "range": budget.range,
        }
        out: list[str] = []
        length = 0
        try:
            for part in self._template.generate({**values, **named}):
                length += len(part)
                budget.fits(length)
                out.append(part)
        except RecursionError:
            raise TemplateProblem("it calls itself too deeply") from None
        except (TemplateError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
            raise TemplateProblem(self._told(error)) from None
        return "".join(out)

    def _told(self, error: Exception) -> str:
        """What is wrong, without anything of the answer: of foreign texts only names that the template holds itself."""
        if isinstance(error, TooMuch):
            return str(error)
        if not isinstance(error, UndefinedError):
            return "it does something that is not allowed or not possible here"
        message = error.message or ""
        names = re.findall(r"'([^']*)'", message)
        told = all(name in self._source or name.endswith(" object") for name in names)
        return message if told else "a name that the answer gives is undefined"


class TemplateProblem(Exception):
    """A template that could not be rendered."""
