"""The audit trail: whole lines by many processes at once, new files by size, nothing for other eyes."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from twinlens.errors import AuditError
from twinlens.observe.audit import NAME, Audit

if TYPE_CHECKING:
    from pathlib import Path

WRITER = """
import sys
from pathlib import Path
from twinlens.observe.audit import Audit
audit = Audit(Path(sys.argv[1]), 5000)
for number in range(100):
    audit.write({"writer": sys.argv[2], "number": number, "text": "x" * (number % 50)})
"""


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in sorted(folder.glob("audit*.jsonl")) for line in path.read_text().splitlines()]


def test_many_processes_write_whole_lines_and_lose_none(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name]) for name in "abcd"]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    written = lines(tmp_path)
    assert sorted((str(one["writer"]), one["number"]) for one in written) == [
        (name, number) for name in "abcd" for number in range(100)
    ]
    files = list(tmp_path.glob("audit*.jsonl"))
    assert len(files) > 5
    assert all(path.stat().st_size <= 5000 for path in files)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    assert all(str(one["time"]).endswith("Z") for one in written)


def test_a_line_larger_than_a_file_is_still_written_whole(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "new", 4096)
    for _ in range(3):
        audit.write({"text": "x" * 9000})
    assert len(lines(tmp_path / "new")) == 3
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_a_trail_that_cannot_be_written_says_so_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AuditError):
        Audit(tmp_path / "file", 4096).write({})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    (tmp_path / NAME).symlink_to(elsewhere)
    with pytest.raises(AuditError):
        Audit(tmp_path, 4096).write({})
    assert elsewhere.read_text() == ""
