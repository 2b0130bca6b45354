"""/v1/files through the front door, by the official client where it can say it."""

from __future__ import annotations

import base64
import contextlib
import io
import time
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import openai
import pytest

from tests.media.pictures import FOREIGN
from tests.serving.harness import Service, data_uri, picture, serving, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PNG = picture(21)


def stored(service: Service) -> list[Path]:
    root = service.folder / "data" / "files"
    return [path for path in root.rglob("*") if path.is_file() and path.name != "lock"]


def file_part(file_id: str, **fields: Any) -> dict[str, Any]:
    return {"type": "file", "file": {"file_id": file_id}, **fields}


def post(service: Service, data: bytes = PNG, name: str = "x.png", **fields: str) -> httpx.Response:
    return service.http.post("/v1/files", files={"file": (name, data)}, data={"purpose": "vision", **fields})


@pytest.fixture
def client(services: Service) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{services.url}/v1", api_key="unused", max_retries=0) as found:
        yield found


def test_the_official_client_keeps_files(client: Any) -> None:
    made = client.files.create(file=("a b.png", PNG), purpose="vision")
    assert (made.bytes, made.filename, made.purpose, made.object, made.status) == (
        *(len(PNG), "a b.png", "vision"),
        *("file", "processed"),
    )
    assert made.expires_at - made.created_at == 7 * 24 * 3600
    assert client.files.retrieve(made.id) == made
    assert client.files.content(made.id).read() == PNG
    assert made.id in [file.id for file in client.files.list()]
    assert client.files.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError) as gone:
        client.files.retrieve(made.id)
    assert gone.value.code == "file_not_found"
    for work in (client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError):
            work(made.id)


def test_expiry_is_the_clients_to_choose(client: Any) -> None:
    expires = {"anchor": "created_at", "seconds": 7200}
    made = client.files.create(file=("a.png", PNG), purpose="user_data", expires_after=expires)
    assert made.expires_at - made.created_at == 7200
    with pytest.raises(openai.BadRequestError) as short:
        client.files.create(
            file=("a.png", PNG), purpose="vision", expires_after={"anchor": "created_at", "seconds": 60}
        )
    assert short.value.param == "expires_after.seconds"
    client.files.delete(made.id)


def test_lists_come_in_pages(client: Any) -> None:
    for file in client.files.list():
        client.files.delete(file.id)
    made = []
    for number in range(5):
        made.append(client.files.create(file=(f"{number}.png", PNG), purpose="vision").id)
        time.sleep(0.002)  # ids are in the order of milliseconds
    other = client.files.create(file=("o", b"text"), purpose="user_data").id
    assert [file.id for file in client.files.list(order="asc")] == [*made, other]
    assert [file.id for file in client.files.list(purpose="vision")] == made[::-1]
    assert [file.id for file in client.files.list(limit=2, order="asc")] == [*made, other]  # follows the pages
    page = client.files.list(limit=2, after=made[4], order="desc")
    assert ([file.id for file in page.data], page.has_more) == (made[3:1:-1], True)
    for file_id in (*made, other):
        client.files.delete(file_id)


def test_the_same_picture_by_file_and_data_uri_is_one(services: Service) -> None:
    file_id = post(services, picture(22)).json()["id"]
    first = services.chat("what?", {"type": "image_url", "image_url": {"url": data_uri(22)}}, seed=1).json()
    encoded = base64.b64encode(picture(22)).decode()
    for part in (
        file_part(file_id),
        {"type": "file", "file": {"file_data": data_uri(22), "filename": "x.png"}},
        {"type": "file", "file": {"file_data": encoded}},
    ):
        hits = services.metric('twinlens_pictures_total{hit="yes"}')
        again = services.chat("what?", part, seed=1)
        assert again.status_code == 200, again.text
        for field in ("choices", "usage", "twinlens"):
            assert again.json()[field] == first[field]
        assert services.metric('twinlens_pictures_total{hit="yes"}') == hits + 1


def test_files_of_others_are_not_there() -> None:
    with serving(environ={"TWINLENS_API_KEYS": "first-key-of-ten,second-key-of-ten"}) as guarded:
        one, two = ({"authorization": f"Bearer {key}-key-of-ten"} for key in ("first", "second"))
        made = guarded.http.post(
            "/v1/files", files={"file": ("x.png", PNG)}, data={"purpose": "vision"}, headers=one
        ).json()
        for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
            for headers, status in ((two, 404), ({}, 401)):
                answer = guarded.http.request(method, f"/v1/files/{made['id']}{path}", headers=headers)
                assert answer.status_code == status
        assert guarded.http.get("/v1/files", headers=two).json()["data"] == []
        ask = {"model": "demo", "messages": [{"role": "user", "content": [file_part(made["id"])]}]}
        theirs = guarded.http.post("/v1/chat/completions", json=ask, headers=two)
        assert (theirs.status_code, theirs.json()["error"]["code"]) == (404, "file_not_found")
        assert theirs.json()["error"]["param"] == "messages[0].content[0]"
        assert guarded.http.post("/v1/chat/completions", json=ask, headers=one).status_code == 200


