"""A whole service for a test: real processes, real sockets, a port and folders of its own.

`with serving(engine="fake") as service:` starts `twinlens serve` as a user would and stops it afterwards. What the
processes print is kept and shown when a test fails.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import numpy as np
import psutil
from PIL import Image

import twinlens
from tests.models import model_folder
from twinlens.store.header import SIZE, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START_S = 90.0


class Service:
    """A running service and the means to look at it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
        self.process = process
        self.port = port
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx.Client(base_url=self.url, timeout=60, trust_env=False)

    @property
    def model(self) -> str:
        """The served name."""
        return str(self.http.get("/v1/models").json()["data"][0]["id"])

    def ready(self) -> bool:
        """Whether /readyz says so."""
        try:
            return self.http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def children(self, part: str) -> list[psutil.Process]:
        """Processes of this service whose command line holds `part`."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if part in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    @property
    def engine(self) -> psutil.Process:
        """The engine's process."""
        return self.children("twinlens.engines")[0]

    @property
    def workers(self) -> list[psutil.Process]:
        """The gateway's processes."""
        return self.children("twinlens.gateway.worker")

    def chat(self, *content: Any, **fields: Any) -> httpx.Response:
        """POST a chat request with one user turn."""
        parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
        body = {"model": "demo", "messages": [{"role": "user", "content": parts}], **fields}
        return self.http.post("/v1/chat/completions", json=body)

    def metric(self, name: str) -> float:
        """Sum of all series of a metric."""
        lines = self.http.get("/metrics").text.splitlines()
        hits = [line for line in lines if line.startswith((name + " ", name + "{"))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in hits)

    def engine_health(self) -> dict[str, Any]:
        """What the engine says of itself, asked past the gateway."""
        transport = httpx.HTTPTransport(uds=str(self.folder / "run" / "engine.sock"))
        with httpx.Client(base_url="http://engine", transport=transport, timeout=10) as client:
            answer: dict[str, Any] = client.get("/health").json()
            return answer

    def leases(self) -> list[Path]:
        """Leases held in the store."""
        return [path for path in (self.folder / "store" / "leases").rglob("*") if path.is_file()]

    def seen(self, *content: Any, **fields: Any) -> tuple[httpx.Response, list[np.ndarray[Any, Any]]]:
        """A chat, and the pixels that it had made: (height, width, 3) each, in no order. Empties the store before."""
        objects = self.folder / "store" / "objects"
        for path in objects.iterdir():
            path.unlink()
        answer = self.chat(*content, **fields)
        found = []
        for path in objects.iterdir():
            data = path.read_bytes()
            header = unpack(data[:SIZE], key=path.name, file_size=len(data))
            found.append(np.frombuffer(data[SIZE:], np.uint8).reshape(header.shape))
        return answer, found

    def log(self) -> str:
        """Everything printed so far."""
        return (self.folder / "log").read_text(errors="replace")


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(what: Callable[[], Any], seconds: float, every: float = 0.05) -> Any:
    """Wait until `what()` is true and give its value; fail after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        value = what()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not so after {seconds} s: {what}")
        time.sleep(every)


def environment() -> dict[str, str]:
    """Ours without settings; the package that is tested, whatever folder the command runs in."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TWINLENS_")}
    inherited = os.environ.get("PYTHONPATH", "")
    return clean | {"PYTHONPATH": os.pathsep.join(filter(None, (str(Path(twinlens.__file__).parents[1]), inherited)))}


@contextlib.contextmanager
def serving(
    *flags: str,
    model: str = "",
    ready: bool = True,
    folder: Path | None = None,
    environ: dict[str, str] | None = None,
    port: int = 0,
) -> Iterator[Service]:
    """Start `twinlens serve` with `flags`; by default with the fake engine and on a port of its own."""
    with tempfile.TemporaryDirectory(prefix="tl-") as temporary:
        home = folder or Path(temporary)
        port = port or free_port()
        command = [sys.executable, "-m", "twinlens.cli.main", "serve", model or str(model_folder())]
        command += ["--port", str(port), "--served-name", "demo"]
        command += ["--run-dir", str(home / "run"), "--store", str(home / "store")]
        if "--engine" not in flags:
            command += ["--engine", "fake"]
        variables = environment() | {"TWINLENS_DATA": str(home / "data"), **(environ or {})}
        with (home / "log").open("ab") as log:
            process = subprocess.Popen(
                [*command, *flags], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=variables, cwd=home
            )
        service = Service(process, port, home)
        try:
            if ready:
                until(lambda: process.poll() is not None or service.ready(), START_S)
            assert process.poll() is None, f"the service ended at its start:\n{service.log()}"
            yield service
        except BaseException:
            sys.stderr.write(service.log())
            raise
        finally:
            service.http.close()
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a service and make sure that nothing of it is left."""
    family = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
    psutil.wait_procs(family, timeout=6)
    left = [member for member in family if member.is_running() and member.status() != psutil.STATUS_ZOMBIE]
    for member in left:
        member.kill()
    assert not left, f"processes left over: {left}"


def picture(seed: int = 0, size: tuple[int, int] = (160, 120), kind: str = "PNG") -> bytes:
    """A picture file unlike that of any other seed."""
    rng = random.Random(seed)
    image = Image.new("RGB", size, (rng.randrange(256), rng.randrange(256), rng.randrange(256)))
    for _ in range(8):
        x, y = rng.randrange(size[0]), rng.randrange(size[1])
        image.paste((rng.randrange(256), rng.randrange(256), rng.randrange(256)), (x, y, x + 20, y + 20))
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def data_uri(seed: int = 0, size: tuple[int, int] = (160, 120)) -> str:
    """The same as a data URI."""
    return "data:image/png;base64," + base64.b64encode(picture(seed, size)).decode()


def image_part(seed: int = 0, size: tuple[int, int] = (160, 120), **fields: Any) -> dict[str, Any]:
    """The same as a content part."""
    return {"type": "image_url", "image_url": {"url": data_uri(seed, size), **fields}}


def frames(text: str) -> list[Any]:
    """The data frames of a stream; the last is the string "[DONE]"."""
    found = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [frame if frame == "[DONE]" else json.loads(frame) for frame in found]
