"""Going on: after an end of any kind, and with other inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.batch.harness import batch, pictures, records

if TYPE_CHECKING:
    from pathlib import Path

    from tests.serving.harness import Service


@pytest.fixture
def words(tmp_path: Path, service: Service) -> list[str]:
    pictures(tmp_path / "in", 6)
    return ["in", "--task", "words", "--url", service.url, "--out", "r.jsonl"]


def test_resume_does_only_the_rest(tmp_path: Path, words: list[str]) -> None:
    assert batch(tmp_path, *words).returncode == 0
    whole = (tmp_path / "r.jsonl").read_bytes()
    journal = tmp_path / "r.jsonl.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-2]) + lines[-2][:40])  # killed while it wrote the last but one
    done = batch(tmp_path, *words, "--resume")
    assert "6 of 6 done: 6 answered, 0 failed; 4 were done before" in done.stderr
    assert "torn end" in done.stderr
    plain = [record | {"time": 0} for record in records(tmp_path / "r.jsonl")]
    (tmp_path / "r.jsonl").write_bytes(whole)
    assert plain == [record | {"time": 0} for record in records(tmp_path / "r.jsonl")]
    assert "6 were done before" in batch(tmp_path, *words, "--resume").stderr


def test_a_damaged_line_in_the_middle_is_asked_again(tmp_path: Path, words: list[str]) -> None:
    batch(tmp_path, *words)
    journal = tmp_path / "r.jsonl.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[-3] = lines[-3].replace(b"hello", b"hellO")
    journal.write_bytes(b"".join(lines))
    done = batch(tmp_path, *words, "--resume")
    assert "5 were done before" in done.stderr
    assert {record["answer"] for record in records(tmp_path / "r.jsonl")} == {"hello"}


def test_nothing_is_overwritten_unasked(tmp_path: Path, words: list[str]) -> None:
    assert batch(tmp_path, *words).returncode == 0
    again = batch(tmp_path, *words)
    assert (again.returncode, "--resume goes on" in again.stderr) == (2, True)
    (tmp_path / "r.jsonl.journal").unlink()
    alone = batch(tmp_path, *words)
    assert (alone.returncode, "without a journal" in alone.stderr) == (2, True)
    assert batch(tmp_path, *words, "--overwrite").returncode == 0


def test_what_changed_is_told_and_only_that_is_asked(tmp_path: Path, words: list[str]) -> None:
    batch(tmp_path, *words)
    (tmp_path / "in/p1.png").unlink()
    pictures(tmp_path / "in", 2, first=20)
    (tmp_path / "in/p2.png").write_bytes((tmp_path / "in/p20.png").read_bytes() + b"more")
    (tmp_path / "in/p3.png").touch()  # the same bytes
    done = batch(tmp_path, *words, "--resume")
    assert done.returncode == 2
    assert "2 inputs new; 1 input gone; 1 input changed" in done.stderr
    done = batch(tmp_path, *words, "--resume", "--accept-changes")
    assert "7 of 7 done: 7 answered, 0 failed; 4 were done before" in done.stderr, done.stderr
    names = [f"in/p{number}.png" for number in (0, 2, 3, 4, 5, 20, 21)]
    assert [record["path"] for record in records(tmp_path / "r.jsonl")] == names
    assert batch(tmp_path, *words, "--resume").returncode == 0


def test_other_variables_are_other_work(tmp_path: Path, words: list[str]) -> None:
    batch(tmp_path, *words)
    other = [*words, "--var", "text=other", "--resume"]
    done = batch(tmp_path, *other)
    assert (done.returncode, "the variables changed" in done.stderr) == (2, True)
    done = batch(tmp_path, *other, "--accept-changes")
    assert done.returncode == 0
    assert {record["answer"] for record in records(tmp_path / "r.jsonl")} == {"other"}


def test_failed_ones_are_asked_again_on_request(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "in/p0.png").write_bytes(b"no picture")
    assert batch(tmp_path, *words).returncode == 1
    assert "6 were done before" in batch(tmp_path, *words, "--resume").stderr
    done = batch(tmp_path, *words, "--resume", "--retry-failed")
    assert (done.returncode, "5 were done before" in done.stderr) == (1, True)
