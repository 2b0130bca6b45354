"""Vision-token arithmetic: which size the model sees, and how many places that takes in the prompt.

Exact for the processors of Qwen2-VL and Qwen2.5-VL (patch 14, factor 28) and Qwen3-VL (patch 16, factor 32). Sizes
are (height, width) in pixels. The gateway resizes a picture itself, and the engine's processor then must leave it
alone: so `target` gives a size that the processor maps to itself. That is the processor's own answer for every
ordinary picture; for the few where the processor's answer would be resized again or refused (a strip whose short
side rounds down past the ratio limit, bounds too tight for the shape), it is the nearest size that stays put.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twinlens.errors import ImageAspectRatio, InvalidField, SettingsError

if TYPE_CHECKING:
    from twinlens.core import Detail
    from twinlens.settings import Settings

MAX_RATIO = 200  # of the longer side to the shorter one; the processors refuse more
LOW_TOKENS = 256  # upper bound of vision tokens of a picture with detail "low"


@dataclass(frozen=True, slots=True)
class PictureRule:
    """A processor's settings: `patch` in pixels, `merge` in patches, `temporal` in frames, the bounds in pixels
    of the resized picture.
    """

    patch: int
    merge: int
    temporal: int
    min_pixels: int
    max_pixels: int

    @property
    def factor(self) -> int:
        """Both sides of what the model sees are multiples of this many pixels; one square is one vision token."""
        return self.patch * self.merge

    def bounded(self, min_pixels: int | None, max_pixels: int | None, detail: Detail) -> PictureRule:
        """The rule for one picture: within this rule's bounds, and at most 256 vision tokens with detail "low".

        Raises InvalidField, naming the bounds, when the asked-for ones lie outside or leave no size.
        """
        if min_pixels is None and max_pixels is None and detail != "low":
            return self
        low = self.min_pixels if min_pixels is None else self._within("min_pixels", min_pixels)
        high = self.max_pixels if max_pixels is None else self._within("max_pixels", max_pixels)
        if detail == "low":
            high = max(min(high, LOW_TOKENS * self.factor**2), self.min_pixels)
        rule = replace(self, min_pixels=low, max_pixels=high)
        if not rule.feasible:
            raise InvalidField(
                f"min_pixels {low} and max_pixels {high} leave no size of whole {self.factor} x {self.factor} squares.",
                cure=f"Leave min_pixels out, or make it at least {self.factor**2} less than max_pixels.",
            )
        return rule

    def of_service(self, settings: Settings) -> PictureRule:
        """The rule for all pictures of a service. Raises SettingsError for bounds that the model does not take."""
        try:
            return self.bounded(settings.min_pixels or None, settings.max_pixels or None, "auto")
        except InvalidField as error:
            raise SettingsError(error.message, cure="Change min_pixels or max_pixels.") from error

    @property
    def feasible(self) -> bool:
        """Whether any size at all satisfies the bounds."""
        tallest = math.isqrt(self.max_pixels // self.factor**2)
        return any(first <= last for first, last in map(self._widths, range(tallest, 0, -1)))

    def target(self, height: int, width: int) -> tuple[int, int]:
        """The size (height, width) that the model sees of an upright picture of this size; the processor keeps it.

        Raises ImageAspectRatio when one side is more than 200 times the other.
        """
        ratio = max(height, width) / min(height, width)
        if ratio > MAX_RATIO:
            raise ImageAspectRatio(
                f"The picture is {width} x {height} pixels: one side is {ratio:.1f} times the other, "
                f"and the model takes at most {MAX_RATIO} times."
            )
        size = self._resized(height, width)
        return size if self._stays(*size) else self._nearest(height, width)

    def grid(self, height: int, width: int) -> tuple[int, int, int]:
        """(t, h, w) in patches of a picture of this target size."""
        return 1, height // self.patch, width // self.patch

    def tokens(self, height: int, width: int) -> int:
        """Vision tokens of a picture of this target size."""
        return (height // self.factor) * (width // self.factor)

    def _within(self, name: str, value: int) -> int:
        if self.min_pixels <= value <= self.max_pixels:
            return value
        raise InvalidField(f"{name} is {value}; it must lie within {self.min_pixels} and {self.max_pixels}.")

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        """One pass of the processor, operation for operation, so that rounding falls the same way."""
        factor = self.factor
        tall, wide = round(height / factor) * factor, round(width / factor) * factor
        if tall * wide > self.max_pixels:
            beta = math.sqrt((height * width) / self.max_pixels)
            tall = max(factor, math.floor(height / beta / factor) * factor)
            wide = max(factor, math.floor(width / beta / factor) * factor)
        elif tall * wide < self.min_pixels:
            beta = math.sqrt(self.min_pixels / (height * width))
            tall = math.ceil(height * beta / factor) * factor
            wide = math.ceil(width * beta / factor) * factor
        return tall, wide

    def _stays(self, height: int, width: int) -> bool:
        inside = self.min_pixels <= height * width <= self.max_pixels
        return inside and max(height, width) <= MAX_RATIO * min(height, width)

    def _widths(self, tall: int) -> tuple[int, int]:
        """First and last allowed width of a picture this tall, all in squares; there is none if first > last."""
        square = self.factor**2
        least, most = -(-self.min_pixels // square), self.max_pixels // square
        return max(-(-least // tall), -(-tall // MAX_RATIO)), min(most // tall, tall * MAX_RATIO)

    def _nearest(self, height: int, width: int) -> tuple[int, int]:
        """The allowed size nearest to the picture's own shape, by the logarithms of both sides."""
        square = self.factor**2
        area = min(max(height * width, self.min_pixels), self.max_pixels) / square
        rows, columns = math.sqrt(area * height / width), math.sqrt(area * width / height)
        best, found = math.inf, (self.factor, self.factor)
        for tall in range(1, math.isqrt(self.max_pixels // square * MAX_RATIO) + 1):
            first, last = self._widths(tall)
            wide = min(max(round(columns), first), last)
            distance = math.log(tall / rows) ** 2 + math.log(max(wide, 1) / columns) ** 2
            if first <= last and distance < best:
                best, found = distance, (tall * self.factor, wide * self.factor)
        return found
