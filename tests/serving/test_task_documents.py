"""Documents in tasks through the front door: one answer a page or one for all, and what happens when a page fails."""

from __future__ import annotations

import base64
import io
import json
from typing import TYPE_CHECKING, Any

import openai
import pytest
from PIL import Image

from tests.media import pdfs
from tests.media.test_documents import tiff
from tests.serving.harness import Service, data_uri, frames, serving, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EACH = """
prompt = "Say {{ text }}"
pictures = { least = 1, most = 3 }
variables = { text = { default = "x" } }
"""
HIDING = 'prompt = "say call 138 1234 5678"\n[[steps]]\nuse = "redact"\n'
TOGETHER = 'prompt = "x"\npages = "together"\n'
FIRST = 'prompt = "x"\npages = "first 2"\n'
BOTH = 'prompt = "x"\npages = "together first 2"\n'
BOX = """
prompt = "x"
schema = { type = "object", required = ["box"], properties = { box = { const = [0, 0, 500, 500] } } }
[[steps]]
use = "geometry"
boxes = ["/box"]
"""
POINTS = """
prompt = "x"
schema = { type = "object", required = ["box"], properties = { box = { const = [0, 0, 100, 50] } } }
[[steps]]
use = "geometry"
boxes = ["/box"]
to = "points"
"""
TASKS = {
    "points": POINTS,
    "each": EACH,
    "hiding": HIDING,
    "together": TOGETHER,
    "first": FIRST,
    "both": BOTH,
    "box": BOX,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tasks")
    for name, text in TASKS.items():
        (found / f"{name}.toml").write_text(text)
    return found


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    flags = ("--audit", "true", "--page-dpi", "72", "--max-pages", "40", "--page-timeout-s", "2")
    with serving("--tasks-dir", str(folder), *flags) as running:
        yield running


def uri(data: bytes, kind: str = "application/pdf") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def ask(service: Service, name: str, *images: Any, **body: Any) -> Any:
    return service.http.post(f"/v1/tasks/{name}", json={"images": list(images), **body})


def told(service: Service, name: str, *images: Any, **body: Any) -> Any:
    answer = ask(service, name, *images, **body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def audit(service: Service) -> list[dict[str, Any]]:
    path = service.folder / "data/audit/audit.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def too_long_in_the_middle(pages: int = 3, *hopeless: int) -> dict[str, Any]:
    """Pages of which some (from 1; the second by default) have more text than the model's context holds."""
    text = b"".join(
        pdfs.words(" ".join(str(line * 7919 + word * 104729) for word in range(25)), lower=10 + 2 * line, size=2)
        for line in range(200)
    )
    content = [text if number in (hopeless or (2,)) else b"" for number in range(1, pages + 1)]
    return {"url": uri(pdfs.document(content)), "page_text": True}


def test_pdf_10_each_page_gives_a_result(service: Service) -> None:
    before = len(audit(service))
    said = told(service, "each", uri(pdfs.numbered(3)))
    assert len(said["result"]) == 3
    assert len(set(said["result"])) == 3  # the fake engine tells pictures apart
    assert [(page["page"], page["pages"], page["finish_reason"]) for page in said["pages"]] == [
        (number, 3, "stop") for number in (1, 2, 3)
    ]
    assert [image["page"] for image in said["images"]] == [1, 2, 3]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert said["usage"][name] == sum(page["usage"][name] for page in said["pages"])
    lines = audit(service)[before:]
    assert [(line["page"], line["outcome"]) for line in lines] == [(1, "ok"), (2, "ok"), (3, "ok")]
    assert len({line["request"] for line in lines}) == 1


def test_a_page_asked_among_others_is_answered_as_if_it_stood_alone(service: Service) -> None:
    data = uri(pdfs.numbered(4))
    every = told(service, "each", data)["result"]
    some = told(service, "each", {"url": data, "pages": "4,2"})
    assert some["result"] == [every[3], every[1]]
    assert [page["page"] for page in some["pages"]] == [4, 2]
    assert some["warnings"] == ["images[0]: 2 of 4 pages are used."]


@pytest.mark.parametrize(
    ("name", "data", "result", "pages"),
    [
        ("each", uri(pdfs.numbered(1)), list, [1]),
        ("each", data_uri(1), str, None),
        ("first", uri(pdfs.numbered(5)), list, [1, 2]),
        ("first", uri(pdfs.numbered(1)), list, [1]),
        ("together", uri(pdfs.numbered(3)), str, None),
        ("both", uri(pdfs.numbered(3)), str, None),
        ("box", uri(pdfs.numbered(2)), list, [1, 2]),
        ("each", {"url": uri(pdfs.numbered(5)), "pages": "5-"}, list, [5]),
        ("first", {"url": uri(pdfs.numbered(5)), "pages": "3-"}, list, [3, 4]),
    ],
)
def test_the_form_of_the_result_is_the_tasks_and_the_files_and_not_the_number_of_pages(
    service: Service, name: str, data: Any, result: type, pages: list[int] | None
) -> None:
    said = told(service, name, data)
    assert isinstance(said["result"], result)
    assert [page["page"] for page in said["pages"]] == pages if pages else "pages" not in said


def test_all_pages_together_are_one_question(service: Service) -> None:
    assert len(told(service, "together", uri(pdfs.numbered(3)))["images"]) == 3
    assert len(told(service, "both", uri(pdfs.numbered(3)))["images"]) == 2


def test_more_pages_can_be_asked_one_by_one_than_fit_into_a_question(service: Service) -> None:
    data = uri(pdfs.numbered(40))  # max_pages; max_images is 32
    assert len(told(service, "each", data)["result"]) == 40
    assert ask(service, "together", data).json()["error"]["code"] == "too_many_pages"
    refused = ask(service, "each", uri(pdfs.numbered(41)))
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "images[0]")
    assert "41" in refused.json()["error"]["message"]


def test_a_document_of_several_pages_stands_alone(service: Service) -> None:
    refused = ask(service, "each", data_uri(1), uri(pdfs.numbered(2)))
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "too_many_pages")
    assert refused.json()["error"]["param"] == "images[1]"
    said = told(service, "each", data_uri(1), uri(pdfs.numbered(1)), {"url": uri(pdfs.numbered(3)), "pages": "2"})
    assert isinstance(said["result"], str)
    assert [image.get("page") for image in said["images"]] == [None, 1, 2]


