"""Redaction in the picture: boxes of hidden fields are blacked out in the copy that is kept.

A field's box stands beside it in the answer: {"phone": "...", "phone_box": [...]}, or in the same object:
{"text": "...", "box": [...]}. A hidden field without a box cannot be found in the picture, so the picture is then not
to be kept: that is an error here, and never a copy that looks clean.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from twinlens.errors import FinishError
from twinlens.finish import boxes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from twinlens.finish.boxes import Box
    from twinlens.finish.redact import Redact
    from twinlens.finish.redact_value import Path
    from twinlens.finish.seam import Frame, Units

MARGIN = 0.15  # of a box's height, around it: models' boxes are tight


def without(pixels: NDArray[np.uint8], value: Any, plan: Redact, frame: Frame, units: Units) -> NDArray[np.uint8]:
    """A copy of a picture with everything black that `plan` hides of `value`.

    `pixels` are (height, width, 3), upright, at the original size, as `frame.size` says; `value` is the decoded answer
    before it was redacted, its boxes in the model's `units`. Raises FinishError where a hidden field has no box.
    """
    if pixels.shape[:2] != frame.size:
        raise FinishError("The picture is not of the size that its answer was made for.")
    _, found = plan.values.read(value)
    said, unplaced = boxes_of(value, [path for path, _ in found.paths])
    if unplaced:
        raise FinishError(f"{len(unplaced)} hidden fields have no box: the picture cannot be kept.")
    return blacked_out(pixels, [boxes.upright(box, frame, units) for box in said])


def blacked_out(pixels: NDArray[np.uint8], hidden: Iterable[Box]) -> NDArray[np.uint8]:
    """A copy with these boxes, in pixels, black: every pixel that a box touches, and a margin around it."""
    height, width = pixels.shape[:2]
    done = pixels.copy()
    for box in hidden:
        left, top, right, bottom = boxes.clipped(box, width, height)
        more = MARGIN * (bottom - top) + 1
        rows = slice(max(0, math.floor(top - more)), math.ceil(bottom + more))
        done[rows, max(0, math.floor(left - more)) : math.ceil(right + more)] = 0
    return done


def boxes_of(value: Any, paths: Sequence[Path]) -> tuple[list[Box], list[Path]]:
    """(boxes of the fields at `paths` as they stand in the answer, paths without one)."""
    found: list[Box] = []
    unplaced: list[Path] = []
    for path in paths:
        box = _nearest(value, path)
        if box is None:
            unplaced.append(path)
        elif box not in found:
            found.append(box)
    return found, unplaced


def _nearest(value: Any, path: Path) -> Box | None:
    """The box of a field, or of the nearest thing around it that has one."""
    around = [value]
    for step in path:
        around.append(around[-1][step])
    for parent, key in zip(reversed(around[:-1]), reversed(path), strict=True):
        if isinstance(parent, dict):
            for name in (f"{key}_box", "box"):
                box = _four(parent.get(name))
                if box is not None:
                    return box
    return None


def _four(given: Any) -> Box | None:
    if not isinstance(given, list) or len(given) != 4:
        return None
    if not all(type(part) in (int, float) and math.isfinite(part) for part in given):
        return None
    return (float(given[0]), float(given[1]), float(given[2]), float(given[3]))
