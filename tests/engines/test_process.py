"""OPS-05: whatever way a process ends, nothing that it started outlives it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil

from tests.engines.harness import running
from twinlens import parent as parents
from twinlens.engines import process

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

CHILD = """
import os, sys, time
from twinlens.parent import die_with_parent
die_with_parent(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(60)
"""
PARENT = f"""
import os, subprocess, sys
from twinlens.parent import die_with_parent
die_with_parent(int(sys.argv[1]))
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}, str(os.getpid())], stdout=subprocess.PIPE)
print(os.getpid(), child.stdout.readline().decode().strip(), flush=True)
child.wait()
"""


def gone(pid: int, seconds: float = 5) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def test_child_and_grandchild_end_with_a_killed_parent() -> None:
    starter = (
        "import subprocess,sys,os; p=subprocess.Popen([sys.executable,'-c',sys.argv[1],str(os.getpid())]); p.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", starter, PARENT], stdout=subprocess.PIPE) as top:
        assert top.stdout is not None
        child, grandchild = map(int, top.stdout.readline().split())
        top.kill()
    assert gone(child)
    assert gone(grandchild)


def test_a_parent_that_is_gone_already() -> None:
    ended = subprocess.run([sys.executable, "-c", CHILD, "1"], timeout=20, check=False)
    assert ended.returncode == 1


def test_where_the_kernel_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread looks after the parent."""
    ended: list[int] = []
    monkeypatch.setattr(parents, "_prctl", lambda *_: False)
    monkeypatch.setattr(os, "getppid", lambda: 4242 if not ended else 1)
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(time, "sleep", lambda _: ended.append(0))
    parents._watch(4242)
    assert ended[-1] == 1


def test_an_engine_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    socket = tmp_path / "e.sock"
    starter = (
        "import subprocess,sys,os;"
        "p=subprocess.Popen([sys.executable,'-m','twinlens.engines.fake','--socket',sys.argv[1],'--parent',str(os.getpid())],"
        "stdin=subprocess.DEVNULL);print(p.pid,flush=True);p.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", starter, str(socket)], stdout=subprocess.PIPE) as top:
        assert top.stdout is not None
        engine = int(top.stdout.readline())
        end = time.monotonic() + 20
        while not socket.exists():
            assert time.monotonic() < end
            time.sleep(0.02)
        top.kill()
    assert gone(engine)


def test_only_this_user_can_open_the_socket() -> None:
    with running("fake") as engine:
        assert stat.S_IMODE(engine.socket.stat().st_mode) == 0o600


def test_sigterm_ends_an_engine_cleanly() -> None:
    with running("fake") as engine:
        engine.process.send_signal(signal.SIGTERM)
        assert engine.process.wait(10) in (0, -signal.SIGTERM)


def test_a_socket_that_a_killed_engine_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "left.sock"
    process._unix_socket(str(path)).close()
    assert path.exists()
    process._unix_socket(str(path)).close()
