"""Which tests hold which field case: failures that people who run such services reported, each with an id.

    python -m tests.field_cases          # the table: id, tests, and whether one of them goes through the front door

A test is a case's by its name (`test_img_07_...`, `test_url_06_url_07_...`, `test_sec_01_03_...`) or by an id in its
docstring (“IMG-07”). Nothing else is written down, so nothing can drift; `test_field_cases.py` says what is missing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent
# Tests in these start processes and speak to them as a user would.
FRONT_DOOR = ("serving", "cli", "contracts", "proof", "batch")
CASES = {
    "IMG": "01 03 05 07 09 10 12 14 16 17 18 19 21 22 24 26",
    "B64": "01 02 03 04 07 08 09 11",
    "URL": "01 02 04 06 07 08 09 10 11",
    "API": "01 03 05 06 07 09 10 11 12 13 15 16 17 18 20 21",
    "PDF": "01 02 04 05 07 09 10",
    "CACHE": "01 03 05 06 08 09 10 12 13 14",
    "CONC": "01 02 04 06 08 09 10 13",
    "JSON": "01 02 03 04 06 08 09",
    "BATCH": "01 02 03 05 07 08 10 11 13 15",
    "OPS": "01 03 04 05 07 08 10 12 14 15 17 18 20 21 22",
    "RATE": "01 02 04 05",
    "SEC": "01 02 03 04 05 07 09 11 12 14",
}
HELD = (
    "IMG",
    "B64",
    "URL",
    "API",
    "PDF",
    "CACHE",
    "CONC",
    "JSON",
    "RATE",
    "SEC",
)  # kinds of which every case needs a test
# Where nothing of the case can be seen from outside, and why.
INSIDE = {
    "CACHE-03": "five thousand keys are compared, which a service would take minutes to make",
    "URL-04": "the resolver has to answer twice in different ways",
    "URL-10": "what a fetch calls itself is seen by the site of the test",
}
_KIND = "|".join(CASES)
_NAME = re.compile(rf"(?<![a-z0-9])({_KIND.lower()})((?:_\d\d)+)(?!\d)")
_WORD = re.compile(rf"\b({_KIND})-(\d\d)\b")


def ids() -> list[str]:
    """All cases, in order."""
    return [f"{kind}-{number}" for kind, numbers in CASES.items() for number in numbers.split()]


def found() -> dict[str, list[str]]:
    """Id to the tests that name it, as `folder/file.py::test`."""
    tests: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for case in sorted(set(_named(node))):
                    tests[case].append(f"{path.relative_to(TESTS)}::{node.name}")
    return dict(tests)


def at_the_front_door(tests: list[str]) -> bool:
    """Whether one of them speaks to a running service."""
    return any(test.startswith(tuple(f"{folder}/" for folder in FRONT_DOOR)) for test in tests)


def _named(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for kind, numbers in _NAME.findall(node.name):
        yield from (f"{kind.upper()}-{number}" for number in numbers.strip("_").split("_"))
    for kind, number in _WORD.findall(ast.get_docstring(node) or ""):
        yield f"{kind}-{number}"


def main() -> int:
    """Print the table."""
    tests = found()
    for case in ids():
        mine = tests.get(case, [])
        door = "front door" if at_the_front_door(mine) else "inside" if mine else "-"
        sys.stdout.write(f"{case:9} {door:10} {' '.join(mine)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
