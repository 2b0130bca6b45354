"""The ways to an engine that are compared: straight, through Twinlens, through the plain gateway, through LiteLLM."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from bench.load import Plan, Round
from bench.processes import free_port, started, wait_ready
from bench.venvs import CACHE, python_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

PEERS = ("plain", "litellm")
LITELLM = {  # nothing leaves the machine, no more is logged than by the others, and no key is asked for, as by them
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",
    "NO_DOCS": "True",
    "DISABLE_ADMIN_UI": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}


NAME = "bench"  # of the model, towards clients of Twinlens


@dataclass(frozen=True, slots=True)
class Way:
    """A running server: where it listens and which process is its root."""

    name: str
    port: int
    pid: int
    model: str


class Ways:
    """Starts and ends all of them; everything is on 127.0.0.1."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.folder = Path(tempfile.mkdtemp(prefix="twinlens-bench-"))
        self.store = Path(tempfile.mkdtemp(prefix="twinlens-bench-", dir="/dev/shm")) / "store"
        self._stack = ExitStack()

    def engine(self, module: str = "twinlens.engines.fake", *more: str) -> Way:
        """A fake engine in a process of its own; `more` are flags of it."""
        port = free_port()
        flags = ["--port", str(port), "--capacity", "1024"] if module == "twinlens.engines.fake" else [str(port)]
        return self._start("engine", [sys.executable, "-m", module, *flags, *more], port, "/health", "fake")

    def twinlens(self, engine: Way | None, *flags: str) -> Way:
        """The service; with `engine`, attached to it, else with the one that its own flags choose."""
        port = free_port()
        own = [
            "--port",
            str(port),
            "--served-name",
            NAME,
            "--store",
            str(self.store),
            "--run-dir",
            str(self.folder / f"run-{port}"),
        ]
        attached = ["--engine-url", f"http://127.0.0.1:{engine.port}"] if engine else []
        command = [sys.executable, "-m", "twinlens.cli.main", "serve", self.model, *own, *attached, *flags]
        return self._start("twinlens", command, port, "/readyz", NAME)

    def plain(self, engine: Way) -> Way:
        """bench/plain_gateway.py under uvicorn."""
        port = free_port()
        command: list[str | Path] = [
            python_of("plain"),
            "-m",
            "uvicorn",
            "--no-access-log",
            "--app-dir",
            str(Path(__file__).parent),
        ]
        command += ["--log-level", "warning", "--port", str(port), "plain_gateway:app"]
        environment = {"ENGINE_URL": f"http://127.0.0.1:{engine.port}"}
        return self._start("plain", command, port, "/health", "fake", environment)

    def litellm(self, engine: Way) -> Way:
        """LiteLLM's proxy with one model."""
        port = free_port()
        entry = {"model": "openai/fake", "api_base": f"http://127.0.0.1:{engine.port}/v1", "api_key": "none"}
        config = {"model_list": [{"model_name": "fake", "litellm_params": entry}]}
        file = self.folder / "litellm.yaml"  # JSON is YAML
        file.write_bytes(msgspec.json.encode(config))
        python = python_of("litellm")
        command: list[str | Path] = [
            python,
            python.parent / "litellm",
            "--config",
            file,
            "--host",
            "127.0.0.1",
            "--port",
            f"{port}",
        ]
        return self._start("litellm", command, port, "/health/liveliness", "fake", LITELLM)

    def _start(
        self,
        name: str,
        command: Sequence[str | Path],
        port: int,
        path: str,
        model: str,
        environment: Mapping[str, str] | None = None,
    ) -> Way:
        process = self._stack.enter_context(started(name, command, environment))
        wait_ready(process, port, path)
        return Way(name, port, process.pid, model)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.store.parent, ignore_errors=True)


def measured(plan: Plan) -> list[Round]:
    """Run the load generator. RuntimeError when any request failed: figures of failures are no figures."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.load"],
        input=msgspec.json.encode(plan),
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
        check=True,
    )
    rounds = msgspec.json.decode(done.stdout, type=list[Round])
    for found in rounds:
        if found.failures or not found.latencies:
            raise RuntimeError(f"{found.failures} requests to “{found.target}” failed: {found.first_failure}")
    return rounds


@contextlib.contextmanager
def picture_files() -> Iterator[dict[str, str]]:
    """Size in words -> path of a JPEG of that size."""
    from bench.pictures import SIZES, photo  # noqa: PLC0415

    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        files = {}
        for size in SIZES:
            file = Path(folder) / f"{size}.jpg"
            file.write_bytes(photo(size))
            files[size] = str(file)
        yield files
