"""Tasks through the front door: plain and streamed, as a route and as a model; what is hidden; what is written down."""

from __future__ import annotations

import base64
import io
import json
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from tests.serving.harness import Service, data_uri, frames, image_part, serving, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ECHO = """
description = "Says what it is told, without phone numbers."
prompt = "say {{ text }}"
pictures = { least = 0, most = 2 }
[variables.text]
max_length = 200
[[steps]]
use = "redact"
"""
BOX = """
prompt: Where is it?
schema:
  type: object
  properties:
    box: {type: array, items: {type: integer}}
  required: [box]
steps:
  - {use: geometry, boxes: [/box], to: file}
columns:
  - {name: left, path: /box/0}
"""
SECRET = "call 138 1234 5678 or １３９１２３４５６７８ now, id 11010519491231002X."
CLEAN = "call *** **** **** or *********** now, id ******************."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tasks")
    (found / "echo.toml").write_text(ECHO)
    (found / "box.yaml").write_text(BOX)
    (found / "long.toml").write_text('prompt = "x"\n[schema]\nconst = {a = "some words"}\n')
    (found / "notes.txt").write_text("not a task")
    return found


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    with serving("--tasks-dir", str(folder), "--audit", "true") as running:
        yield running


def ask(service: Service, name: str, **body: Any) -> Any:
    return service.http.post(f"/v1/tasks/{name}", json=body)


def audit(service: Service) -> list[dict[str, Any]]:
    text = (service.folder / "data/audit/audit.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_a_service_that_reads_the_text_of_pages_asks_for_documents_as_they_are() -> None:
    with serving("--page-text", "true") as reading:
        listed = reading.http.get("/v1/tasks").json()["data"]
    assert all(item["pages"]["document"] for item in listed)


def test_tasks_are_listed_by_themselves_and_as_models(service: Service) -> None:
    listed = {item["id"]: item for item in service.http.get("/v1/tasks").json()["data"]}
    shipped = {
        "describe-garment",
        "receipt",
        "lab-report",
        "id-card",
        "inspect-defect",
        "contract-clauses",
        "chart-to-table",
    }
    assert set(listed) == shipped | {"echo", "box", "long"}
    assert listed["echo"]["description"].startswith("Says what")
    assert len(listed["box"]["version"]) == 64
    assert listed["box"]["columns"] == ["left"]
    models = [item["id"] for item in service.http.get("/v1/models").json()["data"]]
    assert models == ["demo", *(f"task:{name}" for name in sorted(listed))]


@pytest.mark.parametrize(
    "name", ["describe-garment", "receipt", "lab-report", "inspect-defect", "contract-clauses", "chart-to-table"]
)
def test_each_shipped_task_answers_with_a_result_and_what_its_steps_did(service: Service, name: str) -> None:
    answer = ask(service, name, images=[data_uri(1)])
    body = answer.json()
    assert answer.status_code == 200, body
    assert body["object"] == "task.result"
    assert body["task"] == name
    assert body["result"]
    assert body["usage"]["total_tokens"] > 0
    assert body["steps"][0]["step"] == "schema"
    streamed = frames(ask(service, name, images=[data_uri(1)], stream=True).text)
    assert [streamed[0]["result"], streamed[-1], len(streamed)] == [body["result"], "[DONE]", 2]


def test_numbers_never_leave_a_stream_whatever_its_pieces(service: Service) -> None:
    plain = ask(service, "echo", variables={"text": SECRET}).json()
    assert plain["result"] == CLEAN
    assert plain["steps"] == [{"step": "redact", "changed": 3, "changes": {"phone": 2, "id": 1}}]
    answer = ask(service, "echo", variables={"text": SECRET}, stream=True)
    told = frames(answer.text)
    assert "".join(frame["text"] for frame in told if frame != "[DONE]" and frame["object"] == "task.delta") == CLEAN
    assert len(told) > 5
    assert told[-2]["result"] == CLEAN
    assert "1234" not in answer.text


def test_a_task_is_a_model_in_chat_completions(service: Service) -> None:
    for text in (json.dumps({"text": SECRET}),):
        body = service.chat(text, model="task:echo").json()
        assert body["model"] == "task:echo"
        assert body["choices"][0]["message"]["content"] == CLEAN
        assert body["twinlens"]["steps"][0]["changed"] == 3
    streamed = service.chat(json.dumps({"text": SECRET}), model="task:echo", stream=True)
    told = [frame["choices"][0]["delta"].get("content", "") for frame in frames(streamed.text)[:-1]]
    assert "".join(told) == CLEAN
    answer = service.chat(image_part(3), model="task:receipt")
    assert json.loads(answer.json()["choices"][0]["message"]["content"])["items"] == []


@pytest.mark.parametrize(
    ("name", "body", "status", "code", "said"),
    [
        ("reciept", {}, 404, "task_not_found", "Did you mean “receipt”"),
        ("echo", {}, 400, "invalid_field", "“text” has to be given"),
        ("echo", {"variables": {"txt": "x"}}, 400, "invalid_field", "Did you mean “text”"),
        ("echo", {"variables": {"text": 5}}, 400, "invalid_field", "of type string"),
        ("echo", {"variables": {"text": "x" * 201}}, 400, "invalid_field", "limit 200"),
        ("receipt", {"images": []}, 400, "invalid_field", "takes 1 pictures, not 0"),
        ("receipt", {"images": [data_uri(1), data_uri(2)]}, 400, "invalid_field", "takes 1 pictures, not 2"),
        ("receipt", {"images": ["?"]}, 400, "invalid_base64", "images[0]"),
        ("receipt", {"images": [{"url": ""}]}, 400, "invalid_field", "images[0]"),
        ("receipt", {"images": "x"}, 400, "invalid_field", "images"),
        ("receipt", {"images": [data_uri(1)], "variables": {"language": "fr"}}, 400, "invalid_field", "en, zh"),
        ("long", {"images": [data_uri(1)], "max_tokens": 1}, 502, "output_truncated", "token limit"),
        (
            "inspect-defect",
            {"images": [data_uri(1)], "variables": {"calibration": {"points": [[0, 0, 0, 0]] * 4}}},
            400,
            "invalid_field",
            "line",
        ),
    ],
)
def test_refusals_name_the_place(service: Service, name: str, body: Any, status: int, code: str, said: str) -> None:
    answer = ask(service, name, **body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "task:nosuch"},
        {"model": "task:echo", "n": 2},
        {"model": "task:echo", "logprobs": True},
        {"model": "task:echo", "response_format": {"type": "json_object"}},
        {"model": "task:echo", "stop": "x"},
        {"model": "task:echo", "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "{}"}]},
    ],
    ids=lambda fields: list(fields)[-1],
)
def test_a_chat_cannot_go_round_a_task(service: Service, fields: Any) -> None:
    answer = service.chat('{"text": "x"}', **fields)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"]


