"""The service as a batch sees it, over HTTP as any other client: what it serves, and what its answers mean."""

from __future__ import annotations

import asyncio
import difflib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
import msgspec

from twinlens.batch.pages import Policy
from twinlens.batch.records import Failure, Work
from twinlens.errors import BatchError, EngineUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

SOON = aiohttp.ClientTimeout(total=10)
# The service has its own deadline; a host that went away without a word is found out all the same.
NO_LIMIT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=1800)
POLL_S = 0.5
OF_THE_ANSWER = frozenset(("invalid_answer", "output_truncated", "structured_output_stalled", "finishing_failed"))
_NO_ROOM = frozenset(("overloaded",))


@dataclass(frozen=True, slots=True)
class Answer:
    """The task's result."""

    said: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Refused:
    """This item has no answer; asking again cannot help."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Busy:
    """Not now: asking again after `wait_s` helps."""

    wait_s: float
    failure: Failure


@dataclass(frozen=True, slots=True)
class Trouble:
    """The service or its engine failed; it may be this item's doing."""

    wait_s: float
    failure: Failure


@dataclass(frozen=True, slots=True)
class Closed:
    """The service takes nothing of this batch: a key that is not good, a task that is not there."""

    failure: Failure


Verdict = Answer | Refused | Busy | Trouble | Closed


@dataclass(frozen=True, slots=True)
class Served:
    """What the service says of the task. `columns` are (name, JSON pointer)."""

    work: Work
    policy: Policy
    columns: tuple[tuple[str, str], ...]
    boxes: tuple[tuple[str, str], ...] = ()  # (JSON pointer, units) of boxes that can be drawn


class Door:
    """A context manager."""

    def __init__(self, url: str, key: str, task: str) -> None:
        self.url = url.rstrip("/")
        self._task = task
        self._path = f"{self.url}/v1/tasks/{quote(task, safe='')}"
        headers = {"authorization": f"Bearer {key}"} if key else {}
        # As many connections as the level asks for.
        self._session = aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=0))

    async def __aenter__(self) -> Door:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, body: bytes) -> Verdict:
        """Ask the task about an item."""
        headers = {"content-type": "application/json"}
        try:
            async with self._session.post(
                self._path, data=body, headers=headers, timeout=NO_LIMIT, allow_redirects=False
            ) as response:
                status, data, hint = response.status, await response.read(), response.headers.get("retry-after")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Trouble(1.0, Failure("no_connection", f"The connection broke: {type(error).__name__}."))
        return verdict(status, data, _seconds(hint))

    async def until_ready(self, limit_s: float) -> None:
        """Wait. Raises EngineUnavailable after `limit_s` seconds."""
        end = time.monotonic() + limit_s
        while not await self._is_ready():
            if time.monotonic() > end:
                raise EngineUnavailable(
                    f"The service at {self.url} is not ready after {limit_s:g} s.", cure="See its log."
                )
            await asyncio.sleep(POLL_S)

    async def _is_ready(self) -> bool:
        try:
            async with self._session.get(f"{self.url}/readyz", timeout=SOON) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def served(self, variables: Mapping[str, Any], max_tokens: int | None, page_dpi: float) -> Served:
        """What the batch's work is at this service. Raises BatchError where it has no such task."""
        model = (await self._listed("/v1/models"))[0]
        tasks = {str(task["id"]): task for task in await self._listed("/v1/tasks")}
        if self._task not in tasks:
            near = difflib.get_close_matches(self._task, tasks, n=1)
            hint = f" Did you mean “{near[0]}”?" if near else ""
            raise BatchError(
                f"The service at {self.url} has no task “{self._task}”.{hint}",
                cure="“twinlens task list” shows those of the package; your own lie in tasks_dir of the service.",
            )
        task = tasks[self._task]
        if unknown := set(variables) - set(task.get("variables", {})):
            raise BatchError(f"The task has no variable “{min(unknown)}”.", cure="“twinlens task show” lists them.")
        work = Work(
            task=self._task,
            version=task["version"],
            weights=str(model.get("weights") or model["id"]),
            variables=dict(variables),
            max_tokens=max_tokens,
            page_dpi=page_dpi,
            private=bool(task.get("private")),
        )
        pages = task.get("pages") or {}
        return Served(
            work,
            Policy(bool(pages.get("together")), pages.get("most"), bool(pages.get("document"))),
            tuple(zip(task["columns"], task.get("paths", []), strict=False)),
            tuple((box["path"], box["units"]) for box in task.get("boxes", ())),
        )

    async def _listed(self, path: str) -> list[dict[str, Any]]:
        try:
            async with self._session.get(self.url + path, timeout=SOON) as response:
                status, body = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise BatchError(
                f"No service answers at {self.url}.", cure="Start one with “twinlens serve”, or leave --url out."
            ) from error
        if status in (401, 403):
            raise BatchError(_failure(status, body).message, cure="Give the key's file with --key-file.")
        try:
            found: list[dict[str, Any]] = msgspec.json.decode(body)["data"]
        except (msgspec.DecodeError, LookupError, TypeError) as error:
            raise BatchError(f"What answers at {self.url} has no tasks.", cure="Name a Twinlens service.") from error
        return found


def verdict(status: int, body: bytes, hint: float | None) -> Verdict:
    """What an answer of the service means for the item. `hint`: Retry-After, in seconds."""
    if status == 200:
        return _answer(body)
    failure = _failure(status, body)
    if status in (408, 429) or failure.code in _NO_ROOM:
        return Busy(1.0 if hint is None else hint, failure)
    if failure.code in OF_THE_ANSWER or status in (400, 413, 422):
        return Refused(failure)
    if status >= 500:
        return Trouble(1.0 if hint is None else hint, failure)
    return Closed(failure)


def _answer(body: bytes) -> Verdict:
    try:
        said = msgspec.json.decode(body)
        if said["object"] == "task.result" and {"result", "usage", "version"} <= said.keys():
            if said["finish_reason"] == "length":
                raw = said["result"] if isinstance(said["result"], str) else None
                return Refused(Failure("output_truncated", "The answer was cut at the token limit.", raw))
            if said.get("pages") and len(said["result"]) == 1:  # a page of a document that was asked by itself
                (said["result"],) = said["result"]
            return Answer(said)
    except (msgspec.DecodeError, LookupError, TypeError):
        pass
    return Trouble(1.0, Failure("no_answer", "What came back is no answer of a task."))


def _failure(status: int, body: bytes) -> Failure:
    try:
        said = msgspec.json.decode(body)
        error = said["error"]
        more = said.get("twinlens") or {}
        raw = more.get("raw_answer") or (more.get("pages") or [{}])[0].get("raw_answer")
        return Failure(str(error.get("code") or f"http_{status}"), str(error["message"]), raw)
    except (msgspec.DecodeError, LookupError, TypeError, AttributeError):
        return Failure(f"http_{status}", f"The service answered with status {status}.")


def _seconds(hint: str | None) -> float | None:
    try:
        return min(max(float(hint), 0.0), 3600.0) if hint else None
    except ValueError:  # a date, which our services never send
        return None
