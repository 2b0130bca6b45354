"""The step *load* of one gateway process: references to sights (headers), sights to pixels in the store.

The event loop hands over and waits. `look` takes one thread for all pictures of a request, or one for each when there
is much to decode from base64; `load` takes one for each. Waking a thread costs several times what looking at a small
plain JPEG does (0.1 ms), so that, and asking the store for a few keys, is done on the spot.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
from blake3 import blake3

from twinlens.core import Image, Sight
from twinlens.cores import usable
from twinlens.errors import ImageError, InvalidRequest
from twinlens.media import datauri, decode, documents, leaves, pages, pdf, signature
from twinlens.media.leaves import Budget, Leaves
from twinlens.media.sources import Sources, Supplies
from twinlens.store.keys import pixels_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor, Future

    from twinlens.core import ImageRef, PagePlace
    from twinlens.media.leaves import Leaf
    from twinlens.model.pictures import PictureRule
    from twinlens.settings import Settings
    from twinlens.store import Lease, Store

log = logging.getLogger("twinlens.media")

Given: TypeAlias = "tuple[ImageRef, bytes | None]"  # the bytes where they came from outside the request
A = TypeVar("A")
B = TypeVar("B")

SMALL = 256 << 10  # characters of base64 in one request up to which its pictures are looked at on the spot
FEW = 8  # pictures up to which the store is asked on the spot
MUCH = 4 << 20  # characters of base64 in one request from which on its pictures are looked at in parallel
LARGE = 32_000_000  # pixels; pictures above are decoded one at a time, because each takes hundreds of megabytes


@dataclass(frozen=True, slots=True)
class _Document:
    """A file whose pages have yet to be found; `at` is its place in the request."""

    at: int
    data: bytes
    format: str


@dataclass(frozen=True, slots=True)
class _Key:
    """What decides the pixels of a picture besides its size."""

    digest: bytes
    part: str
    recipe: str


def threads_of(cores: int, workers: int) -> int:
    """Threads of one gateway process: all of them together take the cores, and none has less than two."""
    return max(2, -(-cores // workers))


class Loader:
    """Makes pixels of what clients send. One for each gateway process; `close` ends its threads."""

    def __init__(
        self,
        rule: PictureRule,
        store: Store,
        settings: Settings,
        *,
        salt: str = "",
        supplies: Supplies | None = None,
    ) -> None:
        """Raises OperatorError for unsafe decoders, SettingsError for bounds that the model does not take.

        `salt` goes into every key: services with different salts share no object. Without `supplies` no URL is
        followed and no file found.
        """
        decode.check_decoders()
        self._rule = rule.of_service(settings)
        self._store = store
        self._salt = salt
        self._settings = settings
        self._leaves = Leaves(settings)
        self._most_bytes = settings.max_image_bytes
        self._most_pixels = settings.max_image_pixels
        self._profiles = settings.icc_to_srgb
        threads = settings.load_threads or threads_of(usable(), settings.workers)
        log.info("%d threads decode pictures", threads)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="twinlens-load")
        self._sources = Sources(
            supplies or Supplies(),
            self._pool,
            each=settings.max_image_bytes,
            together=settings.max_body_bytes,
        )
        self._waiting = 0  # pieces of work that no thread has begun
        self._counting = threading.Lock()
        # One thread: it keeps what one large picture took, where each of several would keep as much.
        self._large = ThreadPoolExecutor(1, thread_name_prefix="twinlens-large")

    @property
    def waiting(self) -> int:
        """Pieces of work, a picture each as a rule, that wait for a thread."""
        return self._waiting

    async def look(self, refs: Sequence[ImageRef], owner: str = "", *, each: bool = False) -> tuple[Sight, ...]:
        """Headers, sizes and keys, in the order of `refs`: one for a picture, one for each page of a document.

        `owner`: whose files may be named. `each`: pages are asked one by one, so that more of them are taken. Raises
        the error of the first bad one.
        """
        if not refs:
            return ()
        outside = await self._sources.outside(refs, owner)
        given = [(ref, outside.get(at)) for at, ref in enumerate(refs)]
        length = sum(len(ref.url if data is None else data) for ref, data in given)
        if length <= SMALL and (plain := self._look_here(given)):
            return plain
        apart = len(refs) > 1 and length > MUCH
        groups = [[one] for one in enumerate(given)] if apart else [list(enumerate(given))]
        found = [one for group in await self._each(self._look_at, groups) for one in group]
        budget = Budget(self._settings, len(refs), each=each)
        sights: list[Sight] = []
        for ref, one in zip(refs, found, strict=True):
            several = [one] if isinstance(one, Sight) else await self._sights(ref, one, budget.most)
            budget.take(several, ref.where)
            sights += several
        return tuple(sights)

    async def load(self, sights: Sequence[Sight], lease: Lease) -> tuple[Image, ...]:
        """Pixels in the store, leased, in the order of `sights`. Raises ImageError for damaged data, StoreError.

        When it returns or raises, no thread works on these pictures or the lease any more.
        """
        unique = {sight.key: sight for sight in reversed(sights)}
        here = len(unique) <= FEW
        hits = {key: here and self._store.has(key, lease) for key in unique}
        missing = [sight for sight in unique.values() if not hits[sight.key]]
        work = self._decode if here else self._load
        pdfs = [sight for sight in missing if sight.source_format == "PDF"]
        hits |= await self._made(
            lambda sight: work(sight, lease), [one for one in missing if one.source_format != "PDF"]
        )
        for sight in pdfs:  # one after another: at no time are there two pages in memory
            hits[sight.key] = await self._page(sight, lease, known=here)
        return tuple(_image(sight, hit=hits[sight.key] or sight is not unique[sight.key]) for sight in sights)

    async def _sights(self, ref: ImageRef, one: _Document, most: int) -> list[Sight]:
        """The pages of a document that are meant, at most `most`."""
        if one.format == "PDF":
            found = await self._leaves.of_pdf(ref, one.data, most)
            return (await self._each(lambda found: self._sheets(one, ref, found), [found]))[0]
        chosen = leaves.of_tiff(ref, one.data, most)
        return (await self._each(lambda chosen: self._frames(one, ref, chosen), [chosen]))[0]

    async def _page(self, sight: Sight, lease: Lease, *, known: bool) -> bool:
        """Whether the store had this PDF page already; if not, it has it now. `known`: it has been asked."""
        if not known and (await self._each(lambda sight: self._store.has(sight.key, lease), [sight]))[0]:
            return True
        pixels = await self._leaves.draw(sight)
        await self._each(lambda pixels: self._store.put(sight.key, "pixels", pixels, lease), [pixels])
        return False

    async def _made(self, work: Callable[[Sight], bool], sights: Sequence[Sight]) -> dict[str, bool]:
        """What `work` says of each, by key: the large ones after the others, one at a time in the whole process."""
        groups = [[sight for sight in sights if not _is_large(sight)]]
        groups += [[sight] for sight in sights if _is_large(sight)]
        said: dict[str, bool] = {}
        for group in groups:
            pool = self._large if any(map(_is_large, group)) else self._pool
            said |= zip((sight.key for sight in group), await self._each(work, group, pool), strict=True)
        return said

    async def aclose(self) -> None:
        """End the connections to other hosts, and then as `close`."""
        await self._sources.close()
        self.close()

    def close(self) -> None:
        """Drop what waits, finish what runs, end the threads and the process that reads PDFs."""
        self._leaves.close()
        for pool in (self._pool, self._large):
            pool.shutdown(wait=True, cancel_futures=True)

    def _look_here(self, given: Sequence[Given]) -> tuple[Sight, ...] | None:
        """On the event loop: None as soon as a picture is not a plain JPEG, whose header takes microseconds."""
        sights = []
        for at, (ref, got) in enumerate(given):
            data = self._bytes(ref, got)
            if not signature.is_plain(data):
                return None
            sights.append(self._sight(at, ref, data))
        return tuple(sights)

    def _look_at(self, given: Sequence[tuple[int, Given]]) -> list[Sight | _Document]:
        found: list[Sight | _Document] = []
        for at, (ref, got) in given:
            data = self._bytes(ref, got)
            name = signature.sniff(data)
            if name == "PDF" or (name == "TIFF" and signature.tiff_pages(data) != (0,)):
                found.append(_Document(at, data, name))
            else:
                found.append(self._sight(at, ref, data))
        return found

    def _bytes(self, ref: ImageRef, got: bytes | None) -> bytes:
        if got is None:
            return datauri.read(ref.url, ref.where, self._most_bytes)
        if not got:
            raise ImageError(f"{ref.where} leads to an empty picture.", param=ref.where)
        return got

    def _sight(self, at: int, ref: ImageRef, data: bytes) -> Sight:
        """Of a picture, or of the only page of a TIFF."""
        pages.numbers(ref.pages, 1, ref.where, 1)
        header = decode.look(data, ref.where, self._most_pixels)
        key = _Key(blake3(data).digest(), "0", decode.recipe(header.format, profiles=self._profiles))
        return self._seen(at, ref, data, header, key)

    def _frames(self, one: _Document, ref: ImageRef, chosen: Sequence[tuple[int, PagePlace]]) -> list[Sight]:
        digest = blake3(one.data).digest()
        found = []
        for frame, place in chosen:
            with _on_page(place):
                header = decode.look(one.data, ref.where, self._most_pixels, frame)
                key = _Key(digest, str(frame), decode.recipe(header.format, profiles=self._profiles))
                found.append(replace(self._seen(one.at, ref, one.data, header, key), page=place))
        said = leaves.unused(len(found), ref.where, chosen[0][1].total)
        return [replace(found[0], warnings=(*said, *found[0].warnings)), *found[1:]]

    def _sheets(self, one: _Document, ref: ImageRef, found: Sequence[Leaf]) -> list[Sight]:
        digest = blake3(one.data).digest()
        sights = []
        for leaf in found:
            key = _Key(digest, f"page {leaf.place.number}", pdf.RECIPE)
            header = decode.Header("PDF", leaf.size, leaf.warnings)
            with _on_page(leaf.place):
                sights.append(replace(self._seen(one.at, ref, one.data, header, key), page=leaf.place))
        return sights

    def _seen(self, at: int, ref: ImageRef, data: bytes, header: decode.Header, key: _Key) -> Sight:
        with _placed(ref.where):
            rule = self._rule.bounded(ref.min_pixels, ref.max_pixels, ref.detail)
            size = rule.target(*header.size)
        return Sight(
            where=ref.where,
            key=pixels_key(key.digest, part=key.part, recipe=key.recipe, size=size, salt=self._salt),
            data=data,
            source_format=header.format,
            source_size=header.size,
            size=size,
            grid=rule.grid(*size),
            tokens=rule.tokens(*size),
            warnings=header.warnings,
            ref=at,
        )

    def _load(self, sight: Sight, lease: Lease) -> bool:
        """Whether the store had it already; if not, it has it now."""
        return self._store.has(sight.key, lease) or self._decode(sight, lease)

    def _decode(self, sight: Sight, lease: Lease) -> bool:
        frame = documents.frame_of(sight.data, sight.page.number) if sight.page else 0
        picture = decode.pixels(
            sight.data, sight.source_format, sight.size, sight.where, frame, profiles=self._profiles
        )
        self._store.put(sight.key, "pixels", np.asarray(picture), lease)
        return False

    async def _each(self, work: Callable[[A], B], items: Sequence[A], pool: Executor | None = None) -> list[B]:
        """`work` for all items in threads. On an error or a cancellation nothing of it runs on behind our back."""
        self._count(len(items))
        jobs = [(pool or self._pool).submit(self._begin, work, item) for item in items]
        try:
            return [await asyncio.wrap_future(job) for job in jobs]
        except BaseException:
            running = [job for job in jobs if not job.cancel()]
            self._count(len(running) - len(jobs))
            await _settled(running)
            raise

    def _begin(self, work: Callable[[A], B], item: A) -> B:
        self._count(-1)
        return work(item)

    def _count(self, more: int) -> None:
        with self._counting:
            self._waiting += more


async def _settled(jobs: Sequence[Future[B]]) -> None:
    """Wait for threads that cannot be stopped: a decoder's tenth of a second, even if cancelled again meanwhile."""
    done = asyncio.gather(*map(asyncio.wrap_future, jobs), return_exceptions=True)
    while not done.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(done)


@contextlib.contextmanager
def _placed(where: str) -> Iterator[None]:
    """Errors of the arithmetic do not know which part they are about."""
    try:
        yield
    except InvalidRequest as error:
        error.param = error.param or where
        raise


@contextlib.contextmanager
def _on_page(place: PagePlace) -> Iterator[None]:
    """Errors of a page say which one it is."""
    try:
        yield
    except ImageError as error:
        error.message = f"Page {place.number} of {place.total}: {error.message}"
        raise


def _is_large(sight: Sight) -> bool:
    return sight.source_size[0] * sight.source_size[1] > LARGE


def _image(sight: Sight, *, hit: bool) -> Image:
    return Image(
        where=sight.where,
        key=sight.key,
        size=sight.size,
        grid=sight.grid,
        tokens=sight.tokens,
        hit=hit,
        warnings=sight.warnings,
    )
