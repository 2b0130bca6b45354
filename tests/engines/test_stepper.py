"""The thread that drives the steps, over a pipeline that fails on command."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import openvino_genai as genai
import pytest

from twinlens.engines.openvino.stepper import Stepper, Told, Track
from twinlens.engines.openvino.turns import Turns


class Handle:
    """What the pipeline gives for a request: one token a step."""

    def __init__(self) -> None:
        self.cancelled = False
        self.waiting: list[dict[int, Any]] = []

    def cancel(self) -> None:
        self.cancelled = True

    def get_status(self) -> Any:
        return genai.GenerationStatus.CANCEL if self.cancelled else genai.GenerationStatus.RUNNING

    def can_read(self) -> bool:
        return bool(self.waiting)

    def read(self) -> dict[int, Any]:
        return self.waiting.pop()


class Pipeline:
    """Counts its steps; fails at one of them."""

    def __init__(self, handle: Handle, fails_at: int = 0) -> None:
        self.handle = handle
        self.fails_at = fails_at
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.fails_at:
            raise RuntimeError("broken")
        none = genai.GenerationFinishReason.NONE
        output = SimpleNamespace(generated_ids=[self.steps], generated_log_probs=[-1.0], finish_reason=none)
        self.handle.waiting.append({0: output})
        time.sleep(0.001)


def started(fails_at: int = 0) -> tuple[Stepper, Pipeline, Track, list[Told], threading.Event]:
    handle = Handle()
    pipeline = Pipeline(handle, fails_at)
    heard: list[Told] = []
    broken = threading.Event()
    track = Track(handle, heard.append)

    def deliver(told: list[tuple[Track, Told]]) -> None:
        for one, said in told:
            one.tell(said)

    stepper = Stepper(pipeline, Turns(), deliver, broken.set)
    stepper.start()
    return stepper, pipeline, track, heard, broken


def until(what: Any, seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_tokens_come_in_order() -> None:
    stepper, _, track, heard, _ = started()
    stepper.add(track)
    until(lambda: len(heard) > 5)
    stepper.close()
    assert [token for said in heard for token in said.tokens] == list(range(1, len(heard) + 1))


def test_sleeps_when_there_is_nothing_to_do() -> None:
    stepper, pipeline, *_ = started()
    time.sleep(0.1)
    assert pipeline.steps == 0
    stepper.close()


def test_a_cancelled_sequence_is_told_to_have_ended_after_one_more_step() -> None:
    stepper, pipeline, track, heard, broken = started()
    stepper.add(track)
    until(lambda: heard)
    track.cancelled = True
    until(lambda: heard[-1].ended)
    steps = pipeline.steps
    time.sleep(0.05)
    assert pipeline.steps == steps  # and then it sleeps
    stepper.close()
    assert not broken.is_set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_step_that_fails_is_reported() -> None:
    stepper, _, track, heard, broken = started(fails_at=3)
    stepper.add(track)
    assert broken.wait(5)
    assert len(heard) == 2
    stepper.close()  # waits for the thread, whose exception belongs to this test and to no later one
