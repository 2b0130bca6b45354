"""Clients that leave free everything that was held for them."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.serving.harness import frames, image_part, until

if TYPE_CHECKING:
    import psutil

    from tests.serving.harness import Service

CLIENTS = 200
FEW = 12  # mapped store objects that are kept for a while, a connection that is just being closed


def quiet(service: Service) -> bool:
    """No request inside, no lease, nothing running at the engine."""
    inside = service.metric("twinlens_requests_inside")
    return inside == 0 and not service.leases() and service.engine_health()["running"] == 0


def held(process: psutil.Process) -> int:
    """Descriptors, without the connections that workers and engine keep between them for the next request."""
    return process.num_fds() - len(process.net_connections("unix"))


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
def test_api_01_a_client_that_leaves_frees_its_place(slow_service: Service, stream: bool) -> None:
    before = slow_service.metric("twinlens_requests_cancelled_total")

    async def leave() -> None:
        body = {
            "model": "demo",
            "stream": stream,
            "messages": [{"role": "user", "content": [image_part(1), {"type": "text", "text": "x"}]}],
        }
        async with aiohttp.ClientSession() as session:
            post = session.post(f"{slow_service.url}/v1/chat/completions", json=body)
            if stream:
                async with post as response:
                    await response.content.readline()
            else:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await post

    asyncio.run(leave())
    until(lambda: quiet(slow_service), 2)
    until(lambda: slow_service.metric("twinlens_requests_cancelled_total") > before, 2)
    assert slow_service.http.get("/readyz").status_code == 200


@pytest.mark.slow
def test_200_clients_a_third_of_whom_hang_up_leave_nothing_behind(services: Service) -> None:
    services.chat("warm", image_part(0))
    before = [held(process) for process in (*services.workers, services.engine)]
    ends: list[str] = []

    async def client(session: aiohttp.ClientSession, number: int) -> None:
        rng = random.Random(number)
        body = {
            "model": "demo",
            "stream": rng.random() < 0.5,
            "messages": [{"role": "user", "content": [image_part(number), {"type": "text", "text": f"n {number}"}]}],
        }
        try:
            async with asyncio.timeout(rng.uniform(0, 0.6) if number % 3 == 0 else 60):
                async with session.post(f"{services.url}/v1/chat/completions", json=body) as response:
                    text = await response.text()
                    whole = frames(text)[-1] == "[DONE]" if body["stream"] else json.loads(text)["choices"]
                    ends.append("answered" if response.status == 200 and whole else f"status {response.status}")
        except TimeoutError:
            ends.append("left")

    async def crowd() -> None:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            await asyncio.gather(*(client(session, number) for number in range(CLIENTS)))

    asyncio.run(crowd())
    assert len(ends) == CLIENTS
    assert set(ends) <= {"answered", "left"}
    assert ends.count("answered") >= CLIENTS * 2 // 3
    assert ends.count("left") >= CLIENTS // 10
    until(lambda: quiet(services), 5)
    after = [held(process) for process in (*services.workers, services.engine)]
    assert all(now <= then + FEW for now, then in zip(after, before, strict=True)), (before, after)
    connections = [c for p in services.workers for c in p.net_connections("tcp") if c.status == "ESTABLISHED"]
    assert len(connections) <= 2
    assert services.chat("after", image_part(1)).status_code == 200
