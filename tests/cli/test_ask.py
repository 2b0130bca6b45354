"""`twinlens ask`, as a user types it, against real services with the fake engine."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.models import model_folder
from tests.serving.harness import Service, free_port, picture, serving, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving() as running:
        yield running


@pytest.fixture
def photo(tmp_path: Path) -> str:
    path = tmp_path / "photo.png"
    path.write_bytes(picture(1))
    return str(path)


def start(service: Service | None, *words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "twinlens.cli.main", "ask", *words]
    if service:
        argv += ["--port", str(service.port), "--run-dir", str(service.folder / "run")]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ask(service: Service | None, *words: str) -> tuple[int, str, str]:
    """(exit code, output, errors)."""
    with start(service, *words) as process:
        out, err = process.communicate(timeout=90)
    return process.returncode, out, err


def test_the_answer_is_the_output_and_nothing_else(service: Service, photo: str) -> None:
    assert ask(service, photo, "say good morning") == (0, "good morning\n", "")


def test_streamed(service: Service, photo: str) -> None:
    assert ask(service, photo, "--stream", "say good morning") == (0, "good morning\n", "")


def test_several_pictures_and_none(service: Service, photo: str) -> None:
    assert "2 pictures" in ask(service, photo, photo, "What is new?")[1]
    assert ask(service, "say hello")[1] == "hello\n"


def test_a_schema(service: Service, photo: str, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(schema))
    code, out, _ = ask(service, photo, "The total?", "--schema", str(path))
    assert code == 0
    assert isinstance(json.loads(out)["total"], int)


def test_by_url(service: Service) -> None:
    assert ask(None, "say hello", "--url", service.url + "/") == (0, "hello\n", "")


def test_an_answer_that_was_cut_is_told(service: Service) -> None:
    code, out, err = ask(service, "say one two three", "--max-tokens", "2")
    assert (code, out) == (0, "one two\n")
    assert "cut" in err


def test_a_refusal_is_shown_in_the_services_words(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "no.png"
    path.write_bytes(b"no picture")
    code, out, err = ask(service, str(path), "What is it?")
    assert (code, out) == (1, "")
    assert "messages[0].content[0]" in err or "picture" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("missing.jpg", "What?"), "There is no picture missing.jpg."),
        (("What?", "--schema", "missing.json"), "The schema missing.json cannot be read"),
        (("What?", "--url", "http://127.0.0.1:9"), "No service answers at http://127.0.0.1:9."),
        (("What?", "--url", "nonsense"), "No service answers at nonsense."),
    ],
)
def test_what_the_user_has_to_mend(words: tuple[str, ...], said: str) -> None:
    code, out, err = ask(None, *words)
    assert (code, out) == (2, "")
    assert said in err


def test_a_wrong_schema_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("{")
    code, _, err = ask(None, "What?", "--schema", str(tmp_path / "s.json"))
    assert code == 2
    assert "is not JSON" in err


def test_without_a_service_one_is_started_for_the_question(tmp_path: Path, photo: str) -> None:
    flags = ["--engine", "fake", "--model", str(model_folder()), "--port", str(free_port())]
    code, out, err = ask(None, photo, "say hello", *flags, "--store", str(tmp_path / "store"))
    assert (code, out) == (0, "hello\n")
    assert "No service runs here" in err


def test_somebody_elses_server_gets_no_picture(tmp_path: Path, photo: str) -> None:
    """What listens at the configured port is another program: the question is not put to it."""
    with subprocess.Popen(
        [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port := free_port())],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
    ) as other:
        time.sleep(1)
        flags = ["--engine", "fake", "--model", str(model_folder()), "--port", str(port)]
        code, out, err = ask(None, photo, "say hello", *flags, "--store", str(tmp_path / "store"))
        other.kill()
        assert other.stderr is not None
        requests = other.stderr.read().decode()
    assert (code, out) == (0, "hello\n"), err
    assert "POST" not in requests


def test_test_weights_are_not_quoted(tmp_path: Path, photo: str) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for file in model_folder().iterdir():
        (model / file.name).symlink_to(file)
    (model / "TEST_WEIGHTS").touch()
    with serving(model=str(model), folder=tmp_path) as running:
        expected = (0, "test weights: text withheld, 2 tokens\n", "")
        assert ask(running, photo, "say good morning") == expected
        assert ask(running, photo, "say good morning", "--stream") == expected


def test_ctrl_c() -> None:
    slow = "--engine-args=--piece-delay-s=1,--pieces=60"
    with serving("--engine", "fake", slow) as running:
        with start(running, "tell", "--stream") as process:
            assert process.stdout is not None
            process.stdout.read(1)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=10)
        assert (process.returncode, err) == (130, "")


def test_with_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(environ={"TWINLENS_API_KEYS": "right"}, ready=True) as running:
        code, _, err = ask(running, "say hello")
        assert code == 2  # whoever asks has to pass something else, as with any wrong use
        assert "--key-file" in err
        monkeypatch.setenv("TWINLENS_API_KEYS", "right")
        assert ask(running, "say hello") == (0, "hello\n", "")


def test_serve_asks_a_first_question_and_serves_on(photo: str) -> None:
    """What scripts/start does."""
    with serving("--ask", photo, "say good morning") as running:
        until(lambda: running.log().count("  address  ") == 2, 20)
        assert f"\n{photo}\nsay good morning\n" in running.log()
        # The service's own lines go the same way and can fall between the pieces of the answer.
        assert "\ngood morning\n" in re.sub(r"20\d\d-\d\d-\d\d \d\d:.*\n", "", running.log())
        assert f"base64 < {photo} |" in running.log()
        assert running.ready()


def test_serve_goes_on_when_the_first_question_fails() -> None:
    with serving("--ask", "/missing.jpg", "What?") as running:
        until(lambda: "No answer: The picture /missing.jpg cannot be read" in running.log(), 20)
        assert running.ready()
