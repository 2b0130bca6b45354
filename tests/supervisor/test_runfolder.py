"""The run folder: one service at a time, nothing left behind, nobody else's folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from twinlens.errors import OperatorError, SettingsError
from twinlens.supervisor.runfolder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path


def test_it_is_private_and_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "a" / "run"
    with RunFolder(path) as folder:
        assert path.stat().st_mode & 0o777 == 0o700
        assert folder.metrics.is_dir()
        folder.engine_socket.touch()
        (path / "engine.json").write_text("{}")
        (path / "worker-0.beat").touch()
    assert not path.exists()


def test_a_folder_that_was_too_open_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir(mode=0o755)
    with RunFolder(path):
        assert path.stat().st_mode & 0o777 == 0o700


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("lock", [None, b"", b"flock of sheep", b"4242\nand more"])
def test_a_folder_of_somebodys_files_is_refused_and_left_as_it_is(tmp_path: Path, lock: bytes | None) -> None:
    """Whatever the files are called: a project has its own *.json and metrics/. A lock makes it no run folder."""
    path = tmp_path / "project"
    (path / "metrics").mkdir(parents=True)
    for name in ("package.json", "engine.json", "worker-0.beat", "metrics/data.csv", "metrics/counter_1.db"):
        (path / name).write_text(name)
    if lock is not None:
        (path / "lock").write_bytes(lock)
    path.chmod(0o755)
    before = contents(path)
    with pytest.raises(SettingsError, match="holds other files"), RunFolder(path):
        pass
    assert contents(path) == before
    assert path.stat().st_mode & 0o777 == 0o755


def test_only_the_exact_names_of_a_service_are_removed(tmp_path: Path) -> None:
    """Somebody's files that came into a run folder while it was one stay, and so does the folder."""
    path = tmp_path / "run"
    strangers = {"notes.json", "engine.json.bak", ".other.json.1", "worker-x.beat", "metrics/data.csv", "metrics/x.db"}
    with RunFolder(path) as folder:
        for name in (*strangers, "engine.json", ".service.json.12", "worker-3.beat", "metrics/gauge_livesum_7.db"):
            (folder.path / name).write_text(name)
    assert contents(path).keys() == strangers


def test_links_in_a_run_folder_are_not_followed(tmp_path: Path) -> None:
    outside, path = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    (outside / "counter_1.db").write_text("theirs")
    with RunFolder(path) as folder:
        folder.metrics.rmdir()
        folder.metrics.symlink_to(outside)
    assert contents(outside) == {"counter_1.db": b"theirs"}
    with RunFolder(tmp_path / "other") as folder:
        folder.metrics.rmdir()
        folder.metrics.symlink_to(outside)
        (folder.path / "engine.json").symlink_to(outside / "counter_1.db")
    assert contents(outside) == {"counter_1.db": b"theirs"}


def test_a_second_service_is_told_which_has_it(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run"), pytest.raises(OperatorError) as caught, RunFolder(tmp_path / "run"):
        pass
    assert f"process {os.getpid()}" in caught.value.message
    with RunFolder(tmp_path / "run"):
        """The refused one has harmed nothing, and the folder is free again."""


def test_what_a_killed_service_left_is_cleared(tmp_path: Path) -> None:
    path = tmp_path / "run"
    script = (
        "import sys, time; from pathlib import Path; from twinlens.supervisor.runfolder import RunFolder\n"
        "folder = RunFolder(Path(sys.argv[1])).__enter__(); folder.engine_socket.touch()\n"
        "(folder.metrics / 'counter_1.db').touch(); print('up', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert (path / "engine.sock").exists()
    with RunFolder(path) as folder:
        assert not folder.engine_socket.exists()
        assert list(folder.metrics.iterdir()) == []


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="too long"), RunFolder(tmp_path / ("x" * 120)):
        pass


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "real")
    with pytest.raises(SettingsError, match="is a link"), RunFolder(tmp_path / "run"):
        pass


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(SettingsError, match="cannot be made"), RunFolder(tmp_path / "run"):
        pass


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("part", ["run", "."])
def test_somebody_elses_folder_is_refused(tmp_path: Path, part: str) -> None:
    path = tmp_path / "above" / "run"
    path.mkdir(parents=True)
    os.chown(path.parent / part, 12345, -1)
    with pytest.raises(SettingsError, match="belongs to somebody else"), RunFolder(path):
        pass


def test_an_empty_folder_of_the_operators_stays(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    with RunFolder(mine) as folder:
        (folder.path / "engine.json").touch()
    assert mine.is_dir()
    assert not list(mine.iterdir())
