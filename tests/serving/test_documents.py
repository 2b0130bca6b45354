"""PDFs and TIFFs of several pages through the front door: field cases of kind PDF, and what a request may say."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import openai
import psutil
import pytest
from PIL import Image
from PIL.TiffImagePlugin import AppendingTiffWriter

from tests.media import pdfs
from tests.media.test_documents import tiff
from tests.serving.harness import Service, data_uri, picture, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving("--max-pages", "40", "--page-timeout-s", "2", "--page-dpi", "72") as running:
        yield running


def uri(data: bytes, kind: str = "application/pdf") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def part(data: bytes, kind: str = "application/pdf", **fields: Any) -> dict[str, Any]:
    return {"type": "file", "file": {"file_data": uri(data, kind), "filename": "a.pdf"}, **fields}


def used(answer: Any) -> list[tuple[int, int]]:
    """(page, of how many) of the pictures that were asked about."""
    assert answer.status_code == 200, answer.text
    return [(image["page"], image["pages"]) for image in answer.json()["twinlens"]["images"]]


def refused(answer: Any, code: str) -> Any:
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["code"] == code
    return error


def test_pdf_10_every_page_is_asked_about(service: Service) -> None:
    answer = service.chat(part(pdfs.numbered(3)), "What do the pages say?")
    assert used(answer) == [(1, 3), (2, 3), (3, 3)]
    said = answer.json()
    assert said["twinlens"]["warnings"] == []
    tokens = [image["tokens"] for image in said["twinlens"]["images"]]
    assert said["usage"]["prompt_tokens_details"]["image_tokens"] == sum(tokens)


def test_a_choice_of_pages(service: Service) -> None:
    answer = service.chat(part(pdfs.numbered(5), pages="4-5, 1"), "?")
    assert used(answer) == [(4, 5), (5, 5), (1, 5)]
    assert answer.json()["twinlens"]["warnings"] == ["messages[0].content[0]: 3 of 5 pages are used."]
    assert used(service.chat(part(pdfs.numbered(5), pages="4-"), "?")) == [(4, 5), (5, 5)]


@pytest.mark.parametrize(
    ("pages", "code"),
    [
        ("6", "no_such_page"),
        ("1000000000", "invalid_field"),
        ("1-999999999", "no_such_page"),
        ("0", "invalid_field"),
        ("3-1", "invalid_field"),
        ("-2", "invalid_field"),
        ("1;2", "invalid_field"),
        ("", "invalid_field"),
        ("1," * 150, "invalid_field"),
        (3, "invalid_field"),
        ("٣", "invalid_field"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(service: Service, pages: Any, code: str) -> None:
    error = refused(service.chat("?", part(pdfs.numbered(5), pages=pages)), code)
    assert error["param"].startswith("messages[0].content[1]")


def test_pages_of_a_plain_picture(service: Service) -> None:
    whole = {"type": "image_url", "image_url": {"url": data_uri()}}
    assert service.chat({**whole, "pages": "1"}, "?").status_code == 200
    refused(service.chat({**whole, "pages": "2"}, "?"), "no_such_page")


def test_the_bytes_decide_what_it_is(service: Service) -> None:
    named_jpeg = {"type": "image_url", "image_url": {"url": uri(pdfs.numbered(2), "image/jpeg")}}
    assert used(service.chat(named_jpeg, "?")) == [(1, 2), (2, 2)]
    answer = service.chat(part(picture(3)), "?")
    assert "page" not in answer.json()["twinlens"]["images"][0]


def test_documents_and_pictures_keep_their_order(service: Service) -> None:
    plain = {"type": "image_url", "image_url": {"url": data_uri()}}
    answer = service.chat("a", part(pdfs.numbered(2)), "b", plain, part(pdfs.numbered(1)), "c")
    pages = [image.get("page") for image in answer.json()["twinlens"]["images"]]
    assert pages == [1, 2, None, 1]


def test_every_picture_of_a_tiff_is_a_page(service: Service) -> None:
    data = tiff(*(Image.new("RGB", (60, 40), colour) for colour in ("red", "lime", "blue")))
    assert used(service.chat(part(data, "image/tiff"), "?")) == [(1, 3), (2, 3), (3, 3)]
    assert used(service.chat(part(data, "image/tiff", pages="2"), "?")) == [(2, 3)]
    refused(service.chat(part(data, "image/tiff", pages="4"), "?"), "no_such_page")


def test_uploaded_pdfs(service: Service) -> None:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0) as client:
        made = client.files.create(file=("scan.pdf", pdfs.numbered(2)), purpose="user_data")
        parts: Any = [{"type": "file", "file": {"file_id": made.id}}, {"type": "text", "text": "?"}]
        answer: Any = client.chat.completions.create(model="demo", messages=[{"role": "user", "content": parts}])
    assert [image["page"] for image in answer.twinlens["images"]] == [1, 2]


def test_the_text_of_pages_goes_into_the_prompt_where_wanted(service: Service) -> None:
    data = pdfs.document([pdfs.words("Invoice 4711 of the third of May"), pdfs.words("Second page")])
    without = service.chat(part(data), "?").json()["usage"]
    beside = service.chat(part(data, page_text=True), "?").json()["usage"]
    assert beside["prompt_tokens"] > without["prompt_tokens"] + 10
    assert beside["prompt_tokens_details"] == without["prompt_tokens_details"]


def test_pdf_01_too_many_pages_are_refused_before_any_is_drawn(service: Service) -> None:
    started = time.monotonic()
    error = refused(service.chat(part(pdfs.numbered(1000)), "?"), "too_many_pages")
    assert time.monotonic() - started < 5
    assert "1000" in error["message"]
    assert "32" in error["message"]  # max_images: they all stand in one question
    assert "“pages”" in error["message"]
    assert used(service.chat(part(pdfs.numbered(1000), pages="1-3"), "?")) == [(1, 1000), (2, 1000), (3, 1000)]


def test_documents_together_have_one_limit(service: Service) -> None:
    refused(service.chat(part(pdfs.numbered(20)), part(pdfs.numbered(20)), "?"), "too_many_pages")


@pytest.mark.parametrize("box", [(0, 0, 14400, 14400), (0, 0, 28_346, 842), (0, 0, 200, 14400), (0, 0, 0, 0)])
def test_pdf_02_a_huge_page_is_drawn_smaller(service: Service, box: tuple[float, ...]) -> None:
    answer = service.chat(part(pdfs.document([pdfs.square(0, 0)], box=box)), "?")
    assert used(answer) == [(1, 1)]
    (image,) = answer.json()["twinlens"]["images"]
    assert image["width"] * image["height"] <= 100_000_000


def test_pdf_02_a_strip_is_refused_like_any_picture(service: Service) -> None:
    refused(service.chat(part(pdfs.document(box=(0, 0, 10, 14400))), "?"), "image_aspect_ratio")


def test_pdf_04_each_fault_has_its_own_words(service: Service) -> None:
    secret = pdfs.encrypted("open sesame")
    assert "“password”" in refused(service.chat(part(secret), "?"), "pdf_encrypted")["message"]
    error = refused(service.chat(part(secret, password="wrong-one"), "?"), "pdf_bad_password")
    assert (error["param"], "wrong-one" in json.dumps(error)) == ("messages[0].content[0]", False)
    assert used(service.chat(part(secret, password="open sesame"), "?")) == [(1, 1)]
    refused(service.chat(part(secret), "?"), "pdf_encrypted")  # what one client has opened stays closed for others
    assert used(service.chat(part(pdfs.encrypted("")), "?")) == [(1, 1)]
    refused(service.chat(part(b"%PDF-1.7 and nothing else"), "?"), "pdf_invalid")
    refused(service.chat(part(b"words in a file called a.pdf"), "?"), "unsupported_image_format")
    refused(service.chat(part(b""), "?"), "invalid_image")
    assert used(service.chat(part(b"x" * 100 + pdfs.numbered(1)), "?")) == [(1, 1)]
    assert "open sesame" not in service.log()
    assert "wrong-one" not in service.log()


@pytest.mark.parametrize("password", [5, ["a"], {"a": 1}, True, "x" * 300])
def test_pdf_04_a_password_of_the_wrong_kind(service: Service, password: Any) -> None:
    refused(service.chat(part(pdfs.encrypted("a"), password=password), "?"), "invalid_field")


@pytest.mark.parametrize("rotate", [0, 90, 180, 270, -90])
@pytest.mark.parametrize("inherited", [False, True])
def test_pdf_05_rotated_pages_have_their_upright_size(service: Service, rotate: int, inherited: bool) -> None:
    entry = b"/Rotate %d" % rotate
    content = [pdfs.square(0, 0)]
    data = pdfs.document(content, tree=entry) if inherited else pdfs.document(content, page=entry)
    (image,) = service.chat(part(data), "?").json()["twinlens"]["images"]
    assert (image["width"], image["height"]) == ((842, 595) if rotate % 180 else (595, 842))


def test_pdf_07_an_xfa_form_says_what_is_missing(service: Service) -> None:
    form = b"/AcroForm<</Fields[]/XFA 10000 0 R>>"
    data = pdfs.document(catalog=form, more={10000: pdfs.stream(b"<xdp:xdp/>")})
    answer = service.chat(part(data), "?")
    assert "XFA" in answer.json()["twinlens"]["warnings"][0]


def test_pdf_09_those_who_wait_behind_a_document_without_end_get_their_answers(service: Service) -> None:
    """One reader serves all: it is ended with the bad document, and nobody else's request with it."""
    with ThreadPoolExecutor(9) as pool:
        bad = pool.submit(service.chat, part(pdfs.bomb()), "?")
        others = [pool.submit(service.chat, part(pdfs.numbered(1) + b"%%%d" % number), "?") for number in range(8)]
        refused(bad.result(), "pdf_timeout")
        for other in others:
            assert used(other.result()) == [(1, 1)]


