"""The report: everything is in it, it needs nothing else, and nothing that it shows can do anything."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import zipfile
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from tests.batch.harness import batch, pictures
from tests.batch.standin import Said, StandIn, answer, refusal, standing_in
from tests.media import pdfs
from tests.serving.harness import picture
from twinlens.batch import report
from twinlens.batch.records import Done, Failure, Record, Work
from twinlens.batch.thumbs import Thumb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOSTILE = [
    "</script><script>document.title='owned'</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "\u2028\u2029]]>&lt;&amp;",
    "javascript:alert(1)",
]


class Page(HTMLParser):
    """What a browser would find: elements, and the contents of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {}
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        about = dict(attrs)
        self._open = f"{tag} {about.get('id') or about.get('class') or about.get('type') or ''}".strip()

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.inside.setdefault(self._open, []).append(data)

    def about(self) -> dict[str, Any]:
        return json.loads("".join(self.inside["script about"]))  # type: ignore[no-any-return]

    def records(self) -> list[dict[str, Any]]:
        return [one for chunk in self.inside.get("script records", []) for one in json.loads(chunk)]


def run(folder: Path, standin: StandIn, *words: str) -> Page:
    to = ["--task", "words", "--url", standin.url, "--out", "r.jsonl", "--report", "r.html"]
    done = batch(folder, *words, *to)
    assert done.returncode in {0, 1}, done.stderr
    return Page((folder / "r.html").read_text("utf-8"))


def thumb(record: dict[str, Any]) -> Image.Image:
    kind, _, data = record["thumb"].partition(",")
    assert kind == "data:image/webp;base64"
    return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")