def test_every_picture_of_a_tiff_has_its_answer(service: Service) -> None:
    data = tiff(*(Image.new("RGB", (60, 40), colour) for colour in ("red", "lime", "blue")))
    said = told(service, "box", uri(data, "image/tiff"))
    assert said["result"] == [{"box": [0, 0, 30, 20]}] * 3
    assert said["steps"] == [
        {"step": "schema", "changed": 0, "changes": {}},
        {"step": "geometry", "changed": 3, "changes": {"/box": 3}},
    ]
    assert [page["steps"][1]["changed"] for page in said["pages"]] == [1, 1, 1]


@pytest.mark.parametrize(
    ("rotate", "wanted"),
    [(0, (30, 765, 80, 805)), (90, (30, 5, 55, 85)), (180, (480, 5, 530, 45)), (270, (505, 725, 530, 805))],
)
def test_pdf_05_img_24_boxes_in_points_of_a_rotated_and_cropped_page(
    service: Service, rotate: int, wanted: tuple[int, ...]
) -> None:
    """The left upper tenth and twentieth of what is shown; the page shows 500 x 800 points of its 595 x 842."""
    data = pdfs.document([b"", b""], page=b"/CropBox[30 5 530 805]/Rotate %d" % rotate)
    said = told(service, "points", uri(data))
    assert said["result"] == [{"box": list(wanted)}] * 2
    assert (said["images"][1]["page_box"], said["images"][1]["page_rotate"]) == ([30, 5, 530, 805], rotate)
    refused = ask(service, "points", data_uri(1))
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_field")
    assert "page_box" not in told(service, "box", data_uri(1))["images"][0]


def test_passwords_and_the_text_of_pages(service: Service) -> None:
    secret = uri(pdfs.encrypted("open sesame"))
    assert ask(service, "each", secret).json()["error"]["code"] == "pdf_encrypted"
    wrong = ask(service, "each", {"url": secret, "password": "nonsense"})
    assert (wrong.json()["error"]["code"], wrong.json()["error"]["param"]) == ("pdf_bad_password", "images[0]")
    assert len(told(service, "each", {"url": secret, "password": "open sesame"})["result"]) == 1
    worded = uri(pdfs.document([pdfs.words("Invoice 4711 of the third of May")]))
    plain, beside = (
        told(service, "each", {"url": worded, "page_text": wanted})["usage"]["prompt_tokens"]
        for wanted in (False, True)
    )
    assert beside > plain + 5
    for wrong_pages in ("0", "", "7", 5):
        refused = ask(service, "each", {"url": worded, "pages": wrong_pages})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"].startswith("images[0]")
    assert "sesame" not in service.log()


def test_a_stream_has_a_frame_for_each_page(service: Service) -> None:
    data = uri(pdfs.numbered(3))
    whole = told(service, "box", data)
    answer = ask(service, "box", data, stream=True)
    told_ = frames(answer.text)
    assert [frame["object"] for frame in told_[:-1]] == ["task.page"] * 3 + ["task.result"]
    assert [frame["result"] for frame in told_[:3]] == whole["result"]
    assert [frame["page"] for frame in told_[:3]] == [1, 2, 3]
    for name in ("result", "pages", "usage", "images", "steps"):
        assert told_[3][name] == whole[name]
    assert told_[4] == "[DONE]"


