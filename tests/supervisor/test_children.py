"""Children: their orders, their output, their ends."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from twinlens.supervisor import children
from twinlens.supervisor.children import Child, Command
from twinlens.supervisor.effort import effort

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def python(script: str, *, orders: bytes = b"", piped: bool = True) -> Command:
    return Command("child", (sys.executable, "-c", script), orders=orders, piped=piped)


async def test_orders_arrive_and_output_comes_with_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    child = await Child.start(python("import sys; print('got', sys.stdin.read())", orders=b"these"))
    death = await child.wait()
    assert (death.returncode, death.cause) == (0, "exit 0")
    assert capsys.readouterr().err == "child | got these\n"
    assert list(child.last_lines) == ["got these"]


async def test_orders_are_not_shown() -> None:
    assert "secret" not in repr(python("", orders=b"secret"))


async def test_a_child_that_reads_no_orders_is_no_error() -> None:
    child = await Child.start(python("import os; os._exit(3)", orders=b"x" * (1 << 20)))
    death = await child.wait()
    assert (death.cause, str(death).startswith("child (process")) == ("exit 3", True)


async def test_output_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    """One endless line and far too many lines cost neither memory nor log."""
    script = "import sys; sys.stdout.write('x' * 9_000_000 + '\\n'); [print(n) for n in range(5000)]"
    child = await Child.start(python(script))
    await child.wait()
    lines = capsys.readouterr().err.splitlines()
    assert max(len(line) for line in lines) <= children.LONGEST_LINE + len("child | ")
    assert len(lines) < 20 * children.LINES_A_SECOND
    assert list(child.last_lines)[-1] == "4999"


async def test_bytes_that_are_no_text_do_no_harm(capsys: pytest.CaptureFixture[str]) -> None:
    child = await Child.start(python("import os; os.write(1, b'\\xff\\xfe ok\\rnext')"))
    await child.wait()
    assert capsys.readouterr().err == "child | \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} ok\nchild | next\n"


@pytest.fixture
async def stubborn() -> AsyncIterator[Child]:
    """A child that ignores SIGTERM, with a child of its own."""
    script = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "grandchild = subprocess.Popen(['sleep', '60']); print(grandchild.pid, flush=True); time.sleep(60)"
    )
    child = await Child.start(python(script))
    while not child.last_lines:
        await asyncio.sleep(0.01)
    yield child
    child.kill()


async def test_one_that_does_not_end_is_ended_with_its_children(stubborn: Child) -> None:
    grandchild = int(stubborn.last_lines[0])
    began = time.monotonic()
    await stubborn.stop(0.2)
    assert time.monotonic() - began < 5
    death = await stubborn.wait()
    assert death.cause == "signal 9"
    assert "SIGKILL" in str(death)
    for _ in range(100):
        if not _runs(grandchild):
            break
        await asyncio.sleep(0.02)
    assert not _runs(grandchild)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_it_has_a_session_of_its_own() -> None:
    """So that Ctrl-C at a terminal does not reach it."""
    child = await Child.start(python("import time; time.sleep(60)"))
    assert os.getsid(child.pid) == child.pid
    await child.stop(5)


async def test_effort_grows_with_work_and_not_with_sleep() -> None:
    busy = await Child.start(python("while True: pass"))
    idle = await Child.start(python("import time; time.sleep(60)"))
    await asyncio.sleep(1.0)
    before = effort(busy.pid), effort(idle.pid)
    await asyncio.sleep(0.5)
    after = effort(busy.pid), effort(idle.pid)
    await busy.stop(5)
    await idle.stop(5)
    assert before[0] is not None
    assert after[0] is not None
    assert after[0] - before[0] > 0.3
    assert after[1] == before[1]
    assert effort(busy.pid) is None