def test_a_broken_pdf_gets_a_clear_answer(services: Service) -> None:
    kept = post(services, FOREIGN["PDF"], "a.pdf", purpose="user_data")
    assert kept.status_code == 200
    uri = "data:application/pdf;base64," + base64.b64encode(FOREIGN["PDF"]).decode()
    for part in (
        file_part(kept.json()["id"]),
        {"type": "file", "file": {"file_data": uri, "filename": "a.pdf"}},
        {"type": "image_url", "image_url": {"url": uri}},
    ):
        error = services.chat("x", part).json()["error"]
        assert (error["code"], error["param"]) == ("pdf_invalid", "messages[0].content[1]")
        assert "PDF" in error["message"]


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({}, "messages[0].content[1].file"),
        ({"file": {}}, "messages[0].content[1].file"),
        ({"file": {"file_id": "file-1", "file_data": "AAAA"}}, "messages[0].content[1].file"),
        ({"file": {"file_id": ""}}, "messages[0].content[1].file.file_id"),
        ({"file": {"file_id": 1}}, "messages[0].content[1].file.file_id"),
        ({"file": {"file_data": " "}}, "messages[0].content[1].file.file_data"),
        ({"file": {"file_data": "https://a/b.png"}}, "messages[0].content[1].file.file_data"),
        ({"file": {"file_data": "/etc/passwd.txt"}}, "messages[0].content[1]"),
        ({"file": {"file_data": "data:image/png;base64"}}, "messages[0].content[1]"),
    ],
)
def test_bad_references_name_the_part(service: Service, part: dict[str, Any], param: str) -> None:
    answer = service.chat("x", {"type": "file", **part})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("file_id", ["file-" + "0" * 32, "../lock", "x" * 100])
def test_a_file_that_is_not_there_fails_the_request(service: Service, file_id: str) -> None:
    answer = service.chat("x", file_part(file_id))
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "file_not_found"


@pytest.mark.parametrize(
    ("fields", "files", "param"),
    [
        ({}, {"file": ("a.png", PNG)}, "purpose"),
        ({"purpose": "assistants"}, {"file": ("a.png", PNG)}, "purpose"),
        ({"purpose": "vision"}, {"other": ("a.png", PNG)}, None),
        ({"purpose": "vision"}, {"file": ("a.png", b"")}, "file"),
        ({"purpose": "vision"}, {"file": ("a.svg", FOREIGN["SVG"])}, "file"),
        ({"purpose": "vision", "expires_after[seconds]": "7200"}, {"file": ("a", PNG)}, "expires_after.anchor"),
        (
            {"purpose": "vision", "expires_after[anchor]": "created_at", "expires_after[seconds]": "soon"},
            {"file": ("a", PNG)},
            "expires_after.seconds",
        ),
    ],
)
def test_bad_uploads_are_refused_and_leave_nothing(
    service: Service, fields: dict[str, str], files: Any, param: str | None
) -> None:
    before = len(stored(service))
    answer = service.http.post("/v1/files", data=fields, files=files)
    assert answer.status_code == 400, answer.text
    if param:
        assert answer.json()["error"]["param"] == param
    assert len(stored(service)) == before


def test_what_is_no_form_is_refused(service: Service) -> None:
    send = service.http.post
    assert send("/v1/files", json={"file": "x"}).status_code == 415
    head = "multipart/form-data"
    for kind, body, status in (
        (head, b"x", 400),
        (f"{head}; boundary=" + "b" * 80, b"x", 400),
        (f"{head}; boundary=b", b"", 400),
        (f"{head}; boundary=b", b"nonsense", 400),
        (f"{head}; boundary=b", b'--b\r\nContent-Disposition: form-data; name="file"; filename=x\r\n\r\nabc', 400),
        (f"{head}; boundary=b", b"--b\r\n" + b"a" * 100_000, 400),
        (
            f"{head}; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * 99 + b"--b--\r\n",
            400,
        ),
        (f"{head}; boundary=b", b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + b"1" * 9999, 400),
    ):
        answer = send("/v1/files", content=body, headers={"content-type": kind})
        assert answer.status_code == status, (kind, body[:60], answer.text)
        assert answer.json()["error"]["code"]
    gzipped = send("/v1/files", content=b"x", headers={"content-type": head, "content-encoding": "gzip"})
    assert gzipped.status_code == 415
    assert not list((service.folder / "data" / "files" / "temporary").iterdir())


