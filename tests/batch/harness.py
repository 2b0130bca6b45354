"""`twinlens batch` as a user types it, against a service that really runs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.serving.harness import environment, picture

if TYPE_CHECKING:
    from pathlib import Path

TASK = """
description = "Words."
prompt = "say {{ text }}"
variables = { text = { default = "hello" } }
"""


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "twinlens.cli.main", "batch", *map(str, words)]


def batch(folder: Path, *words: object, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(*words), input=stdin, capture_output=True, timeout=110, check=False, cwd=folder, env=environment()
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def pictures(folder: Path, count: int, first: int = 0) -> None:
    """Small pictures, all different; p2 comes before p10."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        (folder / f"p{number}.png").write_bytes(picture(number, (40, 30)))
