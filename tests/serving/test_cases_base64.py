"""Field cases of data URIs through the front door: what clients write, and what no client meant."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from tests.media.pictures import plain
from tests.serving.harness import picture
from tests.serving.test_api import error_of

if TYPE_CHECKING:
    from tests.serving.harness import Service

PNG = picture(64)
TEXT = base64.b64encode(PNG).decode()
WHERE = "messages[0].content[1]"


def ask(service: Service, url: Any) -> Any:
    return service.chat("what?", {"type": "image_url", "image_url": {"url": url}}, seed=1)


def wrapped(text: str, width: int = 76, end: str = "\r\n") -> str:
    return end.join(text[at : at + width] for at in range(0, len(text), width))


@pytest.mark.parametrize(
    "url",
    [
        f"data:image/png;charset=utf-8;base64,{TEXT}",
        f"data:image/png;name=a.png;base64,{TEXT}",
        f"data:;base64,{TEXT}",
        f"data:image;base64,{TEXT}",
        f"DATA:image/PNG;BASE64,{TEXT}",
        f"data:image/png;base64,{wrapped(TEXT)}",
        f"data:image/png;base64,{TEXT.rstrip('=')}",
        f"  data:image/png;base64,  {TEXT}  ",
        f"data:image/png;base64,{TEXT}\\n",
        f"data:image/jpeg;base64,{TEXT}",
        f"data:application/octet-stream;base64,{TEXT}",
        TEXT,
        wrapped(TEXT, 64, "\n"),
    ],
    ids=lambda url: url[:32],
)
def test_b64_01_02_03_04_08_09_what_clients_write_is_the_same_picture(service: Service, url: str) -> None:
    """Also the bytes decide and not the declared type, and bare base64 is taken."""
    plain_answer = ask(service, f"data:image/png;base64,{TEXT}").json()
    hits = service.metric('twinlens_pictures_total{hit="yes"}')
    answer = ask(service, url)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"] == plain_answer["choices"]
    assert service.metric('twinlens_pictures_total{hit="yes"}') == hits + 1


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("data:image/png;base64", "invalid_base64", "comma"),
        ("data:image/png,%89PNG%0D%0A", "invalid_base64", "not base64"),
        ("data:image/png;base64;charset=utf-8," + TEXT, "invalid_base64", "not base64"),
        ("data:image/png;base64,>>>>", "invalid_base64", "offset 0"),
        (f'data:image/png;base64,"{TEXT}"', "invalid_base64", "offset 0"),
        (f"data:image/png;base64,{TEXT[:40]}>{TEXT[40:]}", "invalid_base64", "offset 40"),
        ("data:image/png;base64,null", "invalid_base64", "no base64 of a picture"),
        ("data:image/png;base64," + TEXT[: len(TEXT) // 4 * 4 - 3], "invalid_base64", "ends in the middle"),
        ("data:image/png;base64,", "invalid_image", "empty"),
        ("data:image/png;base64,====", "invalid_image", "empty"),
        (
            "data:image/png;base64," + base64.b64encode(b"plain text, no picture").decode(),
            "unsupported_image_format",
            "",
        ),
    ],
    ids=lambda given: str(given)[:32],
)
def test_b64_01_04_07_08_11_what_is_none_is_a_400_that_names_the_part(
    service: Service, url: str, code: str, words: str
) -> None:
    for stream in (False, True):
        answer = service.chat("what?", {"type": "image_url", "image_url": {"url": url}}, stream=stream)
        error = error_of(answer)
        assert (answer.status_code, error["code"], error["param"]) == (400, code, WHERE)
        assert words in error["message"]
        assert TEXT[:64] not in answer.text


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_b64_08_every_format_under_a_wrong_name(service: Service, kind: str) -> None:
    data = base64.b64encode(plain(kind, (56, 56))).decode()
    assert ask(service, f"data:image/png;base64,{data}").status_code == 200


def test_b64_09_words_are_neither_pictures_nor_paths(service: Service) -> None:
    for url in ("photo", "photo.jpg", "./photo.jpg", "C:\\photo.jpg", "null", "undefined", "[object Object]", "blob:x"):
        answer = ask(service, url)
        assert answer.status_code == 400, url
        assert error_of(answer)["param"] == WHERE


def test_b64_11_a_bad_part_beside_a_good_one_fails_the_request(service: Service) -> None:
    good = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{TEXT}"}}
    bad = {"type": "image_url", "image_url": {"url": "data:image/png;base64"}}
    answer = service.chat(good, "what?", bad)
    assert (answer.status_code, error_of(answer)["param"]) == (400, "messages[0].content[2]")
