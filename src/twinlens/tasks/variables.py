"""Variables of a task: what it declares, and whether what a client gives fits."""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from twinlens.errors import InvalidField, TaskError, TwinlensError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_TEXT = 4096

Type = Literal["string", "integer", "number", "boolean", "calibration"]


class Variable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One variable. Without a default it has to be given. `choices` are the only values that are taken."""

    type: Type = "string"
    default: Any = UNSET
    choices: tuple[Any, ...] = ()
    description: str = ""
    max_length: Annotated[int, Meta(ge=1, le=100_000)] = MAX_TEXT  # characters of a text
    minimum: float | UnsetType = UNSET
    maximum: float | UnsetType = UNSET

    def fault(self, value: Any) -> str:
        """What is wrong with a value, as the end of a sentence; empty: nothing."""
        kinds: dict[str, tuple[type, ...]] = {
            "string": (str,),
            "integer": (int,),
            "number": (int, float),
            "boolean": (bool,),
            "calibration": (dict,),
        }
        if type(value) not in kinds[self.type]:
            return f"must be of type {self.type}"
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(map(str, self.choices))}"
        if isinstance(value, str) and len(value) > self.max_length:
            return f"has {len(value)} characters, limit {self.max_length}"
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._outside(value)
        return ""

    def _outside(self, value: float) -> str:
        if not math.isfinite(value):
            return "is not a number"
        if self.minimum is not UNSET and value < self.minimum:
            return f"is below {self.minimum:g}"
        if self.maximum is not UNSET and value > self.maximum:
            return f"is above {self.maximum:g}"
        return ""


def check_declared(variables: Mapping[str, Variable], where: str) -> None:
    """Raises TaskError for a name that a template cannot use, and for a default or choice that does not fit."""
    for name, variable in variables.items():
        if not name.isidentifier() or name in ("schema", "true", "false", "none") or name.startswith("twinlens"):
            raise TaskError(f"{where}.{name[:60]}: a variable cannot have this name.")
        for value in (*variable.choices, *(() if variable.default is UNSET else (variable.default,))):
            if fault := variable.fault(value):
                raise TaskError(f"{where}.{name}: {value!r:.60} {fault}.")


def filled(declared: Mapping[str, Variable], given: Mapping[str, Any]) -> dict[str, Any]:
    """All variables with what was given or their defaults. Raises InvalidField naming the first that does not fit."""
    for name in given:
        if name not in declared:
            near = difflib.get_close_matches(name, declared, n=1)
            known = f"Did you mean “{near[0]}”?" if near else f"Known are: {', '.join(declared) or 'none'}."
            raise _wrong(name, f"is not known to this task. {known}")
    values = {}
    for name, variable in declared.items():
        value = given.get(name, variable.default)
        if value is UNSET:
            raise _wrong(name, "has to be given.")
        if fault := variable.fault(value):
            raise _wrong(name, f"{fault}.")
        values[name] = value
    return values


def _wrong(name: str, fault: str) -> TwinlensError:
    return InvalidField(f"The variable “{name[:60]}” {fault}", param=f"variables.{name[:60]}")
