"""From pixels to the coordinates of a machine: a mapping fitted to pairs of points by least squares.

Pairs that do not determine a mapping (too few, the same point twice, all on a line) are refused, and so is a fit whose
error is larger than allowed: a robot that goes to the wrong place is worse than one that stands still.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from twinlens.errors import TaskError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from twinlens.finish.boxes import Point

LEAST = {"affine": 3, "homography": 4}
FLAT = 1e-4  # ratio of singular values, of points scaled to unit spread, below which they lie on a line


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a task file or a variable says. `points` are pairs [x, y, machine x, machine y].

    `source`: what x and y are; fractions are of the upright picture's width and height. `origin` is taken from every
    machine coordinate. `size` [width, height]: the picture that the points were taken from; another size is refused.
    """

    points: Annotated[tuple[tuple[float, float, float, float], ...], Meta(min_length=3, max_length=10_000)]
    kind: Literal["affine", "homography"] = "affine"
    source: Literal["pixels", "file", "fractions"] = "pixels"
    units: Annotated[str, Meta(max_length=32)] = "mm"
    origin: tuple[float, float] = (0.0, 0.0)
    max_residual: Annotated[float, Meta(gt=0)] | None = None  # in `units`
    size: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted mapping. `residual` and `worst` are the root mean square and the largest distance, in machine units."""

    matrix: NDArray[np.float64]  # 3 x 3, on (x, y, 1)
    residual: float
    worst: float
    ahead: float  # the sign of the third coordinate in front of the camera

    def moved(self, point: Point) -> Point:
        """A point in machine coordinates. Raises ValueError beyond the horizon of a homography."""
        x, y, w = (float(part) for part in self.matrix @ np.array((point[0], point[1], 1.0)))
        if w * self.ahead <= 1e-12:
            raise ValueError("beyond the horizon")
        return x / w, y / w

    def back(self, point: Point) -> Point:
        """The reverse of `moved`."""
        x, y, w = (float(part) for part in np.linalg.solve(self.matrix, np.array((point[0], point[1], 1.0))))
        return x / w, y / w


def fit(said: Calibration, where: str) -> Fit:
    """Fit it. Raises TaskError for pairs that determine no mapping, and for a fit worse than `max_residual`."""
    pairs = np.array(said.points, dtype=np.float64)
    if len(pairs) < LEAST[said.kind]:
        raise TaskError(f"{where}: the {said.kind} needs {LEAST[said.kind]} pairs of points, not {len(pairs)}.")
    if not np.isfinite(pairs).all():
        raise TaskError(f"{where}: a coordinate is not a number.")
    source, target = pairs[:, :2], pairs[:, 2:] - np.array(said.origin)
    for points, called in ((source, "picture"), (target, "machine")):
        _spread(points, f"{where}: the points in the {called}")
    matrix = _affine(source, target) if said.kind == "affine" else _homography(source, target, where)
    moved = np.c_[source, np.ones(len(source))] @ matrix.T
    if (np.sign(moved[:, 2]) != np.sign(moved[0, 2])).any():
        raise TaskError(f"{where}: no camera sees points like these; two of them may be exchanged.")
    misses = np.hypot(*(moved[:, :2] / moved[:, 2:] - target).T)
    found = Fit(matrix, math.sqrt(float(np.mean(misses**2))), float(misses.max()), float(np.sign(moved[0, 2])))
    if said.max_residual is not None and found.worst > said.max_residual:
        raise TaskError(
            f"{where}: a pair is off by {found.worst:.4g} {said.units}, more than max_residual {said.max_residual:g}.",
            cure="Measure the pairs again; the pair that is farthest off is named by its number: "
            f"{int(misses.argmax()) + 1}.",
        )
    return found


def _spread(points: NDArray[np.float64], what: str) -> None:
    strength = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
    if strength[0] == 0 or strength[1] / strength[0] < FLAT:
        raise TaskError(f"{what} lie on one line, which says nothing about the other direction.")


def _normal(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix that moves points to mean 0 and spread 1: the equations are then well conditioned."""
    middle = points.mean(axis=0)
    scale = math.sqrt(2) / float(np.hypot(*(points - middle).T).mean())
    return np.array([[scale, 0, -scale * middle[0]], [0, scale, -scale * middle[1]], [0, 0, 1]])


def _affine(source: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    normal = _normal(source)
    plain = np.c_[source, np.ones(len(source))] @ normal.T
    solved, *_ = np.linalg.lstsq(plain, target, rcond=None)
    return np.asarray(np.vstack([solved.T, [0, 0, 1]]) @ normal)


def _homography(source: NDArray[np.float64], target: NDArray[np.float64], where: str) -> NDArray[np.float64]:
    from_, to = _normal(source), _normal(target)
    (x, y), (u, v) = (
        (np.c_[points, np.ones(len(points))] @ normal.T)[:, :2].T for points, normal in ((source, from_), (target, to))
    )
    one, zero = np.ones_like(x), np.zeros_like(x)
    rows = np.vstack(
        [
            np.c_[x, y, one, zero, zero, zero, -u * x, -u * y, -u],
            np.c_[zero, zero, zero, x, y, one, -v * x, -v * y, -v],
        ]
    )
    _, strength, directions = np.linalg.svd(rows)
    # Eight equations must be independent; three of four points on a line leave only seven.
    if strength[7] / strength[0] < FLAT:
        raise TaskError(
            f"{where}: these pairs do not determine a homography; no three of four points may lie on a line."
        )
    matrix = np.linalg.inv(to) @ directions[-1].reshape(3, 3) @ from_
    if abs(np.linalg.det(directions[-1].reshape(3, 3))) < FLAT**2:
        raise TaskError(f"{where}: these pairs do not determine a homography.")
    return np.asarray(matrix / np.linalg.norm(matrix))
