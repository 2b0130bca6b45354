"""`twinlens ask` guards its user: who sees the key, and what an answer may do to a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serving.harness import free_port, serving
from tests.serving.test_keys import new_key
from twinlens.cli.main import main
from twinlens.cli.question import harmless
from twinlens.orders import ServiceCard, publish_card

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EVIL = "a\x1b]0;owned\x07b\x1b[31mc\x9b5nd\re\x7f\nf\tg"


@contextmanager
def listening(host: str = "127.0.0.1") -> Iterator[tuple[int, list[str | None]]]:
    """A server that refuses everything and keeps the keys that it was sent: (port, keys)."""
    keys: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys.append(self.headers.get("authorization"))
            self.send_error(503)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with HTTPServer((host, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], keys
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TWINLENS_API_KEYS", "configured")
    monkeypatch.setenv("TWINLENS_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.chdir(tmp_path)


def test_another_address_does_not_get_the_configured_key() -> None:
    with listening() as (port, keys):
        assert main(["ask", "hello", "--url", f"http://127.0.0.1:{port}", "--port", str(free_port())]) == 1
    assert keys == [None]


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_the_configured_service_gets_it_by_any_of_its_names(name: str) -> None:
    with listening() as (port, keys):
        assert main(["ask", "hello", "--url", f"http://{name}:{port}/", "--port", str(port)]) == 1
    assert keys == ["Bearer configured"]


def test_a_key_given_for_the_address_goes_there(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("given\n")
    with listening() as (port, keys):
        assert main(["ask", "hello", "--url", f"http://127.0.0.1:{port}", "--key-file", str(tmp_path / "key")]) == 1
    assert keys == ["Bearer given"]


@pytest.mark.parametrize(
    ("content", "flags", "words"),
    [
        (None, ["--url", "http://h:1"], "cannot be read"),
        (b"a\nb", ["--url", "http://h:1"], "holds no key"),
        (b"\xff", ["--url", "http://h:1"], "holds no key"),
        (None, [], "cannot be read"),
        (b"a\nb", [], "holds no key"),
    ],
)
def test_a_key_file_that_is_none_is_told(
    tmp_path: Path, content: bytes | None, flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    assert main(["ask", "hello", "--key-file", str(tmp_path / "key"), *flags]) == 2
    assert words in capsys.readouterr().err


def test_a_key_given_without_an_address_goes_to_the_configured_service(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("given\n")
    with listening() as (port, keys):
        (tmp_path / "run").mkdir(mode=0o700)
        publish_card(tmp_path / "run", ServiceCard(f"http://127.0.0.1:{port}", os.getpid(), "m", "fake", 0.0, False))
        assert main(["ask", "hello", "--key-file", str(tmp_path / "key"), "--port", str(port)]) == 1
    assert keys == ["Bearer given"]


@pytest.mark.slow
def test_a_service_with_a_keys_file_says_what_is_missing_and_takes_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TWINLENS_API_KEYS")
    (tmp_path / "key").write_text(new_key(tmp_path, "lab", "chat"))
    (tmp_path / "other").write_text("tlk_0123456789_wrong")
    with serving(folder=tmp_path) as service:
        for where in ([], ["--url", service.url]):
            ask = ["ask", "say hello", "--port", str(service.port), *where]
            assert main(ask) == 2
            told = capsys.readouterr().err
            assert "wants an API key" in told
            assert "--key-file FILE" in told
            assert main([*ask, "--key-file", str(tmp_path / "other")]) == 2
            assert "does not know this API key" in capsys.readouterr().err
            assert main([*ask, "--key-file", str(tmp_path / "key")]) == 0
            assert capsys.readouterr().out == "hello\n"


@given(st.text())
def test_what_is_shown_holds_no_control_character_and_all_else(text: str) -> None:
    shown = harmless(text)
    assert not [one for one in shown if (ord(one) < 32 and one not in "\n\t") or 127 <= ord(one) < 160]
    assert shown == "".join(one for one in text if one in shown)


@pytest.mark.slow
def test_a_terminal_gets_no_escape_sequences_and_a_file_gets_the_answer_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TWINLENS_API_KEYS")
    with serving() as service:
        command = [sys.executable, "-m", "twinlens.cli.main", "ask", f"say {EVIL}", "--url", service.url]
        piped = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
        assert piped.decode() == EVIL + "\n"
        ours, theirs = pty.openpty()
        subprocess.run([*command, "--stream"], stdout=theirs, timeout=60, check=True)
        os.close(theirs)
        shown = os.read(ours, 1000).replace(b"\r\n", b"\n")
        os.close(ours)
    assert shown.decode() == "a]0;ownedb[31mc5nde\nf\tg\n"
