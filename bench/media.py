"""Part “media”: one picture from its bytes to the pixels that the model sees, in one process, beside other ways."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from bench.pictures import SIZES, photo, scene_photo
from bench.report import Table, median, quantile
from bench.venvs import ROOT, python_of
from twinlens.media import decode, signature
from twinlens.media.datauri import read
from twinlens.media.resize import resized
from twinlens.model.pictures import PictureRule

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from numpy.typing import NDArray

RULE = PictureRule(patch=14, merge=2, temporal=2, min_pixels=3136, max_pixels=1003520)


def run(args: argparse.Namespace) -> list[Table]:
    """Four tables."""
    count = 5 if args.quick else 60
    return [_ways(count), _drafts(count), _peer(args, count), _threads(count)]


def _ways(count: int) -> Table:
    rows: list[tuple[str, str, float, float]] = []
    for name in SIZES:
        data = photo(name)
        height, width = RULE.target(*decode.look(data, "", 10**9).size)
        ways = _of(data, (height, width))
        assert signature.is_plain(data)
        times = _in_turns(ways, count)
        rows += [(name, way, median(found), quantile(found, 0.9)) for way, found in times.items()]
    note = "One thread; the ways in turns, so that a busy machine meets all alike."
    return Table("Media: from bytes to pixels", ("picture", "way", "p50 ms", "p90 ms"), rows, (note,))


def _of(data: bytes, size: tuple[int, int]) -> dict[str, Callable[[], object]]:
    uri = "data:image/jpeg;base64," + base64.b64encode(data).decode()
    return {
        "header and vision tokens only": lambda: RULE.tokens(*RULE.target(*decode.look(data, "", 10**9).size)),
        "base64 to bytes": lambda: read(uri, "", 1 << 30),
        "ours: decode, upright, resize": lambda: np.asarray(decode.pixels(data, "JPEG", size, "")),
        "plain Pillow": lambda: _plain(data, (size[1], size[0])),
        "decode only: Pillow": lambda: Image.open(io.BytesIO(data)).load(),
    }


def _drafts(count: int) -> Table:
    """What draft decoding saves where it is taken, and how far its pixels are from those without it."""
    data = scene_photo(3024, 4032, 1)
    rows = []
    for pixels in (1_003_520, 256 * 28 * 28, 64 * 28 * 28):
        rule = replace(RULE, max_pixels=pixels)
        height, width = rule.target(*decode.look(data, "", 10**9).size)
        ours, whole = partial(_ours, data, (height, width)), partial(_whole, data, (height, width))
        times = _in_turns({"ours": ours, "whole": whole}, max(3, count // 3))
        apart = np.abs(ours().astype(int) - whole().astype(int)).mean()
        rows.append((f"{width} x {height}", median(times["ours"]), median(times["whole"]), float(apart)))
    note = f"A half is taken where it leaves {decode.DRAFT_LEAVES} times the size that is wanted. One thread, in turns."
    columns = ("resized to", "ours p50 ms", "decoded whole p50 ms", "mean difference, grey levels")
    return Table("Media: draft decoding, 4032 x 3024 JPEG", columns, rows, (note,))


def _ours(data: bytes, size: tuple[int, int]) -> NDArray[np.uint8]:
    return np.asarray(decode.pixels(data, "JPEG", size, ""))


def _whole(data: bytes, size: tuple[int, int]) -> NDArray[np.uint8]:
    return np.asarray(resized(Image.open(io.BytesIO(data)), (size[1], size[0])))


def _plain(data: bytes, size: tuple[int, int]) -> object:
    """What is usually written."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    return np.asarray(image.resize(size, Image.Resampling.BICUBIC))


def _in_turns(ways: dict[str, Callable[[], object]], count: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(count):
        for way, work in ways.items():
            began = time.perf_counter()
            work()
            times[way].append(1e3 * (time.perf_counter() - began))
    return times


def _peer(args: argparse.Namespace, count: int) -> Table:
    """Decode to patches by transformers' own processor, and the same patches from our pixels, in one process there."""
    columns = ("way", "p50 ms", "p90 ms")
    if "transformers" in args.without:
        return Table("Media: decode to patches, 1 MB JPEG", columns, [], ("Left out.",))
    script = ROOT / "bench/patches.py"
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'tests/environment'}:{ROOT}:{ROOT / 'src'}",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [python_of("transformers"), script, str(count)], check=True, capture_output=True, cwd=ROOT, env=environment
    )
    rows = [(way, median(times), quantile(times, 0.9)) for way, times in json.loads(done.stdout).items()]
    note = (
        "One thread. Ours: the pixels of the gateway, cut into patches by numpy; the values are compared before timing."
    )
    return Table("Media: decode to patches, 1 MB JPEG", columns, rows, (note,))


def _threads(count: int) -> Table:
    data = photo("1 MB")
    size = RULE.target(*decode.look(data, "", 10**9).size)
    rows = []
    for threads in (1, 2):
        with ThreadPoolExecutor(threads) as pool:
            began = time.perf_counter()
            list(pool.map(lambda _: np.asarray(decode.pixels(data, "JPEG", size, "")), range(count)))
            rows.append((threads, count / (time.perf_counter() - began)))
    return Table("Media: threads, 1 MB JPEG", ("threads", "pictures/s"), rows)