def test_it_has_every_record_with_its_picture_and_boxes(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.png").write_bytes(picture(1, (400, 100)))
    (tmp_path / "in/b.pdf").write_bytes(pdfs.document([pdfs.square(0, 0, 400), b""]))
    (tmp_path / "in/c.png").write_bytes(b"no picture")
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        for number in range(3):
            archive.writestr(f"{number}.png", picture(number + 5, (50, 50)))

    def answers(number: int, body: dict[str, Any]) -> Said:
        if not body["images"][0].startswith("iVBOR"):
            return refusal(400, "unsupported_image_format")
        return answer({"kind": "dent", "id": 2**60 + 1, "box": [40, 10, 200, 50], "more": [{"box": [0, 0, 1e9, 5]}]})

    boxes = [{"path": "/box", "units": "pixels"}, {"path": "/more/*/box", "units": "pixels"}]
    with standing_in(StandIn(answers, boxes=boxes)) as standin:
        page = run(tmp_path, standin, "in", "z.zip")
    found = page.records()
    paths = ["in/a.png", "in/b.pdf", "in/b.pdf", "in/c.png", "z.zip/0.png", "z.zip/1.png", "z.zip/2.png"]
    assert [one["path"] for one in found] == paths
    assert [one["page"] for one in found] == [1, 1, 2, 1, 1, 1, 1]
    assert thumb(found[0]).size == (200, 50)
    assert found[0]["boxes"] == [[0.1, 0.1, 0.5, 0.5], [0.0, 0.0, 1.0, 0.05]]
    assert found[0]["answer"]["id"] == str(2**60 + 1)  # a script would round the number
    assert thumb(found[1]).size == (141, 200)
    assert max(thumb(found[1]).getpixel((10, 190))) < 60  # type: ignore[arg-type]
    assert min(thumb(found[2]).getpixel((10, 190))) > 200  # type: ignore[arg-type]
    assert found[3]["error"]["code"] == "unsupported_image_format"
    assert "thumb" not in found[3]
    assert thumb(found[6]).getpixel((25, 25)) != thumb(found[5]).getpixel((25, 25))
    figures = {label: value for label, value, _ in page.about()["figures"]}
    assert (figures["records"], figures["answered"], figures["failed"]) == (7, 6, 1)
    assert page.about()["codes"] == [["unsupported_image_format", 1]]


def test_what_pictures_and_models_say_stays_a_text(tmp_path: Path) -> None:
    names = [name.replace("/", "") for name in HOSTILE]
    (tmp_path / "in").mkdir()
    for number, name in enumerate(names):
        (tmp_path / "in" / f"{number}{name}.png").write_bytes(picture(number, (30, 30)))

    def answers(number: int, body: dict[str, Any]) -> Said:
        said = HOSTILE[number % len(HOSTILE)]
        if number == 1:
            return 400, {"error": {"code": said, "message": said}, "twinlens": {"raw_answer": said}}, {}
        return answer({said: said, "list": [said], "__proto__": {"x": said}}, warnings=[said])

    with standing_in(StandIn(answers)) as standin:
        page = run(tmp_path, standin, "in", "--at-once", "1")
    plain = Page(report._PAGE.format(css="", style="", script=""))
    tags = [tag for tag, _ in page.elements]
    assert [tag for tag in tags if tag != "script"] == [tag for tag, _ in plain.elements]
    assert [(attrs.get("type"), attrs.get("class")) for tag, attrs in page.elements if tag == "script"] == [
        ("application/json", None),
        ("application/json", "records"),
        (None, None),
    ]
    found = page.records()
    assert {one["answer"]["list"][0] for one in found if "error" not in one} == set(HOSTILE) - {HOSTILE[1]}
    assert [one["error"]["raw"] for one in found if "error" in one] == [HOSTILE[1]]
    assert {name for one in found for name in names if name in one["path"]} == set(names)


def test_it_runs_no_script_but_its_own_and_asks_nobody_for_anything(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 2)
    with standing_in(StandIn()) as standin:
        page = run(tmp_path, standin, "in")
    (policy,) = [attrs["content"] or "" for tag, attrs in page.elements if attrs.get("http-equiv")]
    script = "".join(page.inside["script"])
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    text = (tmp_path / "r.html").read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|url\(|@import|\bsrc=|\bhref=|fetch\(|XMLHttp|innerHTML|eval\(", text)
    assert not [attrs for _, attrs in page.elements if any(name.startswith("on") for name in attrs)]


def test_the_picture_of_a_file_that_has_changed_is_not_shown(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 3)

    def answers(number: int, body: dict[str, Any]) -> Said:
        if number == 3:  # when the last is asked
            (tmp_path / "in/p1.png").write_bytes(picture(99))
        return answer()

    with standing_in(StandIn(answers)) as standin:
        found = run(tmp_path, standin, "in", "--at-once", "1").records()
    assert [one.get("none", "") for one in found] == ["", "no picture: the file is not what it was", ""]


def test_where_answers_are_private_no_picture_is_shown_nor_that_of_a_failure(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 2)
    answers = (answer(), refusal(502, "invalid_answer"))
    with standing_in(StandIn(lambda number, body: answers[number - 1], private=True)) as standin:
        found = run(tmp_path, standin, "in").records()
    assert [one["none"] for one in found] == ["not shown: the task hides what is in it"] * 2
    assert b"image/webp" not in (tmp_path / "r.html").read_bytes()


def dones(count: int, failed_every: int) -> list[Done]:
    found = []
    for number in range(count):
        error = Failure("invalid_image", "So.") if number % failed_every == failed_every - 1 else None
        record = Record(
            path=f"{number}.png", page=1, digest="", answer=None if error else "x" * 600, error=error, time=0.5
        )
        found.append(Done(record, b"", 0, 0, b""))
    return found


def written(path: Path, count: int, failed_every: int) -> Page:
    all_ = dones(count, failed_every)

    def some(failed: bool | None) -> Iterator[Done]:
        return (done for done in all_ if failed is None or (done.record.error is not None) == failed)

    small = Thumb(bytes(2500))
    work = Work(task="words", version="1", weights="2", variables={})
    with path.open("wb") as file:
        report.write(file, some, lambda done: small, report.About(work, "r.jsonl", 7, "It was interrupted."))
    return Page(path.read_text("utf-8"))


def test_too_many_records_leave_the_failures_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_RECORDS", 250)
    page = written(tmp_path / "r.html", 1000, 5)
    found = page.records()
    assert len(found) == 250
    assert [one["path"] for one in found[:2]] == ["4.png", "9.png"]
    assert sum("error" in one for one in found) == 200
    about = page.about()
    assert about["notes"] == [
        "Stopped: It was interrupted.",
        "Failures first, 250 records are here; the table has 750 more.",
    ]
    figures = {label: value for label, value, _ in about["figures"]}
    assert (figures["records"], figures["failed"], figures["left undone"]) == (1000, 200, 7)


def test_ten_thousand_records_are_a_page_that_can_be_carried_about(tmp_path: Path) -> None:
    page = written(tmp_path / "r.html", 10_000, 50)
    assert [one["path"] for one in page.records()[:2]] == ["0.png", "1.png"]
    assert len(page.records()) == 10_000
    assert len(page.inside["script records"]) == 100
    assert (tmp_path / "r.html").stat().st_size < 48 << 20


def test_a_long_answer_is_cut_in_the_report_alone(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 1)
    with standing_in(StandIn(lambda number, body: answer(["理" * 9000]))) as standin:
        (record,) = run(tmp_path, standin, "in").records()
    assert len(record["answer"]) < report.MOST_ANSWER
    assert record["answer"].endswith("(the table has all of it)")
    assert "理" * 9000 in (tmp_path / "r.jsonl").read_text("utf-8")


@pytest.mark.parametrize(("name", "says"), [("r.htm", "ending is not known"), ("no/r.html", "there is no folder no")])
def test_a_place_that_is_none_is_told_before_anything_is_asked(tmp_path: Path, name: str, says: str) -> None:
    pictures(tmp_path / "in", 1)
    with standing_in(StandIn()) as standin:
        to = ["--task", "words", "--url", standin.url, "--out", "r.jsonl", "--report", name]
        done = batch(tmp_path, "in", *to)
        assert (done.returncode, says in done.stderr, standin.bodies) == (2, True, [])
