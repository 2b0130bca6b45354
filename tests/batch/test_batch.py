"""Whole runs: what goes in, what comes out, and what the exit code says."""

from __future__ import annotations

import csv
import io
import json
import os
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.batch.harness import batch, pictures, records
from tests.serving.harness import picture

if TYPE_CHECKING:
    from pathlib import Path

    from tests.serving.harness import Service


@pytest.fixture
def to(service: Service) -> list[str]:
    return ["--task", "words", "--url", service.url]


def test_a_folder_becomes_a_table_in_natural_order(tmp_path: Path, to: list[str]) -> None:
    pictures(tmp_path / "in", 12)
    done = batch(tmp_path, "in", *to, "--out", "r.jsonl", "--var", "text=ja")
    assert (done.returncode, done.stderr) == (0, "r.jsonl: 12 of 12 done: 12 answered, 0 failed\n")
    found = records(tmp_path / "r.jsonl")
    assert [record["path"] for record in found] == [f"in/p{number}.png" for number in range(12)]
    assert {record["answer"] for record in found} == {"ja"}
    assert all(record["usage"]["completion_tokens"] == 1 and record["error"] is None for record in found)
    assert len({record["digest"] for record in found}) == 12


def test_batch_01_one_corrupt_picture_fails_alone(tmp_path: Path, to: list[str]) -> None:
    pictures(tmp_path / "in", 5)
    whole = picture(9, (64, 64), "JPEG")
    (tmp_path / "in/p2.png").write_bytes(whole[: len(whole) // 2])
    done = batch(tmp_path, "in", *to, "--out", "r.jsonl")
    assert done.returncode == 1
    assert "failed: in/p2.png: invalid_image" in done.stderr
    assert "5 of 5 done: 4 answered, 1 failed" in done.stderr
    errors = [record["error"] for record in records(tmp_path / "r.jsonl")]
    assert [error and error["code"] for error in errors] == [None, None, "invalid_image", None, None]


def test_batch_02_equal_names_in_several_folders_stay_apart(tmp_path: Path, to: list[str]) -> None:
    names = ("a/x.png", "b/x.png", "a/x.jpg", "A/X.PNG")
    for number, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(picture(number))
    assert batch(tmp_path, "a", "b", "A", *to, "--out", "r.jsonl").returncode == 0
    found = records(tmp_path / "r.jsonl")
    assert sorted(record["path"] for record in found) == sorted(names)
    assert len({record["digest"] for record in found}) == 4


def test_batch_07_system_files_stop_nothing(tmp_path: Path, to: list[str]) -> None:
    top = tmp_path / "in"
    pictures(top / "sub", 1)
    for name in (".DS_Store", "Thumbs.db", "._a.jpg", "empty.jpg", "notes.txt"):
        (top / name).write_bytes(b"" if name == "empty.jpg" else b"x")
    (top / "gone.png").symlink_to("nowhere.png")
    os.mkfifo(top / "pipe.png")
    (top / "two\nlines.png").write_bytes(picture(7))
    (top / os.fsdecode(b"caf\xe9.png")).write_bytes(picture(8))
    done = batch(tmp_path, "in", *to, "--out", "r.jsonl")
    assert done.returncode == 1
    by_path = {record["path"]: record for record in records(tmp_path / "r.jsonl")}
    assert set(by_path) == {"in/sub/p0.png", "in/empty.jpg", "in/two\nlines.png", "in/caf\\xe9.png"}
    assert by_path["in/empty.jpg"]["error"]["code"] == "invalid_image"
    assert "passed over: 2 hidden files, 1 links that lead nowhere, 2 other files, 1 what is no file" in done.stderr


def test_identical_files_are_asked_once(tmp_path: Path, to: list[str], service: Service) -> None:
    pictures(tmp_path / "in", 3)
    for number in range(20):
        (tmp_path / f"in/same{number}.png").write_bytes(picture(1, (40, 30)))
    before = service.metric("twinlens_requests_total")
    done = batch(tmp_path, "in", *to, "--out", "r.jsonl")
    assert "23 of 23 done: 23 answered, 0 failed; 20 copied from identical files" in done.stderr
    found = records(tmp_path / "r.jsonl")
    assert sum(record.get("same_as") is not None for record in found) == 20
    assert sum(record["usage"] is not None for record in found) == 3
    assert service.metric("twinlens_requests_total") - before < 10


def test_lists_globs_and_stdin(tmp_path: Path, to: list[str]) -> None:
    pictures(tmp_path / "in/deep", 4)
    (tmp_path / "list").write_text("in/deep/p3.png\nin/deep/p1.png\n")
    done = batch(tmp_path, "--list", "list", *to, "--out", "a.jsonl")
    assert done.returncode == 0, done.stderr
    assert [record["path"] for record in records(tmp_path / "a.jsonl")] == ["in/deep/p3.png", "in/deep/p1.png"]
    done = batch(tmp_path, "-", *to, "--out", "b.jsonl", stdin=b"in/deep/p2.png\0./in//deep/p2.png\0in/deep/p0.png")
    assert [record["path"] for record in records(tmp_path / "b.jsonl")] == ["in/deep/p2.png", "in/deep/p0.png"]
    both = ("in/deep/p3.png", "-", "--list", "list")
    assert batch(tmp_path, *both, *to, "--out", "d.jsonl", stdin=b"in/deep/p0.png\r\n").returncode == 0
    paths = ["in/deep/p3.png", "in/deep/p0.png", "in/deep/p1.png"]
    assert [record["path"] for record in records(tmp_path / "d.jsonl")] == paths
    marked = b"\xef\xbb\xbfin/deep/p0.png\n"
    assert batch(tmp_path, "--list", "-", *to, "--out", "e.jsonl", stdin=marked).returncode == 0
    assert batch(tmp_path, "in/**/p[12].png", *to, "--out", "c.jsonl").returncode == 0
    assert [record["path"] for record in records(tmp_path / "c.jsonl")] == ["in/deep/p1.png", "in/deep/p2.png"]


def test_archives_are_read_without_being_unpacked(tmp_path: Path, to: list[str]) -> None:
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        for name in ("b/1.png", "../../up.png", "notes.txt", ".hidden.png"):
            archive.writestr(name, picture(len(name)))
    with tarfile.open(tmp_path / "t.tar.gz", "w:gz") as tar:
        for number in range(3):
            data = picture(number + 50)
            info = tarfile.TarInfo(f"/abs/{number}.png")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    (tmp_path / "bad.zip").write_bytes(b"PK\3\4 no archive")
    done = batch(tmp_path, "z.zip", "t.tar.gz", "bad.zip", *to, "--out", "r.jsonl")
    found = records(tmp_path / "r.jsonl")
    good = [record["path"] for record in found if not record["error"]]
    assert good == ["z.zip/b/1.png", "z.zip/up.png", *(f"t.tar.gz/abs/{number}.png" for number in range(3))]
    assert [record["path"] for record in found if record["error"]] == ["bad.zip"]
    assert done.returncode == 1
    assert not list(tmp_path.rglob("*.png"))
    again = batch(tmp_path, "z.zip", "t.tar.gz", "bad.zip", *to, "--out", "r.jsonl", "--resume")
    assert "6 were done before" in again.stderr


def test_csv_and_parquet_have_the_columns_of_the_task(tmp_path: Path, service: Service) -> None:
    pictures(tmp_path / "in", 3)
    to = ["--task", "inspect-defect", "--url", service.url]
    assert batch(tmp_path, "in", *to, "--out", "r.csv").returncode == 0
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text("utf-8-sig").splitlines()))
    assert [row["path"] for row in rows] == ["in/p0.png", "in/p1.png", "in/p2.png"]
    assert {"defect", "cause", "box", "box_pixels", "error"} <= set(rows[0])
    parquet = pytest.importorskip("pyarrow.parquet")
    assert batch(tmp_path, "in", *to, "--out", "r.parquet").returncode == 0
    table = parquet.read_table(tmp_path / "r.parquet").to_pylist()
    assert [row["path"] for row in table] == ["in/p0.png", "in/p1.png", "in/p2.png"]
    assert batch(tmp_path, "in", *to, "--out", "r.xlsx").returncode == 2


