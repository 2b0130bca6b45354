"""Titles of a table."""

from __future__ import annotations

from twinlens.batch.output import FIXED, LAST, titles_of


def test_no_title_stands_twice_and_a_tasks_time_is_its_own() -> None:
    columns = tuple((name, (name,)) for name in ("time", "path", "error", "error_", "total"))
    titles = titles_of(columns)
    assert titles == [*FIXED, "time", "path_", "error", "error_", "total", "error__", *LAST[1:]]
    assert len(set(titles)) == len(titles)
