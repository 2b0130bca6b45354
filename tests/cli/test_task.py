"""`twinlens task` and `twinlens ask --task`, as a user types them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from tests.media import pdfs
from tests.serving.harness import Service, environment, picture, serving
from tests.serving.test_task_documents import damaged_in_the_middle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MINE = """
description = "Mine."
prompt = "say {{ text }}"
pictures = { least = 0 }
variables = { text = { default = "call 13812345678" } }
steps = [{ use = "redact" }]
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.toml").write_text(MINE)
    with serving("--tasks-dir", str(folder)) as running:
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "a.png").write_bytes(picture(1))
    (tmp_path / "mine.toml").write_text(MINE)
    return tmp_path / "mine.toml"


def twinlens(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "twinlens.cli.main", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, cwd=folder, env=environment()
    )


def test_list_show_and_check(file: Path) -> None:
    listed = twinlens("task", "list", "--tasks-dir", file.parent, folder=file.parent)
    assert [line.split()[0] for line in listed.stdout.splitlines()].count("mine") == 1
    assert "receipt" in listed.stdout
    shown = twinlens("task", "show", "receipt", folder=file.parent).stdout
    assert "variable language" in shown
    assert '"merchant"' in shown
    checked = twinlens("task", "check", file, folder=file.parent)
    assert (checked.returncode, checked.stdout.split(";")[0]) == (0, f"{file}: good")


def test_check_names_what_is_wrong_and_ends_with_2(file: Path) -> None:
    file.write_text(MINE + "colums = []")
    done = twinlens("task", "check", file, folder=file.parent)
    assert done.returncode == 2
    assert "Did you mean “columns”" in done.stderr
    assert twinlens("task", "check", folder=file.parent).returncode == 2
    assert twinlens("task", "show", "recipt", folder=file.parent).returncode == 1


def test_try_shows_prompt_raw_answer_and_every_step(service: Service, file: Path) -> None:
    done = twinlens("task", "try", file, "--url", service.url, "--var", "text=now 138 1234 5678", folder=file.parent)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines()
    assert shown[1:] == [
        "say now 138 1234 5678",
        "--- raw answer: 4 tokens, ended by stop",
        "now 138 1234 5678",
        "--- step redact",
        "now *** **** ****",
        "--- changes",
        "redact: phone x1",
    ]


def test_try_a_shipped_one_with_a_picture_and_one_whose_step_refuses(service: Service, file: Path) -> None:
    done = twinlens("task", "try", "chart-to-table", "a.png", "--url", service.url, folder=file.parent)
    assert '{"columns":["label","value"],"rows":[]}' in done.stdout
    assert "--- step schema: leaves it as it is" in done.stdout
    text = 'prompt = "say hello"\n[schema]\ntype = "string"\n[[steps]]\nuse = "geometry"\nboxes = ["/box"]\n'
    file.write_text(text + '[[steps]]\nuse = "template"\ntemplate = "{{ answer.gone }}"\n')
    refused = twinlens("task", "try", file, "a.png", "--url", service.url, folder=file.parent)
    assert refused.returncode == 1
    assert "--- step geometry" in refused.stdout
    assert "gone" in refused.stderr


def test_ask_a_task_of_the_service(service: Service, file: Path) -> None:
    for more in ((), ("--stream",)):
        done = twinlens("ask", "--task", "mine", "--url", service.url, *more, folder=file.parent)
        assert (done.returncode, done.stdout) == (0, "call ***********\n"), done.stderr
        done = twinlens("ask", "a.png", "--task", "receipt", "--url", service.url, *more, folder=file.parent)
        assert json.loads(done.stdout)["items"] == []
    done = twinlens("ask", "--task", "mine", "--var", "text=hi", "--url", service.url, folder=file.parent)
    assert done.stdout == "hi\n"
    wrong = twinlens("ask", "--task", "mine", "--var", "txt=hi", "--url", service.url, folder=file.parent)
    assert (wrong.returncode, "Did you mean “text”" in wrong.stderr) == (1, True)
    assert twinlens("ask", folder=file.parent).returncode == 2
    assert twinlens("ask", "--task", "mine", "--var", "x", folder=file.parent).returncode == 2


def test_documents_in_ask_and_try(service: Service, file: Path) -> None:
    (file.parent / "scan.pdf").write_bytes(pdfs.numbered(3))
    (file.parent / "secret.pdf").write_bytes(pdfs.encrypted("sesame"))
    (file.parent / "word").write_text("sesame\n")
    asking = ("--url", service.url)
    whole = twinlens("ask", "scan.pdf", "--task", "receipt", *asking, folder=file.parent)
    assert len(json.loads(whole.stdout)) == 3, whole.stderr
    streamed = twinlens("ask", "scan.pdf", "--task", "receipt", "--stream", *asking, folder=file.parent)
    assert json.loads(streamed.stdout) == json.loads(whole.stdout)
    some = twinlens("ask", "scan.pdf", "--task", "receipt", "--pages", "2-", *asking, folder=file.parent)
    assert len(json.loads(some.stdout)) == 2
    assert twinlens("ask", "secret.pdf", "say hello", *asking, folder=file.parent).returncode == 1
    opened = twinlens("ask", "secret.pdf", "say hello", "--password-file", "word", *asking, folder=file.parent)
    assert opened.stdout == "hello\n", opened.stderr
    none = twinlens("ask", "a.png", "say hello", "--pages", "2", *asking, folder=file.parent)
    assert (none.returncode, "PDF" in none.stderr) == (2, True)
    tried = twinlens("task", "try", "inspect-defect", "scan.pdf", "--pages", "3", *asking, folder=file.parent)
    assert tried.returncode == 0, tried.stderr
    assert tried.stdout.startswith("page 3 of 3;")
    assert "--- step geometry" in tried.stdout


def test_boxes_of_a_tried_page_are_those_of_that_page(service: Service, file: Path) -> None:
    """The second picture of the file is not of the size of the first, and lies on its side."""
    frames = [Image.new("RGB", (100, 50)), Image.new("RGB", (40, 80))]
    out = io.BytesIO()
    frames[0].save(out, "TIFF", save_all=True, append_images=frames[1:])
    (file.parent / "two.tiff").write_bytes(out.getvalue())
    file.write_text(
        'prompt = "x"\npages = "together"\n[schema]\nproperties = { box = { const = [0, 0, 500, 500] } }\n'
        'required = ["box"]\n[[steps]]\nuse = "geometry"\nboxes = ["/box"]\npicture = 1\n'
    )
    done = twinlens("task", "try", file, "two.tiff", "--url", service.url, folder=file.parent)
    assert '{"box":[0,0,20,40]}' in done.stdout.replace(".0", ""), done.stdout + done.stderr


def test_what_other_pages_answered_is_shown_beside_the_error(service: Service, file: Path) -> None:
    (file.parent / "scan.tiff").write_bytes(damaged_in_the_middle())
    for more in ((), ("--stream",)):
        done = twinlens("ask", "scan.tiff", "--task", "receipt", "--url", service.url, *more, folder=file.parent)
        first, second, third = json.loads(done.stdout)
        assert (done.returncode, second) == (1, None)
        assert first["items"] == third["items"] == []
        assert "Page 2 of 3" in done.stderr