def test_formulas_are_texts_in_csv(tmp_path: Path, to: list[str]) -> None:
    pictures(tmp_path / "in", 1)
    assert batch(tmp_path, "in", *to, "--out", "r.csv", "--var", 'text==HYPERLINK("x")').returncode == 0
    (row,) = csv.DictReader((tmp_path / "r.csv").read_text("utf-8-sig").splitlines())
    assert row["answer"] == '\'=HYPERLINK("x")'


def test_json_02_a_cut_answer_is_a_failure(tmp_path: Path, to: list[str]) -> None:
    pictures(tmp_path / "in", 1)
    words = ["--var", "text=one two three four", "--max-tokens", "2"]
    done = batch(tmp_path, "in", *to, "--out", "r.jsonl", *words)
    (record,) = records(tmp_path / "r.jsonl")
    assert (done.returncode, record["answer"], record["error"]["code"]) == (1, None, "output_truncated")
    assert record["error"]["raw"] == "one two"


def test_json_08_chinese_comes_out_as_it_is(tmp_path: Path, to: list[str]) -> None:
    pictures(tmp_path / "in", 1)
    assert batch(tmp_path, "in", *to, "--out", "r.jsonl", "--var", "text=理想").returncode == 0
    text = (tmp_path / "r.jsonl").read_text("utf-8")
    assert "理想" in text
    assert json.loads(text)["answer"] == "理想"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere", "--task", "words", "--out", "r.jsonl"], "nowhere cannot be read"),
        (["*.gif", "--task", "words", "--out", "r.jsonl"], "Nothing matches"),
        (["in", "--task", "wrods", "--out", "r.jsonl"], "Did you mean “words”"),
        (["in", "--task", "words", "--out", "r.jsonl", "--var", "txt=1"], "no variable “txt”"),
        (["in", "--task", "words", "--out", "r.txt"], "ending is not known"),
        (["in", "--task", "words", "--out", "no/r.jsonl"], "cannot be opened"),
        (["empty", "--task", "words", "--out", "r.jsonl"], "no pictures"),
        (["in", "--task", "words"], "--out"),
    ],
)
def test_what_the_operator_has_to_mend_ends_with_2(
    tmp_path: Path, service: Service, words: list[str], says: str
) -> None:
    pictures(tmp_path / "in", 1)
    (tmp_path / "empty").mkdir()
    done = batch(tmp_path, *words, "--url", service.url)
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