def test_a_tiff_that_begins_with_its_thumbnail_shows_its_picture(service: Service) -> None:
    out = io.BytesIO()
    with AppendingTiffWriter(out) as writer:
        for size, kind, colour in ((40, 1, "red"), (168, 0, "blue")):
            Image.new("RGB", (size, size), colour).save(writer, "TIFF", tiffinfo={254: kind})
            writer.newFrame()
    answer, (pixels,) = service.seen(part(out.getvalue(), "image/tiff"), "?")
    (image,) = answer.json()["twinlens"]["images"]
    assert (image["width"], image["height"]) == (168, 168)
    assert tuple(pixels[80, 80]) == (0, 0, 255)


def test_scripts_in_a_pdf_do_nothing(service: Service) -> None:
    run = b"/OpenAction<</S/JavaScript/JS(while\\(true\\){})>>"
    assert used(service.chat(part(pdfs.document(catalog=run)), "?")) == [(1, 1)]


def test_pdf_09_a_document_without_end_is_given_up_and_the_next_is_served(service: Service) -> None:
    started = time.monotonic()
    error = refused(service.chat(part(pdfs.bomb()), "?"), "pdf_timeout")
    assert time.monotonic() - started < 10
    assert error["param"] == "messages[0].content[0]"
    assert used(service.chat(part(pdfs.numbered(1)), "?")) == [(1, 1)]
    assert service.ready()
    assert not service.leases()


