"""The report of a batch: one page of HTML that needs nothing else, neither a network nor the files it is about.

What it shows comes from pictures, models and names of files, none of which can be trusted. So it stands in the page as
data, which the page's one script puts into place as texts; and the page forbids itself every other script, by digest.
It holds at most MOST_RECORDS, failures first, and shows some at a time, so that a browser bears it.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from array import array
from collections import Counter
from dataclasses import dataclass, field
from importlib.resources import files
from typing import IO, TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from twinlens.batch.records import Done, Record, Work
    from twinlens.batch.thumbs import Thumb

MOST_RECORDS = 10_000
MOST_ANSWER = 20_000  # bytes of JSON of one answer that are shown
CHUNK = 100  # records of one block of data
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src {style}; \
script-src {script}; base-uri 'none'; form-action 'none'">
<title>Twinlens batch</title>
<style>{css}</style>
</head>
<body>
<header>
<h1 id="title"></h1>
<p id="what" class="dim"></p>
<div id="figures" class="figures"></div>
<div id="notes"></div>
</header>
<nav>
<label>Show <select id="kind"></select></label>
<input id="search" type="search" placeholder="Search in paths, answers and errors" aria-label="Search">
<output id="place"></output>
<button id="back" type="button">Back</button>
<button id="on" type="button">Next</button>
</nav>
<main id="cards" class="cards"></main>
<footer>Made by twinlens batch.</footer>
<noscript>This page shows its records with a script of its own, which your browser does not run.</noscript>
"""


@dataclass(frozen=True, slots=True)
class About:
    """What the page says of the batch besides its records."""

    work: Work
    out: str
    pending: int
    stopped: str


@dataclass(slots=True)
class Figures:
    """What is counted over all records, whether they are shown or not."""

    records: int = 0
    failed: int = 0
    copied: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    times: array[float] = field(default_factory=lambda: array("d"))

    def add(self, record: Record) -> None:
        """One more."""
        self.records += 1
        usage = record.usage or {}
        self.prompt_tokens += _count(usage.get("prompt_tokens"))
        self.completion_tokens += _count(usage.get("completion_tokens"))
        if record.error:
            self.failed += 1
            self.codes[record.error.code] += 1
        elif record.same_as:
            self.copied += 1
        else:
            self.times.append(record.time)

    def shown(self, pending: int) -> list[tuple[str, float, int]]:
        """(label, value, digits behind the point) of those on top of the page."""
        rows: list[tuple[str, float, int]] = [
            ("records", self.records, 0),
            ("answered", self.records - self.failed, 0),
            ("failed", self.failed, 0),
        ]
        rows += [("left undone", pending, 0)] if pending else []
        rows += [("copied from identical files", self.copied, 0)] if self.copied else []
        if self.times:
            ordered = sorted(self.times)
            rows += [
                ("seconds an answer, median", ordered[len(ordered) // 2], 2),
                ("seconds, 95 of 100 are below", ordered[int(0.95 * (len(ordered) - 1))], 2),
            ]
        rows += [("tokens read", self.prompt_tokens, 0), ("tokens written", self.completion_tokens, 0)]
        return rows


def write(
    file: IO[bytes],
    dones: Callable[[bool | None], Iterator[Done]],
    thumb: Callable[[Done], Thumb],
    about: About,
) -> None:
    """Write the page. `dones` gives finished records in order: all (None), the failed (True) or the others (False)."""
    figures = Figures()
    for done in dones(None):
        figures.add(done.record)
    css, script = _part("report.css"), _part("report.js")
    page = _PAGE.format(css=css, style=_digest(css), script=_digest(script))
    file.write(page.encode())
    file.write(b'<script type="application/json" id="about">')
    file.write(_data(_about(about, figures)))
    file.write(b"</script>\n")
    for chunk in _chunks(_first(dones)):
        file.write(b'<script type="application/json" class="records">')
        file.write(_data([_shown(done, thumb(done)) for done in chunk]))
        file.write(b"</script>\n")
    file.write(f"<script>{script}</script>\n</body>\n</html>\n".encode())


def _about(about: About, figures: Figures) -> dict[str, Any]:
    notes = [f"Stopped: {about.stopped}"] if about.stopped else []
    if figures.records > MOST_RECORDS:
        left = figures.records - MOST_RECORDS
        notes.append(f"Failures first, {MOST_RECORDS} records are here; the table has {left} more.")
    return {
        "task": about.work.task,
        "version": about.work.version,
        "weights": about.work.weights,
        "out": about.out,
        "written": f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC",
        "figures": figures.shown(about.pending),
        "codes": figures.codes.most_common(),
        "notes": notes,
    }


def _first(dones: Callable[[bool | None], Iterator[Done]]) -> Iterator[Done]:
    """At most MOST_RECORDS: all in their order, or failures first where they are too many."""
    count = sum(1 for _ in dones(None))
    groups = [dones(None)] if count <= MOST_RECORDS else [dones(True), dones(False)]
    left = MOST_RECORDS
    for group in groups:
        for done in group:
            if not left:
                return
            left -= 1
            yield done


def _chunks(dones: Iterable[Done]) -> Iterator[list[Done]]:
    chunk: list[Done] = []
    for done in dones:
        chunk.append(done)
        if len(chunk) >= CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _shown(done: Done, thumb: Thumb) -> dict[str, Any]:
    record = done.record
    said = {key: value for key, value in msgspec.structs.asdict(record).items() if value and key != "digest"}
    answer = msgspec.json.encode(record.answer)
    if len(answer) > MOST_ANSWER:
        said["answer"] = answer[:MOST_ANSWER].decode("utf-8", "ignore") + " ... (the table has all of it)"
    else:
        said["answer"] = _exact(record.answer)
    said |= {"pages": done.pages, "boxes": thumb.boxes}
    if thumb.data:
        said["thumb"] = "data:image/webp;base64," + base64.b64encode(thumb.data).decode()
    else:
        said["none"] = thumb.why
    return said


def _exact(value: Any) -> Any:
    """The value with whole numbers as texts where a script would round them."""
    if isinstance(value, dict):
        return {key: _exact(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_exact(one) for one in value]
    return str(value) if isinstance(value, int) and abs(value) >= 1 << 53 else value


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _data(value: Any) -> bytes:
    """JSON in which nothing can end the element that it stands in."""
    return msgspec.json.encode(value).replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


def _part(name: str) -> str:
    return files("twinlens.batch").joinpath(name).read_text("utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
