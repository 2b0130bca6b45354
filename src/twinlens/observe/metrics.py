"""All metrics of the gateway, in one place. Labels are bounded: routes are templates, codes come from the error tree.

With several gateway processes each keeps its numbers in a file (prometheus_client's multi-process mode, switched on
by the supervisor), and `/metrics` is the sum over all of them, the dead included.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client import multiprocess as several

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

REGISTRY = CollectorRegistry()
REQUESTS = Counter(
    "twinlens_requests_total",
    "Requests answered, by route template and HTTP status.",
    ("route", "status"),
    registry=REGISTRY,
)
ERRORS = Counter(
    "twinlens_errors_total", "Errors sent to clients, by code of the error tree.", ("code",), registry=REGISTRY
)
CANCELLED = Counter(
    "twinlens_requests_cancelled_total", "Requests whose client left before the answer was whole.", registry=REGISTRY
)
SECONDS_OF_STEP = Histogram(
    "twinlens_step_seconds",
    "Time in each step of the way of a request.",
    ("step",),
    buckets=SECONDS,
    registry=REGISTRY,
)
FIRST_PIECE = Histogram(
    "twinlens_first_piece_seconds", "Time from admission to the first piece.", buckets=SECONDS, registry=REGISTRY
)
TOKENS = Counter(
    "twinlens_tokens_total", "Tokens of answered requests: prompt, vision or completion.", ("kind",), registry=REGISTRY
)
PICTURES = Counter(
    "twinlens_pictures_total",
    "Pictures loaded; hit tells whether the store already had the pixels.",
    ("hit",),
    registry=REGISTRY,
)
FETCHES = Counter(
    "twinlens_url_fetches_total",
    "Pictures fetched by URL, by outcome: fetched, refused, failed, timeout, too_large or cancelled.",
    ("outcome",),
    registry=REGISTRY,
)
INSIDE = Gauge(
    "twinlens_requests_inside", "Requests admitted and not finished.", registry=REGISTRY, multiprocess_mode="livesum"
)
RUNNING = Gauge(
    "twinlens_requests_running",
    "Requests that hold a place at the engine.",
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
WAITING = Gauge(
    "twinlens_requests_waiting", "Requests waiting for a place.", registry=REGISTRY, multiprocess_mode="livesum"
)
REFUSED = Counter(
    "twinlens_admission_refused_total",
    "Requests refused by limits, the queue or a breaker, by code of the error tree.",
    ("code",),
    registry=REGISTRY,
)
LOADING = Gauge(
    "twinlens_load_waiting",
    "Pictures that wait for a thread which decodes; the step “load” of twinlens_step_seconds has the time.",
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
PLACES = Gauge(
    "twinlens_places",
    "Places at the engine that the queue gives out.",
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)
QUEUED = Gauge(
    "twinlens_queue_requests",
    "Requests in the one queue of all gateway processes.",
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)
QUEUE_WAIT = Gauge(
    "twinlens_queue_wait_seconds",
    "What a request that comes now would wait for its place, by what was learned.",
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)
BOOKED = Gauge(
    "twinlens_booked_tokens",
    "Tokens of the engine's KV cache that running requests have booked.",
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)
BREAKER = Gauge(
    "twinlens_breaker_open",
    "1 while a breaker refuses: engine, or long_prompts.",
    ("breaker",),
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)
LONG_SHARE = Gauge(
    "twinlens_long_prompts_share",
    "Share of over-long prompts in the last minute.",
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)
SHARED_UP = Gauge(
    "twinlens_shared_limits_up",
    "1 while the limits that several gateways share can be asked; 0 while each host's own limits stand in.",
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)
KEYS_TROUBLE = Gauge(
    "twinlens_keys_file_broken",
    "1 while the keys file cannot be used and the last good keys stay in force.",
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)
STORE_BYTES = Gauge("twinlens_store_bytes", "Bytes in the store.", registry=REGISTRY, multiprocess_mode="mostrecent")
STORE_OBJECTS = Gauge(
    "twinlens_store_objects", "Objects in the store.", registry=REGISTRY, multiprocess_mode="mostrecent"
)
STORE_EVICTIONS = Gauge(
    "twinlens_store_evictions",
    "Objects evicted by the gateway processes alive.",
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
STORE_DAMAGED = Gauge(
    "twinlens_store_damaged",
    "Objects that the gateway processes alive found damaged, and made anew.",
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
ENGINE_READY = Gauge(
    "twinlens_engine_ready",
    "1 when the engine answers real inferences.",
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)
ENGINE_RESTARTS = Gauge(
    "twinlens_engine_restarts", "Times the engine was replaced.", registry=REGISTRY, multiprocess_mode="mostrecent"
)


# Looking a child up by its labels costs more than counting: those of the way of a request are looked up once.
STEPS = {step: SECONDS_OF_STEP.labels(step) for step in ("load", "recall", "generate")}
PICTURES_BY_HIT = {hit: PICTURES.labels("yes" if hit else "no") for hit in (True, False)}
TOKENS_BY_KIND = {kind: TOKENS.labels(kind) for kind in ("prompt", "vision", "completion")}


@functools.lru_cache(maxsize=256)
def requests(route: str, status: int) -> Counter:
    """The counter of the answers of a route with a status. Both are from short lists."""
    return REQUESTS.labels(route, str(status))


def exposition(folder: Path | None) -> bytes:
    """The metrics in Prometheus' text form: summed over `folder` when given, else of this process."""
    if folder is None:
        return generate_latest(REGISTRY)
    whole = CollectorRegistry()
    several.MultiProcessCollector(whole, path=str(folder))  # type: ignore[no-untyped-call]
    return generate_latest(whole)
