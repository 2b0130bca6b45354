"""The order in which requests are handed to the pipeline."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from functools import partial

import pytest

from twinlens.engines.openvino.adder import Adder


def test_small_ones_pass_large_ones_and_none_is_passed_for_ever() -> None:
    adder, hold, order = Adder(), threading.Event(), list[str]()
    first = adder.do(hold.wait)
    large = adder.do(partial(order.append, "large"), yields=60)
    older = adder.do(partial(order.append, "older"), yields=0.0)
    small = adder.do(partial(order.append, "small"))
    late = adder.do(partial(order.append, "late"), yields=61)
    hold.set()
    for future in (first, large, older, small, late):
        future.result(10)
    assert order == ["older", "small", "large", "late"]
    adder.close()


def test_a_failure_is_the_callers_and_the_thread_goes_on() -> None:
    adder = Adder()
    with pytest.raises(ZeroDivisionError):
        adder.do(lambda: 1 / 0).result(10)
    assert adder.do(lambda: 5).result(10) == 5
    assert not adder.busy
    adder.close()


def test_what_waits_at_the_end_is_cancelled() -> None:
    adder, hold, begun = Adder(), threading.Event(), threading.Event()

    def first() -> bool:
        begun.set()
        return hold.wait(10)

    running, waiting = adder.do(first), adder.do(lambda: 5)
    assert begun.wait(10)
    adder.close()
    hold.set()
    assert running.result(10)
    with pytest.raises(CancelledError):
        waiting.result(10)