def test_texts_stream_within_their_pages_and_nothing_hidden_leaves(service: Service) -> None:
    answer = ask(service, "hiding", uri(pdfs.numbered(2)), stream=True)
    assert "1234" not in answer.text
    told_ = frames(answer.text)[:-1]
    for page in (1, 2):
        said = "".join(frame["text"] for frame in told_ if frame["object"] == "task.delta" and frame["page"] == page)
        assert said == "call *** **** ****"
    assert told_[-1]["result"] == ["call *** **** ****"] * 2
    assert told_[-1]["steps"] == [{"step": "redact", "changed": 2, "changes": {"phone": 2}}]


def part(data: str | dict[str, Any]) -> dict[str, Any]:
    given = {"url": data} if isinstance(data, str) else data
    more = {name: value for name, value in given.items() if name != "url"}
    return {"type": "image_url", "image_url": {"url": given["url"]}, **more}


@pytest.mark.parametrize("name", ["each", "box", "hiding"])
def test_as_a_model_the_content_is_a_list_plain_and_streamed(service: Service, name: str) -> None:
    data = uri(pdfs.numbered(3))
    whole = told(service, name, data)
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0) as client:
        turn: Any = [{"role": "user", "content": [part(data)]}]
        plain: Any = client.chat.completions.create(model=f"task:{name}", messages=turn)
        chunks: Any = list(
            client.chat.completions.create(
                model=f"task:{name}", messages=turn, stream=True, stream_options={"include_usage": True}
            )
        )
    assert json.loads(plain.choices[0].message.content) == whole["result"]
    assert plain.usage.total_tokens == whole["usage"]["total_tokens"]
    assert [page["page"] for page in plain.twinlens["pages"]] == [1, 2, 3]
    *body, last = chunks
    assert (last.choices, last.usage.total_tokens) == ([], whole["usage"]["total_tokens"])
    text = "".join(chunk.choices[0].delta.content or "" for chunk in body)
    assert json.loads(text) == whole["result"]
    assert [chunk.choices[0].finish_reason for chunk in body if chunk.choices[0].finish_reason] == ["stop"]
    assert body[0].choices[0].delta.role == "assistant"
    assert sum(chunk.choices[0].delta.role is not None for chunk in body) == 1


def test_a_picture_as_a_model_is_answered_as_before(service: Service) -> None:
    turn = {"role": "user", "content": [part(data_uri(1))]}
    plain = service.http.post("/v1/chat/completions", json={"model": "task:each", "messages": [turn]}).json()
    streamed = service.http.post(
        "/v1/chat/completions", json={"model": "task:each", "messages": [turn], "stream": True}
    )
    text = "".join(frame["choices"][0]["delta"].get("content", "") for frame in frames(streamed.text)[:-1])
    assert text == plain["choices"][0]["message"]["content"]
    assert text.startswith("fake")
    assert "pages" not in plain["twinlens"]


def test_a_page_that_fails_is_named_and_takes_nothing_with_it(service: Service) -> None:
    before = len(audit(service))
    answer = ask(service, "each", (too_long_in_the_middle()))
    body = answer.json()
    assert (answer.status_code, body["error"]["code"]) == (400, "context_length_exceeded")
    assert body["error"]["message"].startswith("Page 2 of 3: ")
    first, second, third = body["twinlens"]["pages"]
    assert first["result"].startswith("fake")
    assert third["result"].startswith("fake")
    assert ("result" in second, second["error"]["code"]) == (False, "context_length_exceeded")
    assert [(line["page"], line["outcome"]) for line in audit(service)[before:]] == [
        (1, "ok"),
        (2, "context_length_exceeded"),
        (3, "ok"),
    ]
    assert not service.leases()


def test_a_page_that_fails_inside_a_stream(service: Service) -> None:
    data = too_long_in_the_middle(3, 1, 2)
    told_ = frames(ask(service, "box", data, stream=True).text)
    assert [frame.get("object", "error") for frame in told_[:-1]] == ["task.page"] * 3 + ["error"]
    assert [frame["page"] for frame in told_[:3]] == [1, 2, 3]
    assert told_[2]["result"]
    assert told_[3]["error"]["message"].startswith("Page 1 of 3: ")
    assert "1 more" in told_[3]["error"]["message"]
    assert len(told_[3]["twinlens"]["pages"]) == 3
    chat = {"model": "task:box", "messages": [{"role": "user", "content": [part(data)]}], "stream": True}
    told_ = frames(service.http.post("/v1/chat/completions", json=chat).text)
    text = "".join(frame["choices"][0]["delta"].get("content", "") for frame in told_[:-2])
    assert json.loads(text)[:2] == [None, None]
    assert told_[-2]["error"]["code"] == "context_length_exceeded"


