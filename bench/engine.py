"""Part “engine”: answers a second through the whole service beside the bare pipeline, 16 at a time, interleaved."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench.bare_pipeline import Worked
from bench.load import AT_ONCE, Plan, Target
from bench.pictures import scene_photo
from bench.report import Table, median
from bench.venvs import CACHE, ROOT
from bench.ways import Ways, measured
from twinlens.model import hub
from twinlens.settings import load as load_settings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

PICTURES = 64
SIZE = (336, 448)  # (height, width) in pixels
MAX_TOKENS = 24  # of every answer: the model's own end is passed over, so that both sides do the same work
SERVICE, BARE = "service", "bare pipeline"


class Bare:
    """A bare pipeline in a process of its own."""

    def __init__(self, folder: Path, threads: int, pictures: Sequence[str], stack: ExitStack) -> None:
        command = [sys.executable, "-m", "bench.bare_pipeline", str(folder), str(threads), str(MAX_TOKENS), *pictures]
        self._process: subprocess.Popen[str] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
        )
        stack.enter_context(self._process)
        stack.callback(self._process.kill)
        self._line()  # “ready”

    def work(self, seconds: float) -> Worked:
        """Work for so long."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._line(), type=Worked)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the bare pipeline ended")
        return line


def run(args: argparse.Namespace) -> list[Table]:
    """One table."""
    seconds = args.seconds * 4  # an answer takes longer here
    folder = hub.find(args.model, load_settings({"model": args.model}).settings)
    with ExitStack() as stack:
        pictures = _pictures(Path(stack.enter_context(tempfile.TemporaryDirectory(dir=CACHE))))
        ways = stack.enter_context(Ways(args.model))
        cores = os.cpu_count() or 1
        counts = sorted({max(cores - 1, 1), cores})
        services = {_named(SERVICE, threads): _target(ways, threads, pictures) for threads in counts}
        bare = {_named(BARE, threads): Bare(folder, threads, pictures, stack) for threads in counts}
        done: dict[str, list[Worked]] = {name: [] for name in (*services, *bare)}
        for number in range(args.rounds + 1):
            for name in random.sample(sorted(done), len(done)):
                worked = bare[name].work(seconds) if name in bare else _service(services[name], seconds)
                if number:  # the first warms up
                    done[name].append(worked)
    return [_table(done)]


def _named(what: str, threads: int) -> str:
    return f"{what}, {threads} {'thread' if threads == 1 else 'threads'}"


def _target(ways: Ways, threads: int, pictures: list[str]) -> Target:
    way = ways.twinlens(None, "--engine-threads", str(threads))
    return Target(_named(SERVICE, threads), way.port, {SERVICE: [way.pid]}, way.model, pictures, numbered=True)


def _pictures(folder: Path) -> list[str]:
    files = []
    for seed in range(PICTURES):
        file = folder / f"{seed}.jpg"
        file.write_bytes(scene_photo(*SIZE, seed))
        files.append(str(file))
    return files


def _service(target: Target, seconds: float) -> Worked:
    plan = Plan([target], AT_ONCE, rounds=1, seconds=seconds, warm_up=0, max_tokens=MAX_TOKENS, ignore_eos=True)
    found = measured(plan)[0]
    return Worked(len(found.latencies), found.tokens, found.seconds)


def _table(done: dict[str, list[Worked]]) -> Table:
    bare = {name: worked for name, worked in done.items() if name.startswith(BARE)}
    rows = []
    for name, worked in done.items():
        answers = median(one.answers / one.seconds for one in worked)
        tokens = median(one.tokens / one.seconds for one in worked)
        each = sum(one.tokens for one in worked) / sum(one.answers for one in worked)
        shares = [None if name in bare else _share(worked, peer) for peer in bare.values()]
        rows.append((name, answers, tokens, each, *shares))
    columns = ("way", "answers/s", "tokens/s", "tokens an answer", *(f"% of {name}" for name in bare))
    note = (
        f"{AT_ONCE} at a time, pictures of {SIZE[1]} x {SIZE[0]}, all prompts different. The service decodes JPEGs and "
        "speaks HTTP; the bare pipeline gets pixels. The share is the median of the rounds."
    )
    return Table("Engine: answers a second", columns, rows, (note,))


def _share(ours: Sequence[Worked], bare: Sequence[Worked]) -> float:
    pairs = zip(ours, bare, strict=True)
    return 100 * median((one.answers / one.seconds) / (other.answers / other.seconds) for one, other in pairs)
