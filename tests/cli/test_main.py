"""The command line without a service: settings, exit codes, and what is said when something goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from twinlens import __version__
from twinlens.cli import config
from twinlens.cli.main import main, parsed
from twinlens.errors import ServerError, StoreError
from twinlens.settings import Settings
from twinlens.store import Store


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings but those of the test."""
    for name in [name for name in os.environ if name.startswith("TWINLENS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TWINLENS_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert done.value.code == 0
    assert capsys.readouterr().out == f"twinlens {__version__}\n"


def test_every_setting_that_is_no_secret_has_a_flag_on_every_command() -> None:
    secret = {item.name for item in fields(Settings) if item.metadata["secret"]}
    open_ones = [item.name for item in fields(Settings) if item.name not in secret]
    for words in (["serve"], ["ask", "p"], ["config"], ["store", "show"]):
        flags = [word for name in open_ones for word in ("--" + name.replace("_", "-"), name)]
        args = parsed([*words, *flags])
        assert {name: getattr(args, name) for name in open_ones} == {name: name for name in open_ones}
        for name in secret:
            with pytest.raises(SystemExit):
                parsed([*words, "--" + name.replace("_", "-"), "1"])


def test_config_shows_every_setting_and_where_it_came_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINLENS_WORKERS", "3")
    monkeypatch.setenv("TWINLENS_API_KEYS", "top-secret,other")
    Path("twinlens.toml").write_text("max_images = 7\n")
    assert main(["config", "--port", "8123"]) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in out.splitlines()}
    assert rows["port"] == ["8123", "flag --port"]
    assert rows["workers"] == ["3", "environment TWINLENS_WORKERS"]
    assert rows["max_images"] == ["7", "file twinlens.toml"]
    assert rows["host"] == ['"127.0.0.1"', "default"]
    assert "secret" not in out
    assert list(rows) == [item.name for item in fields(Settings)]


def test_config_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINLENS_API_KEYS", "top-secret")
    assert main(["config", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["port"] == {"name": "port", "value": 8000, "from": "default"}
    assert rows["api_keys"]["value"] == ["********"]


def test_config_shows_no_secret_of_an_engine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINLENS_ENGINE_URL", "http://user:top-secret@gpu:1")
    monkeypatch.setenv("TWINLENS_ENGINE_API_KEY", "top-secret")
    assert main(["config"]) == 0
    out = capsys.readouterr().out
    assert "secret" not in out
    assert '"http://********@gpu:1"' in out


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("TWINLENS_PROT", "1", "Did you mean “port”?"),
        ("TWINLENS_PORT", "http", "port (environment TWINLENS_PORT)"),
        ("TWINLENS_REQUEST_TIMEOUT_S", "nan", "request_timeout_s (environment TWINLENS_REQUEST_TIMEOUT_S): nan"),
        ("TWINLENS_IDLE_TIMEOUT_S", "inf", "idle_timeout_s (environment TWINLENS_IDLE_TIMEOUT_S): inf"),
        ("TWINLENS_KV_CACHE_GB", "-inf", "kv_cache_gb (environment TWINLENS_KV_CACHE_GB): -inf"),
    ],
)
def test_a_wrong_setting_is_named_with_its_cure(
    variable: str, value: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    assert main(["config"]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "twinlens config" in said


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--url-hosts", "https://img.test/x", "url_hosts: “https://img.test/x” names no host"),
        ("--redact", "shoes", "redact: "),
        ("--min-pixels", "999999999", "min_pixels"),
        ("--trusted-proxies", "nowhere", "trusted_proxies"),
        ("--tasks-dir", "missing", "missing"),
        ("--engine", "steam", "engine: “steam” is not one of"),
    ],
)
def test_a_start_that_cannot_succeed_ends_with_2_before_any_process_is_started(
    flag: str, value: str, words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    began = psutil.Process().children(recursive=True)
    assert main(["serve", "--port", "0", "--engine", "fake", "--run-dir", str(tmp_path / "run"), flag, value]) == 2
    assert words in capsys.readouterr().err
    assert psutil.Process().children(recursive=True) == began


@pytest.mark.parametrize(
    "argv", [[], ["serv"], ["config", "x"], ["serve", "m", "n"], ["ask"], ["ask", "p", "--no-such"]]
)
def test_a_wrong_command_line_ends_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(argv)
    assert done.value.code == 2
    assert "usage: twinlens" in capsys.readouterr().err


def test_words_of_a_question_may_stand_apart() -> None:
    assert parsed(["ask", "a.jpg", "--stream", "b.jpg", "--port", "1", "What?"]).words == ["a.jpg", "b.jpg", "What?"]


def failing(error: BaseException, monkeypatch: pytest.MonkeyPatch, argv: list[str]) -> int:
    """Exit code when the command raises."""

    def run(_: object) -> int:
        raise error

    monkeypatch.setattr(config, "run", run)
    return main(argv)


def test_a_bug_is_reported_in_a_file_without_private_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert failing(ZeroDivisionError("at fault"), monkeypatch, ["config", "--model=/home/me", "--host", "private"]) == 1
    said = capsys.readouterr().err
    assert "This is a bug: ZeroDivisionError." in said
    (path,) = (tmp_path / "data" / "reports").iterdir()
    assert str(path) in said
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert f"twinlens {__version__}\npython {sys.version.split()[0]}\n" in text
    assert "command twinlens config --model --host …\n" in text
    assert "ZeroDivisionError: at fault" in text
    assert "Traceback" in text


def test_a_bug_is_reported_elsewhere_when_the_data_folder_cannot_be_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "data").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert failing(ZeroDivisionError(), monkeypatch, ["config"]) == 1
    assert f"The report to send with it: {tmp_path}/twinlens-" in capsys.readouterr().err


def test_ctrl_c_is_no_fault(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert failing(KeyboardInterrupt(), monkeypatch, ["config"]) == 130
    assert capsys.readouterr().err == ""


def test_what_the_service_refuses_ends_with_1_and_its_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failing(ServerError("Too large.", cure=""), monkeypatch, ["config"]) == 1
    assert capsys.readouterr().err == "twinlens: Too large.\n"


def test_a_store_that_cannot_be_used_is_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    assert failing(StoreError("It is a link."), monkeypatch, ["config"]) == 2


def command(*argv: str) -> list[str]:
    return [sys.executable, "-m", "twinlens.cli.main", *argv]


def test_a_reader_that_leaves_is_no_fault() -> None:
    with subprocess.Popen(command("config"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def run_store(action: str, root: Path) -> Any:
    return main(["store", action, "--store", str(root)])


def test_store_show_and_clear(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    root = tmp_path / "store"
    assert run_store("show", root) == 0
    assert capsys.readouterr().out == f"There is no store at {root} yet.\n"
    with Store(root, 1 << 20).create("ab" * 32, "pixels", np.uint8, (4, 4, 3)) as pixels:
        pixels[...] = 1
    assert run_store("show", root) == 0
    out = capsys.readouterr().out
    assert f"folder   {root}\nobjects  1\nbytes    " in out
    assert run_store("clear", root) == 0
    assert capsys.readouterr().out == f"1 objects removed from {root}.\n"
    run_store("show", root)
    assert "objects  0" in capsys.readouterr().out
