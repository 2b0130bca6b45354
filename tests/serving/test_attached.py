"""An engine that somebody else runs: found by its address, its absence said, its password shown nowhere."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.serving.harness import free_port, serving, until

pytestmark = pytest.mark.slow


def test_why_a_service_waits_is_shown_and_ends_when_the_engine_comes() -> None:
    port = free_port()
    with serving("--engine-url", f"http://somebody:hidden@127.0.0.1:{port}/v1", ready=False) as service:
        until(lambda: "The engine does not answer." in service.log(), 30)
        until(lambda: "does not answer" in service.http.get("/readyz").text, 10)
        command = [sys.executable, "-m", "twinlens.engines.fake", "--port", str(port)]
        with subprocess.Popen(command) as engine:
            try:
                until(service.ready, 30)
                assert service.chat("say hello").json()["choices"][0]["message"]["content"] == "hello"
            finally:
                engine.kill()
        assert f"http://********@127.0.0.1:{port}" in service.log()
        everything = service.log() + (service.folder / "run" / "service.json").read_text()
        assert "hidden" not in everything + service.http.get("/readyz").text


@pytest.mark.parametrize("url", ["foo", "unix:relative", "http://h:1/other"])
def test_an_address_that_is_none_ends_the_start(url: str) -> None:
    command = [sys.executable, "-m", "twinlens.cli.main", "serve", "--port", "0", "--engine-url", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"engine_url: “{url}”" in done.stderr
