"""Bytes of pictures that do not come inside the request: by URL, or from a file uploaded before."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlens.errors import FileNotThere, ImageTooLarge, ImageUrlNotAllowed, TooManyBytes
from twinlens.media.fetch import is_url

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from twinlens.core import ImageRef
    from twinlens.media.fetch import Fetcher
    from twinlens.media.uploads import Uploads


@dataclass(frozen=True, slots=True)
class Supplies:
    """What one gateway process can get pictures from; without one of them, none come from there."""

    fetcher: Fetcher | None = None
    uploads: Uploads | None = None


class Sources:
    """Where pictures are got from. `each` and `together`: most bytes of one picture, and of those of one request."""

    def __init__(self, supplies: Supplies, pool: Executor, *, each: int, together: int) -> None:
        self._fetcher = supplies.fetcher
        self._uploads = supplies.uploads
        self._pool = pool
        self._each = each
        self._together = together

    async def outside(self, refs: Sequence[ImageRef], owner: str) -> dict[int, bytes]:
        """The bytes of all pictures that are not in the request itself, by their place in `refs`.

        The same URL or file twice is got once. Raises the error of the first that fails; the others are given up.
        """
        wanted = {
            at: (ref.file_id, ref.url.strip() if not ref.file_id else "")
            for at, ref in enumerate(refs)
            if ref.file_id or is_url(ref.url)
        }
        if not wanted:
            return {}
        first = {key: refs[at] for at, key in reversed(wanted.items())}
        room = _Room(self._together)
        tasks = {key: asyncio.ensure_future(self._one(ref, owner, room)) for key, ref in first.items()}
        try:
            await asyncio.gather(*tasks.values())
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        return {at: tasks[key].result() for at, key in wanted.items()}

    async def close(self) -> None:
        """End all connections."""
        if self._fetcher is not None:
            await self._fetcher.close()

    async def _one(self, ref: ImageRef, owner: str, room: _Room) -> bytes:
        if not ref.file_id:
            if self._fetcher is None:
                raise ImageUrlNotAllowed(f"{ref.where} is a URL, and this service fetches none.", param=ref.where)
            return await self._fetcher.get(ref.url, ref.where, self._each, lambda size: room.take(size, ref.where))
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, ref, owner, room)

    def _read(self, ref: ImageRef, owner: str, room: _Room) -> bytes:
        if self._uploads is None:
            raise FileNotThere("There is no such file.", param=ref.where)
        try:
            content = self._uploads.open(owner, ref.file_id)
        except FileNotThere as error:
            error.param = ref.where
            raise
        with contextlib.closing(content):
            size = content.upload.bytes
            if size > self._each:
                raise ImageTooLarge(
                    f"{ref.where} is a file of {size} bytes, more than {self._each}, the limit of max_image_bytes.",
                    param=ref.where,
                )
            room.take(size, ref.where)
            return content.read(size)


class _Room:
    """Counts what the pictures of one request take together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._lock = threading.Lock()  # files are read in threads

    def take(self, size: int, where: str) -> None:
        """Raises TooManyBytes."""
        with self._lock:
            self._taken += size
            full = self._taken > self._limit
        if full:
            raise TooManyBytes(
                f"The pictures up to {where} have more than {self._limit} bytes together, the limit of one request.",
                param=where,
            )
