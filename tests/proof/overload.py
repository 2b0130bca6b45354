"""Offered several times what the engine can do: goodput stays, deadlines are kept, the rest is refused at once.

    python -m tests.proof.overload [--times 4] [--seconds 20] [--workers 1]

The engine is a fake one with a fixed number of slots, each request taking a fixed time, behind a real service. First a
closed loop measures the best goodput that there is; then requests come at a steady rate, whatever becomes of them.
“no queue” is the same with everything sent on to the engine at once, for comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.proof.client import Told, ask, chat, request
from tests.serving.harness import serving, until

SLOTS = 8
WORK_S = 0.5
TIMEOUT_S = 4.0
ENGINE = f"--engine-args=--slots={SLOTS},--capacity={SLOTS},--delay-s={WORK_S},--pieces=2"


@dataclass(frozen=True, slots=True)
class Result:
    """Of one run."""

    name: str
    offered: float  # requests a second
    goodput: float  # whole answers inside the deadline, a second
    late: int  # let in and not answered in time
    statuses: Counter[int]
    refused_p50: float  # seconds until a refusal
    refused_max: float
    answered_max: float

    def line(self) -> str:
        """For people."""
        return (
            f"{self.name:10} offered {self.offered:6.1f}/s  goodput {self.goodput:6.1f}/s  late {self.late:4}  "
            f"refused p50 {1e3 * self.refused_p50:6.1f} ms max {1e3 * self.refused_max:7.1f} ms  "
            f"answered max {self.answered_max:.2f} s  {dict(self.statuses)}"
        )


def result(name: str, told: list[Told], began: float, end: float) -> Result:
    """Count what came back; for goodput only what came back before `end`."""
    seconds = end - began
    good = [one for one in told if one.status == 200 and one.seconds <= TIMEOUT_S and one.ended <= end]
    in_time = [one for one in told if one.status == 200 and one.seconds <= TIMEOUT_S]
    refused = sorted(one.seconds for one in told if one.status in (429, 503)) or [0.0]
    late = len([one for one in told if one.status not in (200, 429, 503)])
    late += sum(one.status == 200 for one in told) - len(in_time)
    return Result(
        name,
        len(told) / seconds,
        len(good) / seconds,
        late,
        Counter(one.status for one in told),
        refused[len(refused) // 2],
        refused[-1],
        max((one.seconds for one in told if one.status == 200), default=0.0),
    )


async def best(port: int, seconds: float) -> Result:
    """As many at a time as there are slots, and a few waiting."""
    told: list[Told] = []
    began = time.monotonic()

    async def one() -> None:
        while time.monotonic() - began < seconds:
            told.append(await ask(port, request(chat("hello"))))

    await asyncio.gather(*(one() for _ in range(SLOTS + 2)))
    return result("best", told, began, began + seconds)


async def flood(port: int, rate: float, seconds: float, name: str = "flood") -> Result:
    """Requests at a steady rate; goodput is counted over the time in which they come."""
    tasks: list[asyncio.Task[Told]] = []
    began = time.monotonic()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        tasks.append(asyncio.create_task(ask(port, request(chat("hello")), limit_s=TIMEOUT_S + 5)))
    end = time.monotonic()
    return result(name, list(await asyncio.gather(*tasks)), began, end)


def run(times: float, seconds: float, workers: int, *, unguarded: bool) -> list[Result]:
    """Best, flood, and if wanted the flood without a guard."""
    flags = ("--workers", str(workers), "--request-timeout-s", str(TIMEOUT_S), ENGINE)
    with serving(*flags) as service:
        until(lambda: service.http.get("/readyz").json()["details"]["places"] == SLOTS, 10)
        asyncio.run(best(service.port, 3))  # warm: how long an answer takes is learned here
        found = [asyncio.run(best(service.port, seconds))]
        found.append(asyncio.run(flood(service.port, times * found[0].goodput, seconds)))
    if unguarded:
        open_ = ("--max-running", "100000", "--max-queue", "100000")
        with serving(*flags, *open_) as service:
            found.append(asyncio.run(flood(service.port, times * found[0].goodput, seconds, "no queue")))
    return found


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=float, default=4.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--log", type=Path, help="also write the lines there")
    args = parser.parse_args()
    found = run(args.times, args.seconds, args.workers, unguarded=True)
    lines = [one.line() for one in found]
    sys.stdout.write("\n".join(lines) + "\n")
    if args.log:
        args.log.write_text("\n".join(lines) + "\n")
    held = found[1].goodput >= 0.9 * found[0].goodput and not found[1].late
    sys.stdout.write(f"{'held' if held else 'NOT HELD'}: {found[1].goodput / found[0].goodput:.2f} of the best\n")
    return not held


if __name__ == "__main__":
    sys.exit(main())
