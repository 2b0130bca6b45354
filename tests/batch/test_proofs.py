"""What must never be lost: whatever ends a batch, `--resume` makes of it what an undisturbed run would have made."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import random
import signal
import subprocess
import tarfile
import time
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import psutil
import pytest

from tests.batch.harness import batch, command, pictures, records
from tests.batch.standin import Said, StandIn, answer, standing_in
from tests.media import pdfs
from tests.serving.harness import environment, picture, until
from twinlens.batch.journal import Journal
from twinlens.batch.output import replaced
from twinlens.batch.records import Done
from twinlens.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow
KILLS = 20
ENDING_S = 60.0
EXAMPLES = Path(__file__).parents[2] / "examples"


def words(standin: StandIn, *more: str) -> list[str]:
    return ["in", "--task", "words", "--url", standin.url, "--out", "r.jsonl", *more]


@contextlib.contextmanager
def started(folder: Path, *argv: str, shell: str = "") -> Iterator[subprocess.Popen[str]]:
    """A batch in the background, or a line of the shell in which it is “$@”."""
    full = ["bash", "-c", shell, "bash", *command(*argv)] if shell else command(*argv)
    process = subprocess.Popen(
        full, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=folder, env=environment(), text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def child(process: subprocess.Popen[str], part: str) -> psutil.Process:
    """The one process under another whose command line holds `part`."""
    family = psutil.Process(process.pid).children(recursive=True)
    (found,) = [one for one in family if part in " ".join(one.cmdline())]
    return found


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """(exit code, what it said)."""
    _, said = process.communicate(timeout=ENDING_S)
    return process.returncode, said


def lines(path: Path) -> list[Done]:
    """The finished records of a journal, which must have no torn or damaged line."""
    journal = Journal(path)
    try:
        found = [line for _, line in journal.replay() if isinstance(line, Done)]
        assert (journal.torn, journal.damaged) == (0, 0)
        return found
    finally:
        journal.close()


def plain(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what cannot be the same twice: times, and which of identical files was the one that was asked."""
    return [{key: one[key] for key in ("path", "page", "digest", "answer", "error")} for one in found]


def by_content(number: int, body: dict[str, Any]) -> Said:
    """An answer that is another for every picture."""
    return answer(str(hash(body["images"][0]) & 0xFFFFFF))


def asked_more(standin: StandIn, than: int) -> bool:
    return len(standin.bodies) > than


def inputs(folder: Path) -> None:
    """500 records of all kinds: pictures, copies, bad files, pages, members."""
    pictures(folder / "in", 400)
    for number in range(20):
        (folder / f"in/copy{number}.png").write_bytes((folder / f"in/p{number * 7}.png").read_bytes())
        (folder / f"in/bad{number}.pdf").write_bytes(b"%PDF-1.7 cut off")
    (folder / "in/long.pdf").write_bytes(pdfs.numbered(30))
    with tarfile.open(folder / "more.tar.gz", "w:gz") as archive:
        for number in range(30):
            info = tarfile.TarInfo(f"{number}.png")
            data = picture(1000 + number, (40, 30))
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def test_killed_at_twenty_moments_it_ends_as_though_nothing_had_been(tmp_path: Path) -> None:
    inputs(tmp_path)
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with standing_in(StandIn(by_content, delay_s=0.05)) as standin:
        to = ["--task", "words", "--url", standin.url, "--at-once", "4"]
        whole = batch(tmp_path, "in", "more.tar.gz", *to, "--out", "whole.jsonl")
        assert "500 of 500 done: 480 answered, 20 failed" in whole.stderr, whole.stderr
        journal = tmp_path / "r.jsonl.journal"
        done = 0
        for number in range(KILLS):
            more = ["--resume"] if journal.exists() and journal.stat().st_size else []
            asked = len(standin.bodies)
            with started(tmp_path, "in", "more.tar.gz", *to, "--out", "r.jsonl", *more) as process:
                if number % 5:  # else at any moment of its start
                    until(partial(asked_more, standin, asked), ENDING_S, 0.002)
                    time.sleep(rng.uniform(0, 0.3))
                else:
                    time.sleep(rng.uniform(0, 1.0))
                assert process.poll() is None
                process.kill()
                process.wait()
            before, done = done, len(lines(journal)) if journal.exists() else 0
            assert done >= before
        assert done < 500
        last = batch(tmp_path, "in", "more.tar.gz", *to, "--out", "r.jsonl", "--resume")
    assert "500 of 500 done: 480 answered, 20 failed" in last.stderr
    assert f"{done} were done before" in last.stderr
    assert plain(records(tmp_path / "r.jsonl")) == plain(records(tmp_path / "whole.jsonl"))


