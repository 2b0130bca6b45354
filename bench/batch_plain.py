"""What is usually written for such a job: asyncio and aiohttp, 16 requests at a time, the answers to a file at the end.

python -m bench.batch_plain URL TASK FOLDER OUT
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp

AT_ONCE = 16


async def run(url: str, task: str, folder: Path, out: Path) -> None:
    """Ask about every picture of the folder."""
    places = asyncio.Semaphore(AT_ONCE)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:

        async def ask(path: Path) -> dict[str, Any]:
            async with places:
                body = {"images": [base64.b64encode(path.read_bytes()).decode()]}
                async with session.post(f"{url}/v1/tasks/{task}", json=body) as response:
                    said = await response.json()
            return {"path": str(path), "answer": said.get("result"), "error": said.get("error")}

        found = await asyncio.gather(*(ask(path) for path in sorted(folder.iterdir())))
    out.write_text("".join(json.dumps(one) + "\n" for one in found))


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])))