def test_tasks_take_uploaded_files(service: Service) -> None:
    data = base64.b64decode(data_uri(31).partition(",")[2])
    file = service.http.post("/v1/files", files={"file": ("a.png", data)}, data={"purpose": "vision"}).json()["id"]
    inside = ask(service, "receipt", images=[data_uri(31)]).json()
    told = ask(service, "receipt", images=[{"file_id": file}])
    assert told.status_code == 200, told.text
    assert (told.json()["images"], told.json()["usage"]) == (inside["images"], inside["usage"])
    part = {"type": "file", "file": {"file_id": file}}
    assert service.chat(part, model="task:receipt").status_code == 200
    missing = ask(service, "receipt", images=[{"file_id": "file-" + "0" * 32}])
    assert (missing.status_code, missing.json()["error"]["param"]) == (404, "images[0]")
    for wrong in ({}, {"file_id": file, "url": data_uri(31)}, {"file_id": ""}, {"file_id": 5}):
        refused = ask(service, "receipt", images=[wrong])
        assert refused.status_code == 400
        assert refused.json()["error"]["param"].startswith("images[0]")


def test_an_audit_line_says_who_when_and_what_but_nothing_of_the_answer(service: Service) -> None:
    before = len(audit(service))
    ask(service, "echo", variables={"text": SECRET})
    service.chat(json.dumps({"text": SECRET}), model="task:echo", stream=True)
    ask(service, "long", images=[data_uri(1)], max_tokens=1)
    service.chat("say hello")
    lines = audit(service)[before:]
    assert [(line["task"], line["outcome"]) for line in lines] == [
        ("echo", "ok"),
        ("echo", "ok"),
        ("long", "output_truncated"),
    ]
    assert lines[0]["steps"] == [{"step": "redact", "changed": 3, "changes": {"phone": 2, "id": 1}}]
    assert lines[0]["time"].endswith("Z")
    assert len(lines[0]["weights"]) == 64
    assert len(lines[0]["version"]) == 64
    path = service.folder / "data/audit/audit.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert "call" not in path.read_text()
    assert "1234" not in service.log()