def test_pdf_09_a_stream_is_refused_before_it_begins(service: Service) -> None:
    answer = service.chat(part(pdfs.bomb()), "?", stream=True)
    refused(answer, "pdf_timeout")
    assert answer.headers["content-type"].startswith("application/json")


def test_a_damaged_reference_table_does_not_matter(service: Service) -> None:
    broken = re.sub(rb"startxref\n\d+", b"startxref\n999999999", pdfs.numbered(2))
    assert used(service.chat(part(broken), "?")) == [(1, 2), (2, 2)]
    huge = re.sub(rb"/Size \d+", b"/Size 2147483647", pdfs.numbered(2))
    assert service.chat(part(huge), "?").status_code in (200, 400)
    assert used(service.chat(part(pdfs.numbered(1)), "?")) == [(1, 1)]


def test_the_same_page_is_drawn_once(service: Service) -> None:
    data = pdfs.document([pdfs.words("once only")])

    def drawn() -> float:
        lines = service.http.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith('twinlens_pictures_total{hit="no"}'))

    before = drawn()
    service.chat(part(data), "?")
    service.chat(part(data), "?")
    assert drawn() == before + 1


def test_the_reader_is_one_process_and_ends_with_the_service() -> None:
    with serving() as running:
        running.chat(part(pdfs.numbered(1)), "?")
        running.chat(part(pdfs.numbered(2)), "?")
        (reader,) = running.children("pdf_process")
        pid = reader.pid
    assert not psutil.pid_exists(pid)


@pytest.mark.slow
def test_pdf_01_memory_does_not_grow_with_the_number_of_pages(tmp_path: Path) -> None:
    """Every page of a thousand is asked by itself; what gateway and reader hold stays as it was after ten."""
    (tmp_path / "each.toml").write_text('prompt = "x"\n')
    data = uri(pdfs.document([pdfs.words(f"Page {number}") for number in range(1000)]))

    def held(service: Service) -> float:
        parts = [*service.workers, *service.children("pdf_process")]
        return sum(part.memory_full_info().uss for part in parts) / 2**20

    flags = ("--tasks-dir", str(tmp_path), "--max-pages", "1000", "--request-timeout-s", "600")
    with serving(*flags) as service:
        service.http.timeout = 600

        def asked(pages: str) -> int:
            body = {"images": [{"url": data, "pages": pages}]}
            answer = service.http.post("/v1/tasks/each", json=body)
            assert answer.status_code == 200, answer.text
            return len(answer.json()["result"])

        assert asked("1-10") == 10
        before = held(service)
        peak = before
        with ThreadPoolExecutor(1) as pool:
            work = pool.submit(asked, "1-1000")
            while not work.done():
                peak = max(peak, held(service))
                with contextlib.suppress(TimeoutError):
                    work.result(0.2)
            assert work.result() == 1000
        sys.stdout.write(f"\n1000 pages: {before:.0f} MiB before, {peak:.0f} MiB at most\n")
        assert peak - before < 150