def test_pages_of_other_sites_cannot_upload(service: Service) -> None:
    form: dict[str, Any] = {"files": {"file": ("x.png", PNG)}, "data": {"purpose": "vision"}}
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{service.port + 1}"):
        answer = service.http.post("/v1/files", headers={"origin": origin}, **form)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed")
    assert service.http.post("/v1/files", headers={"origin": service.url}, **form).status_code == 200


def test_sec_07_names_are_kept_and_never_used(service: Service) -> None:
    for name in ("../../../../tmp/evil.txt", "/etc/cron.d/x", "..\\..\\x", "x" * 300, "CON", 'a"b.png', "收据.png"):
        kept = post(service, name=name)
        assert kept.status_code == 200
        shown = kept.json()["filename"]
        assert "/" not in shown
        assert "\\" not in shown
        content = service.http.get(f"/v1/files/{kept.json()['id']}/content")
        assert content.content == PNG
        assert content.headers["content-type"] == "application/octet-stream"
        assert content.headers["content-disposition"].startswith("attachment")
        assert content.headers["x-content-type-options"] == "nosniff"
    inside = {path for path in service.folder.rglob("*") if path.name.endswith("evil.txt") or path.name == "CON"}
    assert not inside


def test_large_files_are_streamed_to_disk_and_bounded() -> None:
    with serving("--max-file-bytes", str(40 << 20), "--files-bytes-per-owner", str(60 << 20)) as small:
        (worker,) = small.workers
        post(small, b"." * 1000, purpose="user_data")
        before = worker.memory_info().rss
        assert post(small, b"\0" * (40 << 20), "big", purpose="user_data").status_code == 200
        assert worker.memory_info().rss - before < 25 << 20
        over = post(small, b"\0" * ((40 << 20) + 1), "big", purpose="user_data")
        assert (over.status_code, over.json()["error"]["code"]) == (413, "body_too_large")
        quota = post(small, b"\0" * (30 << 20), "big", purpose="user_data")
        assert (quota.status_code, quota.json()["error"]["code"]) == (400, "file_quota_exceeded")
        assert len(stored(small)) == 2


def test_ops_18_uploads_that_end_badly_leave_nothing(service: Service) -> None:
    before = len(stored(service))

    def breaking() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n' + b"\0" * 3_000_000
        raise RuntimeError("the client dies")

    for _ in range(5):
        with contextlib.suppress(RuntimeError, httpx.TransportError):
            service.http.post(
                "/v1/files", content=breaking(), headers={"content-type": "multipart/form-data; boundary=b"}
            )
    until(lambda: len(stored(service)) == before, 10)


@pytest.mark.slow
def test_ops_18_a_worker_killed_in_an_upload_leaves_nothing_for_long() -> None:
    with serving() as running:
        (worker,) = running.workers

        def killing() -> Iterator[bytes]:
            yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n' + b"\0" * 3_000_000
            until(lambda: stored(running), 10)
            worker.kill()
            worker.wait(10)
            yield b"\0" * 3_000_000

        with contextlib.suppress(httpx.TransportError):
            running.http.post(
                "/v1/files", content=killing(), headers={"content-type": "multipart/form-data; boundary=b"}
            )
        until(running.ready, 30)
        until(lambda: not stored(running), 30)


@pytest.mark.slow
def test_a_restart_keeps_files(tmp_path: Path) -> None:
    with serving(folder=tmp_path) as first:
        file_id = post(first).json()["id"]
    with serving(folder=tmp_path) as second:
        assert second.http.get(f"/v1/files/{file_id}/content").content == PNG


def test_ops_12_paths_of_files_make_no_series(service: Service) -> None:
    for number in range(30):
        service.http.get(f"/v1/files/file-{number:032x}")
        service.http.get(f"/v1/files/{number}/content")
    text = service.http.get("/metrics").text
    assert "/v1/files/file-0" not in text
    assert 'route="/v1/files/{file_id}"' in text
    assert 'route="/v1/files/{file_id}/content"' in text


async def test_the_asynchronous_client(services: Service) -> None:
    async with openai.AsyncOpenAI(base_url=f"{services.url}/v1", api_key="unused", max_retries=0) as client:
        made: Any = await client.files.create(file=("a.png", io.BytesIO(PNG)), purpose="vision")
        content: Any = [file_part(made.id), {"type": "text", "text": "what is it?"}]
        answer = await client.chat.completions.create(model="demo", messages=[{"role": "user", "content": content}])
        assert answer.choices[0].message.content
        await client.files.delete(made.id)