def test_routes_of_tasks_are_metrics_of_their_own(service: Service) -> None:
    ask(service, "echo", variables={"text": "x"})
    ask(service, "nothing-of-that-name")
    text = service.http.get("/metrics").text
    assert 'route="/v1/tasks/echo"' in text
    assert "nothing-of-that-name" not in text


def turned(orientation: int) -> str:
    image = Image.new("RGB", (40, 20), "white")
    exif = image.getexif()
    exif[0x0112] = orientation
    out = io.BytesIO()
    image.save(out, "JPEG", exif=exif)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


def test_img_24_boxes_come_in_the_files_own_pixels_and_raw_answers_are_kept(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    # In fences, and reaching out of the picture; the picture is stored 40 x 20 and stands upright as 20 x 40.
    answer = json.dumps('```json\n{"box":[0,0,500,1200]}\n```')  # a JSON text is a TOML text too
    config.write_text(f'engine_args = ["--answer", {answer}]')
    with serving("--tasks-dir", str(folder), environ={"TWINLENS_CONFIG": str(config)}) as service:
        upright = ask(service, "box", images=[turned(1)]).json()
        assert upright["result"] == {"box": [0, 0, 20, 20]}
        assert upright["steps"] == [
            {"step": "schema", "changed": 1, "changes": {"fence": 1}},
            {"step": "geometry", "changed": 2, "changes": {"/box": 1, "/box clipped": 1}},
        ]
        assert ask(service, "box", images=[turned(6)]).json()["result"] == {"box": [0, 10, 40, 20]}
        failed = ask(service, "receipt", images=[turned(1)])
        assert failed.status_code == 502
        assert "500,1200" in failed.json()["twinlens"]["raw_answer"]


def test_a_service_can_hide_in_every_answer_and_in_its_log() -> None:
    with serving("--redact", "phone,id") as service:
        assert service.chat("say " + SECRET).json()["choices"][0]["message"]["content"] == CLEAN
        streamed = service.chat("say " + SECRET, stream=True, n=2)
        assert "1234" not in streamed.text
        assert "*" in streamed.text
        body = {"image": data_uri(1), "prompt": "say " + SECRET}
        headers = {"x-request-id": "13812345678"}
        assert service.http.post("/v1/inference", json=body, headers=headers).json()["text"] == CLEAN
        schema = {"type": "object", "properties": {"phone": {"const": 13812345678}}, "required": ["phone"]}
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        for stream in (False, True):
            answer = service.chat("x", response_format=form, stream=stream)
            assert "*" * 11 in answer.text
            assert "1381" not in answer.text
        refused = service.chat("x", logprobs=True)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "logprobs")
        assert "1381" not in service.log()
        assert "id=***********" in service.log()


def test_without_its_audit_line_no_answer_leaves(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "audit").write_text("a file where the folder should be")
    with serving("--audit", "true", folder=tmp_path) as service:
        answer = ask(service, "receipt", images=[data_uri(1)])
        assert (answer.status_code, answer.json()["error"]["code"]) == (507, "audit_unwritable")
        told = frames(ask(service, "receipt", images=[data_uri(1)], stream=True).text)
        assert told == [] or told[0]["error"]["code"] == "audit_unwritable"
        assert service.chat("say hello").status_code == 200


@pytest.mark.parametrize("text", ['prompt = "x"\nstpes = []', 'prompt = "{{ x"', "prompt = 5"])
def test_a_broken_task_ends_the_start_and_names_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    command = [sys.executable, "-m", "twinlens.cli.main", "serve", "--port", "0", "--engine", "fake"]
    command += ["--tasks-dir", str(tmp_path), "--run-dir", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "mine.toml" in done.stderr


@pytest.mark.slow
def test_a_client_that_leaves_is_in_the_audit_trail_too(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('engine_args = ["--piece-delay-s", "0.5"]')
    environ = {"TWINLENS_CONFIG": str(config)}
    with serving("--tasks-dir", str(folder), "--audit", "true", environ=environ) as service:
        body = {"variables": {"text": "some words that take their time to come"}, "stream": True}
        with service.http.stream("POST", "/v1/tasks/echo", json=body) as answer:
            next(answer.iter_bytes())
        path = service.folder / "data/audit/audit.jsonl"
        until(lambda: path.exists() and path.read_text(), 10)
        assert [line["outcome"] for line in audit(service)] == ["left"]
