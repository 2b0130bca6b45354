"""What vLLM says of itself in its Prometheus metrics, read as the health of an engine.

Its /health is a bare status. How many requests run and wait inside it, how full its KV cache is and how many tokens
that holds stand in /metrics; of several engines behind one address the numbers are added up.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_LINE = re.compile(r"^vllm:(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)(?: \d+)?$", re.MULTILINE)
_LABEL = re.compile(r'(?P<name>\w+)="(?P<value>(?:[^"\\]|\\.)*)"')
# Each by its names of today and of before.
_RUNNING = ("num_requests_running",)
_WAITING = ("num_requests_waiting",)
_USED = ("kv_cache_usage_perc", "gpu_cache_usage_perc")
_THROWN_OUT = ("num_preemptions_total", "num_preemptions")
_CACHE = ("cache_config_info",)


@dataclass(frozen=True, slots=True)
class Load:
    """`used`: share of the KV cache, 0 to 1; `room`: tokens that it holds, 0 where it is not said; `thrown_out`:
    requests whose work was thrown away for want of room, since the engine began.
    """

    running: int
    waiting: int
    used: float
    room: int
    thrown_out: int


def read(text: str) -> Load | None:
    """None where these are not vLLM's metrics."""
    found: dict[str, list[tuple[str, float]]] = {}
    for line in _LINE.finditer(text):
        value = _number(line["value"])
        if value is not None:
            found.setdefault(line["name"], []).append((line["labels"] or "", value))
    if not any(name in found for name in (*_RUNNING, *_WAITING)):
        return None
    used = [value for name in _USED for _, value in found.get(name, ())]
    return Load(
        running=_sum(found, _RUNNING),
        waiting=_sum(found, _WAITING),
        used=min(1.0, max(used, default=0.0)),
        room=sum(_room(labels) for labels, _ in found.get(_CACHE[0], ())),
        thrown_out=_sum(found, _THROWN_OUT),
    )


def _sum(found: dict[str, list[tuple[str, float]]], names: tuple[str, ...]) -> int:
    return int(sum(value for name in names for _, value in found.get(name, ())))


def _room(labels: str) -> int:
    """Tokens of one engine's cache; 0 where it says “None” or nothing."""
    said = {label["name"]: label["value"] for label in _LABEL.finditer(labels)}
    size, blocks = said.get("block_size", ""), said.get("num_gpu_blocks", "")
    return int(size) * int(blocks) if size.isdecimal() and blocks.isdecimal() else 0


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