def test_killed_while_the_table_is_written_it_leaves_the_table_that_was_there(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 3)
    with standing_in(StandIn(by_content)) as standin:
        batch(tmp_path, *words(standin))
        whole = (tmp_path / "r.jsonl").read_bytes()
        (tmp_path / ".r.jsonl.1234").write_bytes(whole[:50])  # what such a kill leaves
        assert batch(tmp_path, *words(standin, "--resume")).returncode == 0
    assert (tmp_path / "r.jsonl").read_bytes() == whole


def test_batch_03_half_a_run_leaves_half_the_records_and_memory_is_flat(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 1000)
    with standing_in(StandIn(by_content, delay_s=0.01)) as standin:
        with started(tmp_path, *words(standin, "--at-once", "8")) as process:
            about = psutil.Process(process.pid)
            until(lambda: len(standin.bodies) >= 150, ENDING_S, 0.002)
            early = about.memory_info().rss
            until(lambda: len(standin.bodies) >= 500, ENDING_S, 0.002)
            late = about.memory_info().rss
            asked = len(standin.bodies)
            process.kill()
            process.wait()
        done = len(lines(tmp_path / "r.jsonl.journal"))
        assert 500 - 8 - 64 <= done <= asked + 64
        assert late - early < 16 << 20
        again = batch(tmp_path, *words(standin, "--resume"))
    assert f"1000 of 1000 done: 1000 answered, 0 failed; {done} were done before" in again.stderr


@pytest.mark.parametrize("order", ["stable", "ready"])
def test_batch_05_every_answer_is_that_of_its_file(tmp_path: Path, order: str) -> None:
    pictures(tmp_path / "in", 200)
    rng = random.Random(5)
    with standing_in(StandIn(by_content, delay=lambda: rng.uniform(0, 0.1))) as standin:
        done = batch(tmp_path, *words(standin, "--order", order, "--at-once", "32"))
        right = {f"in/p{number}.png": "" for number in range(200)}
        for path in right:
            data = (tmp_path / path).read_bytes()
            right[path] = next(
                by_content(0, body)[1]["result"]
                for body, sent in zip(standin.bodies, standin.sent(), strict=True)
                if sent == data
            )
    assert done.returncode == 0
    found = records(tmp_path / "r.jsonl")
    assert {one["path"]: one["answer"] for one in found} == right
    in_order = [one["path"] for one in found] == list(right)
    assert in_order == (order == "stable")


def test_ctrl_c_keeps_what_is_finished_and_waits_for_the_rest(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 60)
    with standing_in(StandIn(by_content, delay_s=0.2)) as standin:
        with started(tmp_path, *words(standin, "--at-once", "4")) as process:
            until(lambda: len(standin.bodies) > 12, ENDING_S, 0.005)
            process.send_signal(signal.SIGINT)
            code, said = ended(process)
        asked = len(standin.bodies)
        assert code == 130
        assert f"{asked} of 60 done: {asked} answered, 0 failed" in said
        assert f"It was interrupted. {60 - asked} left; --resume goes on." in said
        assert len(records(tmp_path / "r.jsonl")) == asked
        again = batch(tmp_path, *words(standin, "--resume"))
        assert f"60 of 60 done: 60 answered, 0 failed; {asked} were done before" in again.stderr
        assert len(standin.bodies) == 60


def test_ctrl_c_twice_waits_for_nothing(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 12)
    with standing_in(StandIn(delay_s=0.0)) as standin:
        standin.delay = lambda: 0.0 if len(standin.bodies) < 6 else 600.0
        with started(tmp_path, *words(standin, "--at-once", "4")) as process:
            until(lambda: len(standin.bodies) > 7, ENDING_S, 0.005)
            process.send_signal(signal.SIGINT)
            said_so = process.stderr
            assert said_so is not None
            until(lambda: "once more" in said_so.readline(), ENDING_S)
            process.send_signal(signal.SIGINT)
            code, said = ended(process)
    assert code == 130
    assert "5 of 12 done: 5 answered, 0 failed" in said
    assert "7 left" in said


