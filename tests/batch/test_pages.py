"""Documents: a record for each page, whatever is wrong with the others."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from tests.batch.harness import batch, pictures, records
from tests.batch.standin import Said, StandIn, answer, refusal, standing_in
from tests.media import pdfs
from tests.serving.harness import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.serving.harness import Service


def run(folder: Path, standin: StandIn, *words: str) -> Any:
    return batch(folder, "in", "--task", "words", "--url", standin.url, "--out", "r.jsonl", *words)


def tiff(*colours: str) -> bytes:
    frames = [Image.new("RGB", (30, 20), colour) for colour in colours]
    out = io.BytesIO()
    frames[0].save(out, "TIFF", save_all=True, append_images=frames[1:])
    return out.getvalue()


def shown(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def brief(path: Path) -> list[tuple[str, int, Any]]:
    return [(one["path"], one["page"], one["error"] and one["error"]["code"]) for one in records(path)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path


def test_every_page_is_a_record_and_a_picture_of_its_own(folder: Path) -> None:
    """PDF-10: no page is left out, and each record says which it is."""
    squares = [pdfs.square(72 * at, 72 * at, 72) for at in (1, 3, 5)]
    (folder / "in/b.pdf").write_bytes(pdfs.document(squares))
    (folder / "in/a.tif").write_bytes(tiff("red", "lime"))
    (folder / "in/c.tif").write_bytes(tiff("blue"))
    pictures(folder / "in", 1)
    with standing_in(StandIn()) as standin:
        done = run(folder, standin, "--at-once", "1")
        sent = [shown(data) for data in standin.sent()]
    assert done.stderr == "r.jsonl: 7 of 7 done: 7 answered, 0 failed\n"
    pages = [("in/a.tif", 1), ("in/a.tif", 2), *(("in/b.pdf", page) for page in (1, 2, 3)), ("in/c.tif", 1)]
    assert brief(folder / "r.jsonl") == [(*one, None) for one in [*pages, ("in/p0.png", 1)]]
    assert len({record["digest"] for record in records(folder / "r.jsonl")[2:5]}) == 1
    assert [one.getpixel((5, 5)) for one in sent[:2]] == [(255, 0, 0), (0, 255, 0)]
    for picture, at in zip(sent[2:5], (1, 3, 5), strict=True):
        dark = np.argwhere(np.asarray(picture).max(2) < 128)
        assert picture.size == (1240, 1754)  # A4 at 150 dots an inch
        assert dark[:, 1].min() == pytest.approx(150 * at, abs=2)
        assert dark[:, 0].max() == pytest.approx(1754 - 150 * at, abs=2)


def test_a_document_whose_pages_are_asked_together_is_sent_as_it_is(folder: Path) -> None:
    data = pdfs.numbered(3)
    (folder / "in/a.pdf").write_bytes(data)
    with standing_in(StandIn(pages={"together": True, "most": 2})) as standin:
        run(folder, standin)
        assert standin.sent() == [data]
    assert brief(folder / "r.jsonl") == [("in/a.pdf", 1, None)]


def test_a_task_that_wants_the_page_itself_gets_the_document_and_its_number(folder: Path) -> None:
    data = pdfs.encrypted("secret", content=pdfs.words("hello"))
    (folder / "in/a.pdf").write_bytes(data)
    (folder / "in/b.pdf").write_bytes(pdfs.numbered(2))
    (folder / "in/c.tif").write_bytes(tiff("red", "lime"))
    (folder / "passwords").write_text("secret")
    with standing_in(StandIn(pages={"document": True})) as standin:
        done = run(folder, standin, "--password-file", "passwords", "--at-once", "1")
        assert "5 of 5 done: 5 answered, 0 failed" in done.stderr
        images = [body["images"][0] for body in standin.bodies]
        sent = standin.sent()
    assert [{key: one[key] for key in one if key != "url"} for one in images[:3]] == [
        {"pages": "1", "password": "secret"},
        {"pages": "1"},
        {"pages": "2"},
    ]
    assert sent[:3] == [data, pdfs.numbered(2), pdfs.numbered(2)]
    assert [shown(one).getpixel((5, 5)) for one in sent[3:]] == [(255, 0, 0), (0, 255, 0)]
    assert b"secret" not in (folder / "r.jsonl.journal").read_bytes()


def test_the_first_pages_are_asked_and_no_more_are_drawn(folder: Path) -> None:
    (folder / "in/a.pdf").write_bytes(pdfs.numbered(5))
    with standing_in(StandIn(pages={"together": False, "most": 2})) as standin:
        assert "2 of 2 done" in run(folder, standin).stderr
        assert "2 were done before" in run(folder, standin, "--resume").stderr
        assert len(standin.bodies) == 2


def test_resume_does_only_the_pages_that_are_left(folder: Path) -> None:
    (folder / "in/a.pdf").write_bytes(pdfs.numbered(6))
    (folder / "in/scan.png").write_bytes(pdfs.numbered(2))  # whatever it is called
    with standing_in(StandIn(lambda number, body: answer() if number < 4 else refusal(401, "invalid_key"))) as standin:
        assert "3 of" in run(folder, standin, "--at-once", "1").stderr
        standin.answers = lambda number, body: answer()
        done = run(folder, standin, "--resume")
        assert "8 of 8 done: 8 answered, 0 failed; 3 were done before; 2 copied" in done.stderr, done.stderr
        assert len(standin.bodies) == 4 + 3
        again = run(folder, standin, "--resume")
        assert "8 were done before" in again.stderr
        assert len(standin.bodies) == 4 + 3
    numbers = [(path, page) for path, page, _ in brief(folder / "r.jsonl")]
    assert numbers == [*(("in/a.pdf", page) for page in range(1, 7)), ("in/scan.png", 1), ("in/scan.png", 2)]


def test_pages_of_another_resolution_are_other_work(folder: Path) -> None:
    (folder / "in/a.pdf").write_bytes(pdfs.numbered(2))
    with standing_in(StandIn()) as standin:
        run(folder, standin)
        again = run(folder, standin, "--resume", "--page-dpi", "72")
        assert (again.returncode, "page_dpi changed" in again.stderr) == (2, True)
        run(folder, standin, "--resume", "--page-dpi", "72", "--accept-changes")
        assert [shown(data).width for data in standin.sent()] == [1240, 1240, 595, 595]


def test_a_page_that_cannot_be_drawn_fails_alone(folder: Path) -> None:
    (folder / "in/a.pdf").write_bytes(_with_a_bomb())
    with standing_in(StandIn()) as standin:
        done = run(folder, standin, "--page-timeout-s", "3")
    assert done.returncode == 1
    assert brief(folder / "r.jsonl") == [
        ("in/a.pdf", 1, None),
        ("in/a.pdf", 2, "pdf_timeout"),
        ("in/a.pdf", 3, None),
    ]


def _with_a_bomb() -> bytes:
    """Three pages, of which the second draws for ever: forms that call each other ten times, many levels deep."""
    more = {20000 + level: pdfs.stream(b"/X Do " * 10, _form(20001 + level)) for level in range(12)}
    more[20012] = pdfs.stream(b"0 0 9 9 re f", b"/Type/XObject/Subtype/Form/BBox[0 0 595 842]")
    resources = b"/Resources<</XObject<</X 20000 0 R>>>>"
    return pdfs.document([pdfs.square(10, 10), b"/X Do", pdfs.square(99, 99)], more=more).replace(
        b"/Parent 2 0 R/Resources<</Font<</F1 3 0 R>>>>", b"/Parent 2 0 R" + resources
    )


def _form(inner: int) -> bytes:
    return b"/Type/XObject/Subtype/Form/BBox[0 0 595 842]/Resources<</XObject<</X %d 0 R>>>>" % inner


def test_locked_damaged_and_empty_documents_fail_with_their_own_words(folder: Path) -> None:
    (folder / "in/locked.pdf").write_bytes(pdfs.encrypted("secret", content=pdfs.words("hello")))
    (folder / "in/cut.pdf").write_bytes(pdfs.numbered(2)[:200])
    (folder / "in/empty.pdf").write_bytes(b"")
    (folder / "in/text.pdf").write_bytes(b"no PDF at all")
    (folder / "in/good.pdf").write_bytes(pdfs.numbered(1))

    def answers(number: int, body: dict[str, Any]) -> Said:
        is_picture = body["images"][0].startswith("iVBOR")
        return answer() if is_picture else refusal(400, "unsupported_image_format")

    with standing_in(StandIn(answers)) as standin:
        done = run(folder, standin)
        assert (done.returncode, "5 of 5 done: 1 answered, 4 failed" in done.stderr) == (1, True)
        found = {path: code for path, _, code in brief(folder / "r.jsonl")}
        assert found == {
            "in/locked.pdf": "pdf_encrypted",
            "in/cut.pdf": "pdf_invalid",
            "in/empty.pdf": "invalid_image",
            "in/text.pdf": "unsupported_image_format",
            "in/good.pdf": None,
        }
        (folder / "passwords").write_text("wrong\nsecret\n")
        words = ("--resume", "--retry-failed", "--password-file", "passwords")
        assert "5 of 5 done: 2 answered, 3 failed" in run(folder, standin, *words).stderr
    assert b"secret" not in (folder / "r.jsonl.journal").read_bytes()


def test_documents_may_be_larger_than_pictures(folder: Path) -> None:
    heavy = pdfs.document(
        [pdfs.square(10, 10)], more={99: b"<</Length 40000>>stream\n" + bytes(40000) + b"\nendstream"}
    )
    (folder / "in/a.pdf").write_bytes(heavy)
    (folder / "in/b.png").write_bytes(heavy)
    with standing_in(StandIn()) as standin:
        run(folder, standin, "--max-image-bytes", "20000", "--max-file-bytes", "60000")
        assert brief(folder / "r.jsonl") == [("in/a.pdf", 1, None), ("in/b.png", 1, "image_too_large")]
        run(folder, standin, "--overwrite", "--max-image-bytes", "20000", "--max-file-bytes", "30000")
    assert brief(folder / "r.jsonl")[0] == ("in/a.pdf", 1, "image_too_large")


def test_pages_through_a_real_service(folder: Path, service: Service) -> None:
    (folder / "in/a.pdf").write_bytes(pdfs.numbered(3))
    done = batch(folder, "in", "--task", "words", "--url", service.url, "--out", "r.csv")
    assert (done.returncode, "3 of 3 done: 3 answered" in done.stderr) == (0, True), done.stderr
    assert [line.split(",")[:2] for line in (folder / "r.csv").read_text().splitlines()[1:]] == [
        ["in/a.pdf", str(page)] for page in (1, 2, 3)
    ]


def test_a_document_that_was_spoilt_since_is_not_taken_for_finished(folder: Path) -> None:
    path = folder / "in/a.pdf"
    path.write_bytes(pdfs.numbered(3))
    with standing_in(StandIn(lambda number, body: answer() if number < 2 else refusal(401, "no"))) as standin:
        run(folder, standin, "--at-once", "1")
        standin.answers = lambda number, body: answer()
        about = path.stat()
        path.write_bytes(bytes(about.st_size))
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
        done = run(folder, standin, "--resume")
    assert (done.returncode, "3 of 3 done: 1 answered, 2 failed" in done.stderr) == (1, True)
    assert brief(folder / "r.jsonl") == [
        ("in/a.pdf", 1, None),
        ("in/a.pdf", 2, "invalid_image"),
        ("in/a.pdf", 3, "invalid_image"),
    ]


POINTS = """
prompt = "Where is it?"
[schema]
type = "object"
required = ["box"]
properties = { box = { const = [100, 200, 500, 600] } }
[[steps]]
use = "geometry"
boxes = ["/box"]
to = "points"
"""


def test_boxes_in_points_of_a_page_through_a_real_service(folder: Path) -> None:
    (folder / "in/a.pdf").write_bytes(pdfs.numbered(2))
    pictures(folder / "in", 1)
    (folder / "tasks").mkdir()
    (folder / "tasks/where.toml").write_text(POINTS)
    with serving("--tasks-dir", str(folder / "tasks")) as service:
        done = batch(folder, "in", "--task", "where", "--url", service.url, "--out", "r.jsonl")
    assert "3 of 3 done: 2 answered, 1 failed" in done.stderr, done.stderr
    first, second, plain = records(folder / "r.jsonl")
    assert first["answer"] == second["answer"] == {"box": [59.5, 336.8, 297.5, 673.6]}
    assert (first["page"], second["page"]) == (1, 2)
    assert (plain["path"], plain["error"]["code"]) == ("in/p0.png", "invalid_field")
