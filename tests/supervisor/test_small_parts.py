"""Pauses, deaths, board and the files between the processes."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector

from twinlens import orders
from twinlens.orders import EngineAddress, EngineState, ServiceCard, WorkerOrders
from twinlens.settings import Settings
from twinlens.supervisor.board import Board
from twinlens.supervisor.deaths import KEPT_FILES, Deaths
from twinlens.supervisor.pauses import FIRST_S, HEALTHY_S, LONGEST_S, Pauses

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_pauses_double_to_the_longest() -> None:
    pauses = Pauses()
    assert [pauses.after(1) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_healthy_minute_starts_them_again() -> None:
    pauses = Pauses()
    pauses.after(1)
    pauses.after(1)
    assert pauses.after(HEALTHY_S) == FIRST_S
    assert pauses.after(1) == FIRST_S * 2


@given(st.lists(st.floats(0, 1e6)))
def test_pauses_are_bounded(lives: list[float]) -> None:
    pauses = Pauses()
    assert all(FIRST_S <= pauses.after(lived) <= LONGEST_S for lived in lives)


def test_deaths_reach_the_exposition_and_gauges_of_the_dead_leave_it(tmp_path: Path) -> None:
    gauge = tmp_path / "gauge_livesum_4242.db"
    gauge.touch()
    deaths = Deaths(tmp_path)
    deaths.count("engine", "signal 9", 4242)
    deaths.count("engine", "signal 9", 4243)
    deaths.count("gateway", "exit 1", 4244)
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(tmp_path))  # type: ignore[no-untyped-call]
    text = generate_latest(registry).decode()
    deaths.close()
    assert 'twinlens_child_deaths_total{cause="signal 9",child="engine"} 2.0' in text
    assert 'twinlens_child_deaths_total{cause="exit 1",child="gateway"} 1.0' in text
    assert not gauge.exists()


def test_the_numbers_of_the_long_dead_are_kept_and_their_files_are_not(tmp_path: Path) -> None:
    first_dead = 2**22 + 1  # above the largest process id
    for pid in range(first_dead, first_dead + 100):
        numbers = MmapedDict(str(tmp_path / f"counter_{pid}.db"))  # type: ignore[no-untyped-call]
        numbers.write_value(mmap_key("requests", "requests_total", [], [], "Requests."), 2.0, 1.0)  # type: ignore[no-untyped-call]
        numbers.close()  # type: ignore[no-untyped-call]
        (tmp_path / f"gauge_mostrecent_{pid}.db").touch()
    deaths = Deaths(tmp_path)
    deaths.count("gateway", "exit 1", first_dead + 99)
    registry = CollectorRegistry()
    for gauge in tmp_path.glob("gauge_*"):
        gauge.unlink()  # they were made empty here
    MultiProcessCollector(registry, path=str(tmp_path))  # type: ignore[no-untyped-call]
    text = generate_latest(registry).decode()
    deaths.close()
    assert "requests_total 200.0" in text
    assert 'twinlens_child_deaths_total{cause="exit 1",child="gateway"} 1.0' in text
    assert len(list(tmp_path.iterdir())) <= KEPT_FILES + 1


def test_orders_travel_unchanged() -> None:
    given_ = WorkerOrders(Settings(api_keys=("k",)), EngineAddress("unix:/e", "key"), "/m", "/r", 1, 7)
    assert orders.orders_from_json(orders.orders_to_json(given_)) == given_


def test_no_supervisor_means_stopped(tmp_path: Path) -> None:
    assert orders.read_engine(tmp_path).state == "stopped"
    (tmp_path / "engine.json").write_bytes(b"{ half")
    assert orders.read_engine(tmp_path).state == "stopped"


def test_a_state_that_nobody_keeps_up_is_not_believed(tmp_path: Path) -> None:
    orders.publish_engine(tmp_path, EngineState("ready", 1.0, pid=5, checked_at=time.monotonic()))
    assert orders.read_engine(tmp_path).state == "ready"
    orders.publish_engine(tmp_path, EngineState("ready", 1.0, pid=5, checked_at=time.monotonic() - orders.FRESH_S))
    assert orders.read_engine(tmp_path).state == "stopped"


def test_the_card_counts_only_while_its_process_lives(tmp_path: Path) -> None:
    assert orders.read_card(tmp_path) is None
    card = ServiceCard("http://127.0.0.1:1", os.getpid(), "m", "fake", 1.0)
    orders.publish_card(tmp_path, card)
    assert orders.read_card(tmp_path) == card
    orders.publish_card(tmp_path, ServiceCard("http://127.0.0.1:1", 2**22 + 1, "m", "fake", 1.0))
    assert orders.read_card(tmp_path) is None


def test_a_beat_moves_the_files_time(tmp_path: Path) -> None:
    orders.beat(tmp_path, 3)
    path = orders.beat_file(tmp_path, 3)
    before = path.stat().st_mtime_ns
    time.sleep(0.02)
    orders.beat(tmp_path, 3)
    assert path.stat().st_mtime_ns > before


def test_the_board_publishes_changes_and_tells_of_them_once(tmp_path: Path) -> None:
    told: list[EngineState] = []
    board = Board(tmp_path, told.append)
    since = orders.read_engine(tmp_path).since
    board.show("starting", pid=9)
    assert orders.read_engine(tmp_path).pid == 9
    assert orders.read_engine(tmp_path).since == since
    assert told == []
    board.show("ready")
    board.show("ready")
    assert [state.state for state in told] == ["ready"]
    assert board.ready.is_set()


def test_freshness_does_not_go_by_the_wall_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It goes by the clock that all processes share: a changed wall clock changes nothing."""
    orders.publish_engine(tmp_path, EngineState("ready", time.time(), checked_at=time.monotonic()))
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert orders.read_engine(tmp_path).state == "ready"