def test_batch_13_counts_and_exit_code_survive_a_pipe(tmp_path: Path) -> None:
    """BATCH-13: the process that draws pages is killed; then the run itself ends early, its words going through tee."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/long.pdf").write_bytes(pdfs.numbered(40))
    with standing_in(StandIn(by_content, delay_s=0.05)) as standin:
        argv = words(standin, "--at-once", "2")
        with started(tmp_path, *argv, shell='set -o pipefail; "$@" 2>&1 | tee said') as process:
            until(lambda: len(standin.bodies) > 3, ENDING_S, 0.005)
            child(process, "pdf_process").kill()
            until(lambda: len(standin.bodies) > 10, ENDING_S, 0.005)
            child(process, "twinlens.cli.main").send_signal(signal.SIGTERM)
            process.wait(ENDING_S)
        asked = len(standin.bodies)
        assert process.returncode == 128 + signal.SIGTERM
        assert f"{asked} of 40 done: {asked} answered, 0 failed" in (tmp_path / "said").read_text()
        assert len(records(tmp_path / "r.jsonl")) == asked
        again = batch(tmp_path, *words(standin, "--resume"))
    assert "40 of 40 done: 40 answered, 0 failed" in again.stderr
    assert [one["page"] for one in records(tmp_path / "r.jsonl")] == list(range(1, 41))


@pytest.mark.parametrize("kind", ["limit", "file system"])
def test_a_full_disk_is_an_error_and_no_torn_file(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    pictures(tmp_path / "in", 120)
    if kind == "file system":
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=32k", "none", str(out)], capture_output=True, check=False
        )
        if mounted.returncode:
            pytest.skip("mounting a small file system needs root")
    limit = 'ulimit -f 32; exec "$@"' if kind == "limit" else ""
    try:
        (out / "r.jsonl").write_text("the table that was there\n")
        with standing_in(StandIn(by_content)) as standin:
            argv = ["in", "--task", "words", "--url", standin.url, "--out", "out/r.jsonl"]
            with started(tmp_path, *argv, "--overwrite", shell=limit) as process:
                code, said = ended(process)
            assert code == 2, said
            assert "There is no space left to write out/r.jsonl.journal. What was finished is kept." in said
            assert "run the same command with --resume" in said
            assert (out / "r.jsonl").read_text() == "the table that was there\n"
            done = len(lines(out / "r.jsonl.journal"))
            assert 5 < done < 120
            if kind == "file system":
                subprocess.run(["mount", "-o", "remount,size=4m", str(out)], check=True)
            again = batch(tmp_path, *argv, "--resume")
            assert f"120 of 120 done: 120 answered, 0 failed; {done} were done before" in again.stderr
            assert len(records(out / "r.jsonl")) == 120
    finally:
        if kind == "file system":
            subprocess.run(["umount", str(out)], check=True)


def test_a_table_that_does_not_fit_leaves_the_one_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("before")

    def full(file: IO[bytes]) -> None:
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(BatchError, match="no space left"):
        replaced(path, full)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_without_a_service_the_batch_starts_one_and_ends_it(tmp_path: Path) -> None:
    """The embedded engine with the demo model, on pictures whose right answers are known."""
    asked = json.loads((EXAMPLES / "answers.json").read_text("utf-8"))
    numbers = (3, 5, 6, 9, 10, 11)  # of the English ones with an answer of this form
    names = [f"inspect-{number:02}.jpg" for number in numbers]
    right = {
        one["picture"]: json.loads(one["answer"])["defect"]
        for one in asked
        if one["form"] == "json" and one["picture"] in names
    }
    (tmp_path / "in").mkdir()
    for name in names:
        (tmp_path / "in" / name).write_bytes((EXAMPLES / name).read_bytes())
    places = ["--run-dir", str(tmp_path / "run"), "--store", str(tmp_path / "store"), "--port", "0"]
    done = batch(tmp_path, "in", "--task", "inspect-defect", "--out", "r.csv", *places)
    assert done.returncode == 0, done.stderr
    assert "6 of 6 done: 6 answered, 0 failed" in done.stderr
    assert "No service runs here" in done.stderr
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text("utf-8-sig").splitlines()))
    assert [row["path"] for row in rows] == [f"in/{name}" for name in names]
    assert sum(row["defect"] == right[name] for row, name in zip(rows, names, strict=True)) >= 5
    left = [one for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(one.info["cmdline"] or [])]
    assert not left