def test_where_every_page_fails_the_status_says_so(service: Service) -> None:
    data = too_long_in_the_middle(2, 1, 2)
    chat = {"model": "task:each", "messages": [{"role": "user", "content": [part(data)]}]}
    for stream in (False, True):
        for answer in (
            ask(service, "each", data, stream=stream),
            service.http.post("/v1/chat/completions", json={**chat, "stream": stream}),
        ):
            assert answer.status_code == 400
            assert answer.headers["content-type"] == "application/json"
            assert answer.json()["error"]["message"].startswith("Page 1 of 2: ")
            assert [page["error"]["code"] for page in answer.json()["twinlens"]["pages"]] == [
                "context_length_exceeded"
            ] * 2


def damaged_in_the_middle() -> bytes:
    """A TIFF of three pages, the second of which cannot be decoded."""
    data = tiff(*(Image.new("RGB", (60, 40), colour) for colour in ("red", "lime", "blue")), compression="tiff_lzw")
    image: Any = Image.open(io.BytesIO(data))
    image.seek(1)
    at = image.tag_v2[273][0]  # where its strip begins
    return data[:at] + b"\xff" * 20 + data[at + 20 :]


def test_a_damaged_picture_of_a_tiff_fails_alone(service: Service) -> None:
    body = ask(service, "each", uri(damaged_in_the_middle(), "image/tiff")).json()
    assert body["error"]["code"] == "invalid_image", body
    assert [("result" in page) for page in body["twinlens"]["pages"]] == [True, False, True]


def test_pdf_09_a_page_without_end_ends_the_request_and_is_named(service: Service) -> None:
    answer = ask(service, "each", uri(pdfs.bomb()))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "pdf_timeout")
    assert "page 1" in answer.json()["error"]["message"]
    assert len(told(service, "each", uri(pdfs.numbered(1)))["result"]) == 1


def test_a_page_of_a_form_that_no_model_takes_is_named(service: Service) -> None:
    strip = pdfs.document(box=(0, 0, 10, 14400))
    assert "Page 1 of 1" in ask(service, "each", uri(strip)).json()["error"]["message"]


def test_what_was_answered_before_the_engine_failed_is_not_lost(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('engine_args = ["--fail-from", "3", "--fail-count", "1000", "--fail-status", "503"]')
    with serving("--tasks-dir", str(folder), "--audit", "true", environ={"TWINLENS_CONFIG": str(config)}) as service:
        data = uri(pdfs.numbered(3))
        answer = ask(service, "each", data)
        assert answer.status_code == 503
        finished = answer.json()["twinlens"]["pages"]
        assert 0 < len(finished) < 3
        assert all(page["result"] for page in finished)
        assert answer.headers["x-should-retry"] == "false"  # or the client would ask for all pages again
        lines = audit(service)
        assert [line["outcome"] for line in lines] == ["ok"] * len(finished) + ["engine_unavailable"]
        assert lines[-1]["page"] == len(finished) + 1


def test_limits_stand_once_in_the_head_and_every_page_is_charged(folder: Path) -> None:
    with serving("--tasks-dir", str(folder), "--address-vision-tokens", "10000", "--page-dpi", "72") as service:
        answer = ask(service, "each", uri(pdfs.numbered(3)))
        names = [name for name, _ in answer.headers.multi_items()]
        assert len(names) == len(set(names))
        used = answer.json()["usage"]["prompt_tokens_details"]["image_tokens"]
        left = int(answer.headers["x-ratelimit-remaining-tokens"])
        assert 10_000 - left > used * 2 / 3  # some of it has come back meanwhile


def test_a_client_that_leaves_between_pages_is_in_the_audit_trail(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('engine_args = ["--piece-delay-s", "0.2"]')
    environ = {"TWINLENS_CONFIG": str(config)}
    with serving("--tasks-dir", str(folder), "--audit", "true", environ=environ) as service:
        body = {"images": [uri(pdfs.numbered(5))], "stream": True}
        with service.http.stream("POST", "/v1/tasks/each", json=body) as answer:
            for line in answer.iter_lines():
                if "task.page" in line:
                    break
        path = service.folder / "data/audit/audit.jsonl"
        until(lambda: path.exists() and '"left"' in path.read_text(), 30)
        assert [line["outcome"] for line in audit(service)][-1] == "left"
        until(lambda: not service.leases(), 30)
