"""A service that has no room, breaks connections, restarts or changes: no answer is lost, and nobody is blamed."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.batch.harness import batch, pictures, records
from tests.batch.standin import Said, StandIn, answer, refusal, standing_in
from tests.serving.harness import serving

if TYPE_CHECKING:
    from pathlib import Path


def run(folder: Path, standin: StandIn, *words: str) -> Any:
    return batch(folder, "in", "--task", "words", "--url", standin.url, "--out", "r.jsonl", *words)


def asked_about(body: dict[str, Any]) -> str:
    return str(body["images"][0])


def test_429_is_waited_for_and_fails_nobody(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 12)
    at: list[float] = []

    def answers(number: int, body: dict[str, Any]) -> Said:
        at.append(time.monotonic())
        return refusal(429, "rate_limited", Retry_After="2") if number == 6 else answer()

    with standing_in(StandIn(answers)) as standin:
        done = run(tmp_path, standin)
    assert (done.returncode, done.stderr) == (0, "r.jsonl: 12 of 12 done: 12 answered, 0 failed\n")
    assert len(standin.bodies) == 13
    assert max(later - at[5] for later in at[6:]) >= 2.0
    under_way = [later - at[5] for later in at[6:] if later - at[5] < 2.0]
    assert len(under_way) <= 12  # what was sent before the refusal came; nothing after it


def test_a_service_without_room_is_asked_less_at_once(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 120)
    standin = StandIn(delay_s=0.05)

    def answers(number: int, body: dict[str, Any]) -> Said:
        return refusal(503, "overloaded", Retry_After="0.1") if standin.under_way > 6 else answer()

    standin.answers = answers
    with standing_in(standin):
        done = run(tmp_path, standin)
    assert "120 of 120 done: 120 answered, 0 failed" in done.stderr
    assert len(standin.bodies) < 240  # it does not knock at the door all the time
    assert standin.most_under_way <= 24


def test_broken_connections_are_asked_again(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 20)
    with standing_in(StandIn(lambda number, body: None if number in {3, 4, 11} else answer())) as standin:
        done = run(tmp_path, standin)
    assert (done.returncode, len(standin.bodies)) == (0, 23)
    assert "20 of 20 done: 20 answered, 0 failed" in done.stderr


def test_an_item_that_breaks_the_service_each_time_fails_alone(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 12)
    seen: list[str] = []

    def answers(number: int, body: dict[str, Any]) -> Said | None:
        seen.append(asked_about(body))
        return None if asked_about(body) == seen[2] else answer()

    with standing_in(StandIn(answers)) as standin:
        done = run(tmp_path, standin)
    assert done.returncode == 1
    assert "12 of 12 done: 11 answered, 1 failed" in done.stderr
    (failed,) = [record for record in records(tmp_path / "r.jsonl") if record["error"]]
    assert failed["error"]["code"] == "no_connection"
    assert seen.count(seen[2]) == 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["engine_unavailable", "no connection"])
def test_batch_15_a_service_that_is_down_fails_no_document(tmp_path: Path, kind: str) -> None:
    """BATCH-15: what is left stays undone and is asked by --resume; bad documents do not count as trouble."""
    pictures(tmp_path / "in", 40)
    down = True

    def answers(number: int, body: dict[str, Any]) -> Said | None:
        if down and number > 10:
            return None if kind == "no connection" else refusal(503 if "engine" in kind else 500, kind)
        return refusal(400, "invalid_image") if number in {2, 4, 6, 7, 8, 9} else answer()

    with standing_in(StandIn(answers)) as standin:
        done = run(tmp_path, standin, "--wait", "5")
        assert done.returncode == 1
        assert "10 of 40 done: 4 answered, 6 failed" in done.stderr
        assert "Stopped." in done.stderr
        assert "30 left; --resume goes on." in done.stderr
        assert len(records(tmp_path / "r.jsonl")) == 10
        assert len(standin.bodies) < 60
        down = False
        done = run(tmp_path, standin, "--resume")
    assert "40 of 40 done: 34 answered, 6 failed; 10 were done before" in done.stderr


def test_batch_15_a_service_that_is_gone_is_waited_for_and_then_left(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 12)
    standin = StandIn(ready=lambda: len(standin.bodies) < 5)
    standin.answers = lambda number, body: answer() if number < 5 else None
    with standing_in(standin):
        began = time.monotonic()
        done = run(tmp_path, standin, "--wait", "3")
    assert time.monotonic() - began >= 3
    assert (done.returncode, "4 of 12 done: 4 answered, 0 failed" in done.stderr) == (1, True)
    assert "is not ready after 3 s. 8 left" in done.stderr


def test_a_service_that_comes_back_in_time_is_gone_on_with(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 12)
    back = threading.Event()
    standin = StandIn(ready=lambda: len(standin.bodies) < 5 or back.is_set())
    standin.answers = lambda number, body: answer() if number < 5 or back.is_set() else None
    with standing_in(standin):
        timer = threading.Timer(2.0, back.set)
        timer.start()
        done = run(tmp_path, standin)
        timer.join()
    assert (done.returncode, "12 of 12 done: 12 answered" in done.stderr) == (0, True)


def test_other_weights_after_a_restart_are_not_mixed_in(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 12)

    def answers(number: int, body: dict[str, Any]) -> Said | None:
        if number == 5:
            standin.weights = "weights-2"
            return None
        return answer()

    standin = StandIn(answers)
    with standing_in(standin):
        done = run(tmp_path, standin, "--at-once", "1")
        assert (done.returncode, "other weights. 8 left" in done.stderr) == (1, True)
        again = run(tmp_path, standin, "--resume")
        assert (again.returncode, "the model's weights changed" in again.stderr) == (2, True)
        again = run(tmp_path, standin, "--resume", "--accept-changes")
    assert "12 of 12 done: 12 answered, 0 failed\n" in again.stderr


def test_answers_of_another_task_file_are_not_kept(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 6)
    with standing_in(StandIn(lambda number, body: answer(version="other") if number > 3 else answer())) as standin:
        done = run(tmp_path, standin, "--at-once", "1")
    assert (done.returncode, "another task file. 3 left" in done.stderr) == (1, True)


@pytest.mark.parametrize(("status", "code"), [(401, "invalid_key"), (403, "forbidden"), (404, "task_not_found")])
def test_a_key_that_is_taken_back_stops_the_run(tmp_path: Path, status: int, code: str) -> None:
    pictures(tmp_path / "in", 6)
    with standing_in(StandIn(lambda number, body: refusal(status, code) if number > 2 else answer())) as standin:
        done = run(tmp_path, standin, "--at-once", "1")
    assert (done.returncode, len(standin.bodies)) == (1, 3)
    assert f"The stand-in says {code}. 4 left" in done.stderr


def test_pictures_follow_no_redirect_to_another_host(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 3)
    with standing_in(StandIn()) as other:
        moved = f"{other.url}/v1/tasks/words"
        with standing_in(StandIn(lambda number, body: (307, {}, {"Location": moved}))) as standin:
            done = run(tmp_path, standin)
        assert (done.returncode, "status 307" in done.stderr) == (1, True)
        assert other.bodies == []


def test_nonsense_from_the_service_is_no_record_and_no_crash(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 3)
    bad: list[Said] = [(200, {"object": "task.result", "result": "x", "finish_reason": "stop"}, {}), (200, {}, {})]
    with standing_in(StandIn(lambda number, body: bad[number - 1] if number < 3 else answer())) as standin:
        done = run(tmp_path, standin)
    assert (done.returncode, "3 of 3 done: 3 answered" in done.stderr) == (0, True), done.stderr


def test_an_engine_that_dies_inside_answers_costs_none_of_them(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 30)
    with serving("--engine-args=--die-after=12") as service:
        engine = service.engine.pid
        to = ["--task", "chart-to-table", "--url", service.url]
        done = batch(tmp_path, "in", *to, "--out", "r.jsonl", "--at-once", "4")
        assert service.engine.pid != engine
    assert (done.returncode, "30 of 30 done: 30 answered, 0 failed" in done.stderr) == (0, True), done.stderr


TASK = """
prompt = "say call 13912345678"
[[steps]]
use = "redact"
"""


def test_what_is_hidden_stays_out_of_everything_a_batch_writes(tmp_path: Path) -> None:
    """And a batch that began with redaction does not go on without it."""
    pictures(tmp_path / "in", 2)
    for name in ("a.png", "z.png"):
        (tmp_path / "in" / name).write_bytes((tmp_path / "in/p0.png").read_bytes())
    (tmp_path / "tasks").mkdir()
    task = tmp_path / "tasks/private.toml"
    task.write_text(TASK)
    to = ["--task", "private", "--out", "r.jsonl", "--report", "r.html"]
    with serving("--tasks-dir", str(tmp_path / "tasks")) as service:
        done = batch(tmp_path, "in", *to, "--url", service.url, "--at-once", "1")
    assert "2 copied from identical files" in done.stderr
    written = [(tmp_path / name).read_bytes() for name in ("r.jsonl", "r.jsonl.journal", "r.html")]
    assert not [one for one in written if b"13912345678" in one or b"image/webp" in one]
    task.write_text(TASK.partition("[[")[0])
    for flags, says in ((["--redact", "phone"], ""), ([], "; whether answers are redacted changed")):
        with serving("--tasks-dir", str(tmp_path / "tasks"), *flags) as service:
            again = batch(tmp_path, "in", *to, "--url", service.url, "--resume")
        assert (again.returncode, f"the task's file changed{says}." in again.stderr) == (2, True), again.stderr
