"""The step `geometry`: boxes from what the model wrote to the user's own frame, clipped to the picture.

The size that the model saw and the orientation of the file are those of the request, so that nothing has to be guessed.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from twinlens.errors import FinishError, InvalidField, TaskError
from twinlens.finish import boxes, options, pointers
from twinlens.finish.calibration import Calibration, Fit, fit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinlens.finish.boxes import Box
    from twinlens.finish.seam import About, Draft, Frame, Seen, Units


class Options(msgspec.Struct, frozen=True):
    """`boxes`: JSON pointers to them. `to`: the frame that is wanted. `picture`: which picture they lie in, from 0.

    “points” are those of a PDF page: left, lower, right, upper. `units`: how the model writes boxes; empty: as its
    family does. `pixels_as`: name of a further key beside each box that holds its pixels of the upright picture.
    `calibration`: a table, the name of a JSON file beside the task, or `$name` of a variable of type calibration; its
    machine coordinates go with `to = "machine"`.
    """

    boxes: Annotated[tuple[str, ...], Meta(min_length=1, max_length=64)]
    to: Literal["pixels", "file", "fractions", "points", "machine"] = "pixels"
    picture: Annotated[int, Meta(ge=0)] = 0
    units: Literal["", "thousandths", "seen"] = ""
    decimals: Annotated[int, Meta(ge=0, le=9)] = 1
    pixels_as: str = ""
    calibration: dict[str, Any] | str | None = None


class Geometry:
    """Plan of the step."""

    name, per_piece, private = "geometry", False, False

    def __init__(self, given: Mapping[str, Any], about: About) -> None:
        self.chosen = options.read(Options, given, about.where)
        self.pointers = [pointers.parsed(pointer, f"{about.where}.boxes") for pointer in self.chosen.boxes]
        self.where = f"{about.where}.calibration"
        self.variable = ""
        self.fixed: tuple[Calibration, Fit] | None = None
        said = self.chosen.calibration
        if (said is not None) != (self.chosen.to == "machine"):
            raise TaskError(f"{self.where}: goes with to = “machine”, and only with it.")
        if any(not steps or steps[-1] == "*" for steps in self.pointers) and self.chosen.pixels_as:
            raise TaskError(f"{about.where}.pixels_as: needs pointers that end with the name of a key.")
        if isinstance(said, str) and said.startswith("$"):
            self.variable = said[1:]
            options.known([self.variable], about.variables, self.where)
        elif said is not None:
            self.fixed = _calibrated(_read(said, about, self.where) if isinstance(said, str) else said, self.where)

    def begin(self, seen: Seen) -> GeometryRun:
        """See `Plan.begin`."""
        return GeometryRun(self, seen)

    def drawable(self) -> list[tuple[str, str]]:
        """(JSON pointer, units) of the boxes that can be drawn into the upright picture without knowing more."""
        chosen = self.chosen
        if chosen.pixels_as:
            return [(pointers.written((*steps[:-1], chosen.pixels_as)), "pixels") for steps in self.pointers]
        return [(path, chosen.to) for path in chosen.boxes] if chosen.to in ("pixels", "fractions") else []


class GeometryRun:
    """Run of the step."""

    def __init__(self, plan: Geometry, seen: Seen) -> None:
        self._plan = plan
        self._seen = seen
        self._changes: Counter[str] = Counter()

    def finish(self, draft: Draft) -> Draft:
        """See `WholeRun.finish`."""
        value = draft.decoded().value
        frame = self._frame()
        calibration = self._calibration()
        for pointer, steps in zip(self._plan.chosen.boxes, self._plan.pointers, strict=True):
            value = self._moved(value, pointer, steps, frame, calibration)
        return draft.with_value(value)

    def changes(self) -> Mapping[str, int]:
        """How many boxes were moved, and how many of them had to be clipped, turned round, or lay outside."""
        return self._changes

    def _frame(self) -> Frame:
        number = self._plan.chosen.picture
        if number >= len(self._seen.frames):
            raise FinishError(f"The boxes lie in picture {number}, and there are {len(self._seen.frames)} pictures.")
        return self._seen.frames[number]

    def _calibration(self) -> tuple[Calibration, Fit] | None:
        if not self._plan.variable:
            return self._plan.fixed
        name = self._plan.variable
        try:
            return _calibrated(self._seen.variables[name], self._plan.where)
        except TaskError as error:
            raise InvalidField(f"The variable “{name}”: {error.message}", param=f"variables.{name}") from error

    def _moved(
        self, value: Any, pointer: str, steps: tuple[str, ...], frame: Frame, said: tuple[Calibration, Fit] | None
    ) -> Any:
        beside = self._plan.chosen.pixels_as
        if not beside:
            return pointers.changed(value, steps, lambda box: self._box(box, pointer, frame, said)[0])

        def around(parent: Any) -> Any:
            if not isinstance(parent, dict) or steps[-1] not in parent:
                return parent
            moved, pixels = self._box(parent[steps[-1]], pointer, frame, said)
            return parent | {steps[-1]: moved, beside: pixels}

        return pointers.changed(value, steps[:-1], around)

    def _box(
        self, given: Any, pointer: str, frame: Frame, said: tuple[Calibration, Fit] | None
    ) -> tuple[list[float] | None, list[float] | None]:
        """(box in the wanted frame, box in pixels); None for a null and for a box outside the picture."""
        if given is None:
            return None, None
        box = _four(given, pointer)
        units: Units = self._plan.chosen.units or self._seen.units
        height, width = frame.size
        pixels = boxes.upright(box, frame, units)
        inside = boxes.clipped(pixels, width, height)
        self._changes[pointer] += 1
        if inside[0] >= inside[2] or inside[1] >= inside[3]:
            self._changes[f"{pointer} outside"] += 1
            return None, None
        if inside != pixels:
            turned = box[0] > box[2] or box[1] > box[3]
            self._changes[f"{pointer} {'turned round' if turned else 'clipped'}"] += 1
        return self._rounded(self._wanted(inside, frame, said, pointer)), self._rounded(inside)

    def _wanted(self, box: Box, frame: Frame, said: tuple[Calibration, Fit] | None, pointer: str) -> Box:
        to = self._plan.chosen.to
        if to == "file":
            return boxes.stored(box, frame)
        if to == "fractions":
            return _fractions(box, frame)
        if to == "points":
            if frame.page is None:
                raise InvalidField(
                    f"The boxes are wanted in points of a PDF page, and picture {self._plan.chosen.picture} is none.",
                    cure="Send a PDF, or use a task that answers in pixels.",
                )
            return boxes.points(box, frame.size, frame.page)
        if to == "machine" and said:
            return _machine(box, frame, *said, pointer)
        return box

    def _rounded(self, box: Box) -> list[float]:
        places = self._plan.chosen.decimals
        # Away from -0.0, which JSON would show.
        return [round(part, places) + 0.0 if places else round(part) for part in box]


def _fractions(box: Box, frame: Frame) -> Box:
    height, width = frame.size
    return box[0] / width, box[1] / height, box[2] / width, box[3] / height


def _machine(box: Box, frame: Frame, said: Calibration, found: Fit, pointer: str) -> Box:
    height, width = frame.size
    if said.size is not None and said.size != (width, height):
        raise FinishError(
            f"The calibration is for pictures of {said.size[0]} x {said.size[1]} pixels, not {width} x {height}."
        )
    source = {"pixels": box, "file": boxes.stored(box, frame), "fractions": _fractions(box, frame)}[said.source]
    try:
        return boxes.spanned(source, found.moved)
    except ValueError as error:
        raise FinishError(f"The box at “{pointer}” reaches beyond the horizon of the calibration.") from error


def _four(given: Any, pointer: str) -> Box:
    numbers = given if isinstance(given, list) else []
    if len(numbers) != 4 or not all(type(part) in (int, float) and math.isfinite(part) for part in numbers):
        raise FinishError(f"At “{pointer}” stands no box of four numbers.")
    return (float(numbers[0]), float(numbers[1]), float(numbers[2]), float(numbers[3]))


def _calibrated(given: Any, where: str) -> tuple[Calibration, Fit]:
    if not isinstance(given, dict):
        raise TaskError(f"{where}: a calibration is a table with “points”.")
    said = options.read(Calibration, given, where)
    return said, fit(said, where)


def _read(name: str, about: About, where: str) -> Any:
    try:
        return msgspec.json.decode(about.file(name))
    except msgspec.DecodeError as error:
        raise TaskError(f"{where}: {name} is not JSON.") from error
