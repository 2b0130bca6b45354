"""Boxes in the frames of a picture. Exact arithmetic on corners: no frame is rounded to another's pixels.

A box is (left, top, right, bottom); coordinates are continuous, so that a picture of width W reaches from 0 to W and a
pixel at column x from x to x + 1. Frames: what the model writes (thousandths, or pixels of the resized picture); pixels
of the upright picture; pixels as they are stored in the file, before its EXIF orientation; points of a PDF page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinlens.finish.seam import Frame, Units

Box: TypeAlias = tuple[float, float, float, float]
Point: TypeAlias = tuple[float, float]


def upright(box: Box, frame: Frame, units: Units) -> Box:
    """From what the model wrote to pixels of the upright picture; not clipped."""
    return _scaled(box, *_scale(frame, units))


def written(box: Box, frame: Frame, units: Units) -> Box:
    """The reverse of `upright`."""
    across, down = _scale(frame, units)
    return _scaled(box, 1 / across, 1 / down)


def stored(box: Box, frame: Frame) -> Box:
    """From pixels of the upright picture to pixels as stored in the file."""
    height, width = frame.size
    return spanned(box, lambda point: _TURNED[frame.orientation](*point, width, height))


def unstored(box: Box, frame: Frame) -> Box:
    """The reverse of `stored`."""
    # 6 and 8 undo each other; all others undo themselves. Seen from the stored picture its sides may be swapped.
    back = {6: 8, 8: 6}.get(frame.orientation, frame.orientation)
    height, width = frame.size if frame.orientation < 5 else frame.size[::-1]
    return spanned(box, lambda point: _TURNED[back](*point, width, height))


def clipped(box: Box, width: float, height: float) -> Box:
    """The part of a box inside the picture, its corners in order; without area if there is none."""
    left, right = sorted((box[0], box[2]))
    top, bottom = sorted((box[1], box[3]))
    return (_within(left, width), _within(top, height), _within(right, width), _within(bottom, height))


def corners(box: Box) -> tuple[Point, Point, Point, Point]:
    """The four corners, clockwise from the left upper one."""
    left, top, right, bottom = box
    return (left, top), (right, top), (right, bottom), (left, bottom)


def spanned(box: Box, move: Callable[[Point], Point]) -> Box:
    """The upright box around the moved corners of a box."""
    moved = [move(point) for point in corners(box)]
    across, down = [x for x, _ in moved], [y for _, y in moved]
    return min(across), min(down), max(across), max(down)


def _within(value: float, most: float) -> float:
    return min(max(value, 0.0), float(most))


def _scale(frame: Frame, units: Units) -> tuple[float, float]:
    (height, width), (seen_height, seen_width) = frame.size, frame.seen
    if units == "thousandths":
        return width / 1000, height / 1000
    return width / seen_width, height / seen_height


def _scaled(box: Box, across: float, down: float) -> Box:
    return box[0] * across, box[1] * down, box[2] * across, box[3] * down


# A point of the upright picture (x, y, width, height) in the stored one, by the file's EXIF orientation.
_TURNED: dict[int, Callable[[float, float, float, float], Point]] = {
    1: lambda x, y, w, h: (x, y),
    2: lambda x, y, w, h: (w - x, y),
    3: lambda x, y, w, h: (w - x, h - y),
    4: lambda x, y, w, h: (x, h - y),
    5: lambda x, y, w, h: (y, x),
    6: lambda x, y, w, h: (y, w - x),
    7: lambda x, y, w, h: (h - y, w - x),
    8: lambda x, y, w, h: (h - y, x),
}


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a PDF: its crop box in points (origin left below, y upwards) and its /Rotate, clockwise in degrees."""

    crop: Box
    rotate: int = 0  # 0, 90, 180 or 270

    @property
    def shown(self) -> tuple[float, float]:
        """(width, height) in points of the page as it is shown, after its rotation."""
        width, height = self.crop[2] - self.crop[0], self.crop[3] - self.crop[1]
        return (height, width) if self.rotate in (90, 270) else (width, height)


def points(box: Box, size: tuple[int, int], page: Page) -> Box:
    """From pixels of a rendered page, `size` (height, width), to points of the page: (left, lower, right, upper)."""
    across, down = page.shown[0] / size[1], page.shown[1] / size[0]
    width, height = page.crop[2] - page.crop[0], page.crop[3] - page.crop[1]

    def move(point: Point) -> Point:
        x, y = point[0] * across, point[1] * down
        # (x, y) is shown with y downwards; undo the rotation into the page with y upwards.
        in_page = {0: (x, height - y), 90: (y, x), 180: (width - x, y), 270: (width - y, height - x)}[page.rotate]
        return page.crop[0] + in_page[0], page.crop[1] + in_page[1]

    return spanned(box, move)


def rendered(box: Box, size: tuple[int, int], page: Page) -> Box:
    """The reverse of `points`."""
    across, down = size[1] / page.shown[0], size[0] / page.shown[1]
    width, height = page.crop[2] - page.crop[0], page.crop[3] - page.crop[1]

    def move(point: Point) -> Point:
        u, v = point[0] - page.crop[0], point[1] - page.crop[1]
        x, y = {0: (u, height - v), 90: (v, u), 180: (width - u, v), 270: (height - v, width - u)}[page.rotate]
        return x * across, y * down

    return spanned(box, move)
