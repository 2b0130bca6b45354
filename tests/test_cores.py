"""Cores that a process may use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from twinlens import cores

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


def usable(folder: Path, own: str, **files: str) -> int:
    (folder / "own").write_text(own)
    for name, text in files.items():
        file = folder / "groups" / name.replace("__", "/").replace("_of_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return cores.usable(folder / "groups", folder / "own")


def test_without_a_quota_the_affinity_counts(tmp_path: Path) -> None:
    assert cores.usable(tmp_path / "none", tmp_path / "none") == 8
    assert usable(tmp_path, "0::/a/b\n", a__b__cpu_of_max="max 100000\n") == 8


@pytest.mark.parametrize(("quota", "expected"), [("200000 100000", 2), ("250000 100000", 2), ("50000 100000", 1)])
def test_a_quota_counts_in_whole_cores(tmp_path: Path, quota: str, expected: int) -> None:
    assert usable(tmp_path, "0::/\n", cpu_of_max=quota) == expected


def test_the_tightest_group_around_counts(tmp_path: Path) -> None:
    files = {"cpu_of_max": "max 100000", "a__cpu_of_max": "300000 100000", "a__b__cpu_of_max": "600000 100000"}
    assert usable(tmp_path, "0::/a/b\n", **files) == 3


def test_a_container_that_does_not_see_its_own_name(tmp_path: Path) -> None:
    assert usable(tmp_path, "0::/docker/5f2\n", cpu_of_max="400000 100000") == 4


def test_the_older_control_groups(tmp_path: Path) -> None:
    own = "5:memory:/x\n4:cpu,cpuacct:/x\n1:name=systemd:/x\n"
    files = {"cpu__x__cpu_of_cfs_quota_us": "150000", "cpu__x__cpu_of_cfs_period_us": "50000"}
    assert usable(tmp_path, own, **files) == 3
    files["cpu__x__cpu_of_cfs_quota_us"] = "-1"
    assert usable(tmp_path, own, **files) == 8
