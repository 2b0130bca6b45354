"""Limits that several gateways share: the same algorithm as `rates.py`, in one script that Redis runs as a whole.

Redis is asked only after the limits of this host have passed, so it can only make limits tighter. When it does not
answer in TIMEOUT_S, or refuses (out of memory, a replica that cannot write, a wrong password), the host's own limits
stand in: bounded, for each host, by what the setting says. Nobody waits for a Redis that is known to be away; it is
looked for aside, once a second, and taken again when it answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Literal

from twinlens.admission.rates import DEBT, judged
from twinlens.errors import SettingsError
from twinlens.settings import without_userinfo

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from redis.asyncio import Redis

    from twinlens.admission.rates import Verdict, Want

log = logging.getLogger("twinlens.admission")

PREFIX = "twinlens:rate:"
TIMEOUT_S = 0.25
LOOK_S = 1.0
CONNECTIONS = 32
WAITING_MOVES = 1000  # more are forgotten: they only correct what was charged

# KEYS: buckets. ARGV: how ("take" or "move"), then for each bucket interval, span and cost in units of its limit.
# Gives how far each bucket was from full before, in microseconds, as text; the caller judges by the same rule.
# Redis' own clock is the one clock of all hosts.
SCRIPT = """
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local ahead, passes = {}, true
for i = 1, #KEYS do
  local interval, span, cost = tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1])
  local full = tonumber(redis.call('GET', KEYS[i]) or '0') or 0
  ahead[i] = math.min(math.max(0, full - now), DEBT * span)
  if ahead[i] + cost * interval > span + 1 then passes = false end
end
if ARGV[1] == 'move' or passes then
  for i = 1, #KEYS do
    local interval, span, cost = tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1])
    local gap = math.min(ahead[i] + cost * interval, DEBT * span)
    if gap > 0 then
      redis.call('SET', KEYS[i], string.format('%.0f', now + gap), 'PX', math.ceil(gap / 1000) + 1)
    else
      redis.call('DEL', KEYS[i])
    end
  end
end
for i = 1, #KEYS do ahead[i] = string.format('%.0f', ahead[i]) end
return ahead
""".replace("DEBT", f"{DEBT:g}")


class Shared:
    """The shared limits. Raises SettingsError where the client's library is missing or the address is none."""

    def __init__(self, url: str) -> None:
        self._redis = _client(url)
        self._script = self._redis.register_script(SCRIPT)
        self._shown = without_userinfo(url)
        self._up = True  # until it is found not to be
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking = False
        self._advised = False

    @property
    def state(self) -> Literal["up", "down"]:
        """Whether it is asked."""
        return "up" if self._up else "down"

    async def take(self, wants: Sequence[Want]) -> Verdict | None:
        """Take all wants or none; None where the host's own limits have to do."""
        if not self._up:
            return None
        try:
            ahead = await self._run("take", wants, [want.cost for want in wants])
        except Exception as error:  # noqa: BLE001 - the border: whatever a client library raises is one thing here
            self._lose(error)
            return None
        return judged(wants, ahead)

    def move(self, given: Sequence[Want], used: Sequence[Want]) -> None:
        """Give back, and take what was used already; nobody waits for it."""
        if not self._up or len(self._tasks) > WAITING_MOVES:
            return
        wants = [*given, *used]
        costs = [-want.cost for want in given] + [want.cost for want in used]
        self._aside(self._move(wants, costs))

    async def close(self) -> None:
        """Close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(Exception):
            await self._redis.aclose()

    async def look(self) -> None:
        """Ask whether it is there, so that its absence is known before a request meets it."""
        if not self._up:
            return  # it is looked for already
        try:
            async with asyncio.timeout(TIMEOUT_S * 4):
                await self._redis.ping()
        except Exception as error:  # noqa: BLE001 - as above
            self._lose(error)
            return
        if not self._advised:
            self._advised = True
            await self._advise()

    async def _move(self, wants: Sequence[Want], costs: Sequence[float]) -> None:
        try:
            await self._run("move", wants, costs)
        except Exception as error:  # noqa: BLE001 - as above
            self._lose(error)

    async def _run(self, how: str, wants: Sequence[Want], costs: Sequence[float]) -> list[float]:
        arguments: list[str | float] = [how]
        for want, cost in zip(wants, costs, strict=True):
            arguments += [want.limit.interval * 1e6, want.limit.span * 1e6, cost]
        async with asyncio.timeout(TIMEOUT_S):
            found = await self._script(keys=[PREFIX + want.name for want in wants], args=arguments)
        return [float(text) / 1e6 for text in found]

    def _lose(self, error: Exception) -> None:
        if self._up:
            self._up = False
            log.error("shared limits at %s are away (%s): each host's own stand in", self._shown, _named(error))
        if not self._looking:
            self._looking = True
            self._aside(self._find())

    async def _find(self) -> None:
        try:
            while not self._up:
                await asyncio.sleep(LOOK_S)
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(TIMEOUT_S * 4):
                        # A write, because a server may answer and still take none.
                        await self._redis.set(PREFIX + "look", "1", px=1000)
                    self._up = True
        finally:
            self._looking = False
        log.warning("shared limits at %s are back", self._shown)
        await self._advise()

    async def _advise(self) -> None:
        """Say so where Redis would throw limits away to make room for something else."""
        with contextlib.suppress(Exception):  # a managed Redis hides its configuration
            async with asyncio.timeout(TIMEOUT_S * 4):
                found = await self._redis.config_get("maxmemory*")
            policy, most = found.get("maxmemory-policy", "noeviction"), int(found.get("maxmemory") or 0)
            if most and policy != "noeviction":
                log.warning(
                    "Redis at %s evicts keys (maxmemory-policy %s): limits can be forgotten there. Give them an "
                    "instance of their own with “noeviction”.",
                    self._shown,
                    policy,
                )

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _named(error: Exception) -> str:
    """The kind of an error: the texts of a client library may hold addresses and passwords."""
    return type(error).__name__


def check(url: str) -> None:
    """Raise SettingsError where `Shared` would; asks nobody."""
    _client(url)


def _client(url: str) -> Redis:
    try:
        from redis.asyncio import BlockingConnectionPool, Redis  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SettingsError(
            "redis_url is set, and the library for it is not installed.", cure="pip install “twinlens[redis]”"
        ) from error
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=TIMEOUT_S,
            socket_timeout=TIMEOUT_S * 4,
            socket_connect_timeout=TIMEOUT_S * 4,
            decode_responses=True,
        )
        return Redis(connection_pool=pool)
    except ValueError as error:
        raise SettingsError(
            f"redis_url: “{without_userinfo(url)}” is not an address of Redis.", cure="Give redis://host:port/db."
        ) from error
