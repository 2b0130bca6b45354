from __future__ import annotations

import base64
import contextlib
import textwrap
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.media.pictures import noise, plain, uri
from twinlens.errors import ImageError, ImageTooLarge, ImageUrlNotAllowed, InvalidBase64, TwinlensError
from twinlens.media import datauri

PNG = plain("PNG")
TEXT = base64.b64encode(PNG).decode()
LIMIT = 1 << 20


def read(url: str, limit: int = LIMIT) -> bytes:
    return datauri.read(url, "messages[0].content[1]", limit)


def refused(url: str, kind: type[ImageError] = InvalidBase64) -> ImageError:
    with pytest.raises(kind) as caught:
        read(url)
    assert type(caught.value) is kind
    assert caught.value.param == "messages[0].content[1]"
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    "head",
    [
        "data:image/jpeg;charset=utf-8;base64,",
        "data:image/png;name=a.png;base64,",
        "data:image/png;name=a;b=c;base64,",
        "data:image/png; base64,",
    ],
)
def test_b64_01_parameters_before_base64(head: str) -> None:
    assert read(head + TEXT) == PNG


@pytest.mark.parametrize("url", ["data:image/png," + TEXT, "data:image/png;base64;x=1," + TEXT, "data:,%89PNG"])
def test_b64_01_the_last_parameter_decides(url: str) -> None:
    assert "base64" in refused(url).message


@pytest.mark.parametrize("head", ["data:;base64,", "data:image;base64,"])
def test_b64_02_without_a_media_type(head: str) -> None:
    assert read(head + TEXT) == PNG


@pytest.mark.parametrize("head", ["DATA:image/PNG;BASE64,", "Data:Image/Png;Base64,", "  data:image/png;base64,"])
def test_b64_03_upper_case(head: str) -> None:
    assert read(head + TEXT) == PNG


@pytest.mark.parametrize(
    "text",
    [
        "\r\n".join(textwrap.wrap(TEXT, 76)),
        TEXT.rstrip("="),
        f"  {TEXT}  ",
        TEXT + "\n",
        TEXT + "\\n",
        TEXT.rstrip("=") + "\r\n",
        "\\n".join(textwrap.wrap(TEXT, 76)),  # escaped once too often
        "\\r\\n".join(textwrap.wrap(TEXT, 76)) + "\\r\\n",
        TEXT.replace("/", "\\/"),
        " ".join(textwrap.wrap(TEXT, 76)),  # line ends that a shell turned into spaces
        "\t".join(textwrap.wrap(TEXT, 8)) + " ",
        "\n    ".join(textwrap.wrap(TEXT, 64)),
        " \r\n".join(textwrap.wrap(TEXT, 64)),
        TEXT.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D"),
        TEXT.replace("+", "-").replace("/", "_"),
        TEXT.rstrip("=").replace("+", "-").replace("/", "_"),
    ],
)
def test_b64_04_what_clients_write(text: str) -> None:
    assert read("data:image/png;base64," + text) == PNG
    assert read(text) == PNG


def test_b64_04_a_length_that_cannot_be() -> None:
    text = TEXT.rstrip("=")
    text = text[: len(text) // 4 * 4 + 1] if len(text) % 4 else text + "A"
    assert "offset" in refused("data:image/png;base64," + text).message


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        (">>>>", 0),
        (f'"{TEXT}"', 0),
        (TEXT[:10] + ">" + TEXT[10:], 10),
        (TEXT[:8] + "=" + TEXT[8:], 8),
        ("AAAA\u00e9", 4),
        ("AAAA\u00a0AAAA", 4),
        ("AAA= \n AAAA", 3),
        (TEXT[:41] + " " + TEXT[41:], 41),
        (TEXT[:40] + " " + TEXT[40:90] + " " + TEXT[90:], 40),
        (TEXT[:40] + " \n " + TEXT[40:44] + "  " + TEXT[44:], 47),
        ("\n" + TEXT[:4] + " " + TEXT[4:7] + "\t" + TEXT[7:], 5),
    ],
)
def test_b64_07_foreign_characters_are_named_by_their_offset(text: str, offset: int) -> None:
    assert f"offset {offset}." in refused("data:image/png;base64," + text).message


def test_b64_07_a_plus_that_a_form_turned_into_a_space_is_never_left_out() -> None:
    """Without it every byte behind means something else, and a JPEG would be drawn all the same."""
    data = noise("JPEG", 64, 64, quality=95)
    text = base64.b64encode(data).decode()
    assert text.count("+") > 3
    assert "%2B" in refused("data:image/jpeg;base64," + text.replace("+", " ")).cure


