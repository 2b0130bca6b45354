"""Tables, as Markdown for people and as JSON for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Table:
    """`rows` hold numbers, not text, where they are numbers; None is a dash."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    notes: Sequence[str] = field(default=())

    def markdown(self) -> str:
        """The table under its title, with its notes below."""
        cells = [self.columns, *([_shown(cell) for cell in row] for row in self.rows)]
        widths = [max(len(row[place]) for row in cells) for place in range(len(self.columns))]
        lines = [_line(row, widths) for row in cells]
        lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        return "\n".join([f"### {self.title}", "", *lines, *(f"\n{note}" for note in self.notes), ""])

    def plain(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def median(values: Iterable[float]) -> float:
    """Of at least one value."""
    return quantile(values, 0.5)


def quantile(values: Iterable[float], share: float) -> float:
    """The value at `share` (0 to 1) of the sorted ones, interpolated between neighbours. Of at least one value."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"


def _shown(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.2f}" if abs(cell) < 100 else f"{cell:.0f}"
    return str(cell)
