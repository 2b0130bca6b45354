"""Part “batch” of the benchmark, in small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.serving.harness import environment

pytestmark = pytest.mark.slow


def test_its_tables_come_from_runs_that_answered_everything(tmp_path: Path) -> None:
    out = tmp_path / "tables.json"
    words = ["batch", "--batch", "items,pages", "--quick", "--json", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *words],
        cwd=Path(__file__).parents[2],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _, items, pages = msgspec.json.decode(out.read_bytes())
    found = dict(zip(items["columns"], items["rows"][0], strict=True))
    assert found["items"] == 2000
    assert found["items/s"] == pytest.approx(found["items"] / found["s"])
    assert 10 < found["MiB after a fifth"] <= found["MiB most"] < 600
    found = dict(zip(pages["columns"], pages["rows"][0], strict=True))
    assert (found["pages"], found["MiB"] > 0.1) == (10, True)
    assert 50 < found["MiB most"] < 600