def test_spaces_are_looked_at_in_no_time() -> None:
    for text in ("A " * 5_000_000, " " * 10_000_000 + "A", "AAAA " * 2_000_000, ("AAAA" + " " * 60) * 100_000):
        began = time.process_time()
        with contextlib.suppress(ImageError):
            read("data:;base64," + text, limit=1 << 26)
        assert time.process_time() - began < 2


@pytest.mark.parametrize("text", ["null", "None", "undefined", "true", "AAAA"])
def test_b64_07_words_are_no_base64(text: str) -> None:
    refused(text)


@pytest.mark.parametrize("url", ["data:image/png;base64,", "data:image/png;base64,  \n", "", "  "])
def test_b64_07_nothing_is_an_empty_picture(url: str) -> None:
    assert "empty" in refused(url, ImageError).message


def test_two_alphabets_at_once() -> None:
    refused("data:image/png;base64,+/+/-_-_+/+/-_-_")


def test_b64_09_bare_base64() -> None:
    assert read(TEXT) == PNG
    jpeg = plain("JPEG")
    assert base64.b64encode(jpeg).decode().startswith("/9j/")  # looks like a path and is none
    assert read(base64.b64encode(jpeg).decode()) == jpeg


@pytest.mark.parametrize("url", ["data:image/png;base64", "data:", "data:image/png;base64;" + TEXT])
def test_b64_11_without_a_comma(url: str) -> None:
    assert "comma" in refused(url).message


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/a.png",
        "https://example.com/a.png",
        "HTTPS://EXAMPLE.COM/",
        "file:///etc/passwd",
        "ftp://x/y",
        "twinlens:0123456789abcdef0123456789abcdef",
        " twinlens:0123",
        "blob:https://x/y",
        "javascript:alert(1)",
        "C:\\pictures\\a.png",
        "/etc/shadow.bak",
        "./a.png",
        "../../secret/a.jpg",
        "pictures/a.png",
        "~/a.png",
    ],
)
def test_other_addresses_are_never_followed(url: str) -> None:
    refused(url, ImageUrlNotAllowed)


@pytest.mark.parametrize("url", ["/etc/passwd", "etc/hosts", "//host/x"])
def test_paths_without_an_ending_are_no_base64_of_a_picture(url: str) -> None:
    with pytest.raises(ImageError):
        data = read(url)
        assert not data.startswith(b"root")
        raise ImageError("decoded as base64, never opened")


def test_too_many_bytes_are_refused_before_and_after_decoding() -> None:
    for size in (101, 10_000):
        with pytest.raises(ImageTooLarge) as caught:
            read(uri(b"x" * size), limit=100)
        assert "100" in caught.value.message
    assert read(uri(b"x" * 100), limit=100) == b"x" * 100


def test_line_breaks_do_not_count_against_the_limit() -> None:
    text = "\r\n".join(textwrap.wrap(base64.b64encode(b"x" * 999).decode(), 4))
    assert read("data:;base64," + text, limit=1000) == b"x" * 999


@given(st.binary(min_size=8, max_size=300), st.integers(1, 80), st.booleans(), st.booleans(), st.booleans())
def test_every_usual_way_of_writing_gives_the_same_bytes(
    data: bytes, width: int, urlsafe: bool, padded: bool, wrapped: bool
) -> None:
    text = (base64.urlsafe_b64encode if urlsafe else base64.b64encode)(data).decode()
    text = text if padded else text.rstrip("=")
    text = "\n".join(textwrap.wrap(text, width)) if wrapped else text
    assert read("data:image/png;base64," + text) == data


@given(st.text(max_size=200))
def test_any_text_gives_bytes_or_one_of_our_errors(text: str) -> None:
    for url in (text, "data:" + text, "data:image/png;base64," + text):
        try:
            assert isinstance(read(url), bytes)
        except ImageError as error:
            assert text not in error.message or len(text) < 12
            assert isinstance(error, TwinlensError)


@given(st.text(alphabet='ABCDabcd0123+/=-_ \n\\%>"', max_size=60))
def test_text_near_base64(text: str) -> None:
    try:
        data = read("data:image/png;base64," + text)
    except ImageError:
        return
    clean = "".join(text.replace("\\n", "").split()).rstrip("=").translate(str.maketrans("-_", "+/"))
    if "%" not in text:
        assert base64.b64encode(data).decode().rstrip("=")[: len(clean) - 1] == clean[:-1]
