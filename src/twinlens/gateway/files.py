"""/v1/files: uploads that later requests name, as OpenAI has it. What they are on disk: media/uploads."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs, quote

import msgspec

from twinlens.errors import (
    BodyTooSlow,
    FileNotThere,
    InvalidField,
    InvalidRequest,
    OriginNotAllowed,
    Overloaded,
    UnsupportedImageFormat,
)
from twinlens.gateway.form import Form, check_head
from twinlens.gateway.front import exchange_of
from twinlens.gateway.http import body_chunks, header, send_json, unless_left
from twinlens.gateway.wire import FileDeleted, FileList, FileObject
from twinlens.media import decode

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import Receive, Scope, Send

    from twinlens.media.uploads import Draft, Purpose, Upload, Uploads

FILES, FILE, CONTENT = "/v1/files", "/v1/files/{file_id}", "/v1/files/{file_id}/content"
AT_ONCE = 16  # uploads that run at the same time in one gateway process
PIECE = 1 << 20  # bytes between two waits for the disk
SLACK = 64 << 10  # bytes of a body that are not the file's
_PURPOSES: dict[str, Purpose] = {"vision": "vision", "user_data": "user_data"}
PURPOSES = tuple(_PURPOSES)
MOST_LISTED = 10_000
LEAST_LIFE_S, MOST_LIFE_S = 3600, 30 * 24 * 3600  # of expires_after, as OpenAI has it


@dataclass(frozen=True, slots=True)
class Filing:
    """What the routes share. `origins`: of pages that may upload; `life_s`: of files whose upload names none."""

    uploads: Uploads
    origins: Collection[str]
    timeout_s: float
    life_s: int
    running: asyncio.Semaphore


def filing(uploads: Uploads, origins: Collection[str], timeout_s: float, life_s: int) -> Filing:
    """For one gateway process."""
    return Filing(uploads, frozenset(origins), timeout_s, life_s, asyncio.Semaphore(AT_ONCE))


class FilesRoute:
    """ASGI endpoint of /v1/files: POST uploads, GET lists."""

    def __init__(self, filing: Filing) -> None:
        self._filing = filing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        exchange = exchange_of(scope)
        if scope["method"] == "POST":
            upload = await self._upload(scope, receive, exchange.tenant)
            exchange.note = f"bytes={upload.bytes} purpose={upload.purpose}"
            await send_json(send, _shown(upload))
            return
        query = _Query.read(scope)
        found = await asyncio.to_thread(self._filing.uploads.all_of, exchange.tenant)
        await send_json(send, query.page(found))

    async def _upload(self, scope: Scope, receive: Receive, owner: str) -> Upload:
        filing = self._filing
        _check_origin(scope, filing.origins)
        boundary = check_head(scope, filing.uploads.bounds.file + SLACK)
        if filing.running.locked():
            raise Overloaded(f"{AT_ONCE} uploads are running.", retry_after=2)
        async with filing.running:
            draft = await asyncio.to_thread(filing.uploads.begin, owner)
            try:
                form = Form(boundary, filing.uploads.bounds.file)
                async with asyncio.timeout(filing.timeout_s):
                    await _receive(receive, form, draft)
                about = _About.of(form, filing.life_s)
                return await asyncio.to_thread(draft.publish, form.filename or "", about.purpose, about.life_s)
            except TimeoutError:
                raise BodyTooSlow(f"The file was not there after {filing.timeout_s:g} seconds.") from None
            finally:
                draft.close()


class FileRoute:
    """ASGI endpoint of /v1/files/{file_id}: GET tells, DELETE removes."""

    def __init__(self, filing: Filing) -> None:
        self._filing = filing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        owner, file_id = _named(scope, FILE)
        if scope["method"] == "DELETE":
            await asyncio.to_thread(self._filing.uploads.delete, owner, file_id)
            await send_json(send, FileDeleted(id=file_id))
            return
        await send_json(send, _shown(await asyncio.to_thread(self._filing.uploads.find, owner, file_id)))


class ContentRoute:
    """ASGI endpoint of GET /v1/files/{file_id}/content."""

    def __init__(self, filing: Filing) -> None:
        self._filing = filing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the bytes as they came."""
        owner, file_id = _named(scope, CONTENT)
        await unless_left(receive, self._send(owner, file_id, send))

    async def _send(self, owner: str, file_id: str, send: Send) -> None:
        content = await asyncio.to_thread(self._filing.uploads.open, owner, file_id)
        with contextlib.closing(content):
            await send(_content_head(content.upload))
            left = content.upload.bytes
            while left:
                piece = await asyncio.to_thread(content.read, min(PIECE, left))
                left -= len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": left > 0})


def _named(scope: Scope, route: str) -> tuple[str, str]:
    """Whose file, and which."""
    exchange = exchange_of(scope)
    exchange.route = route
    return exchange.tenant, str(scope["path_params"]["file_id"])


def _content_head(upload: Upload) -> Any:
    # Never shown in a browser as what it claims to be: it is whatever a client has sent.
    headers = {
        "content-type": "application/octet-stream",
        "content-length": str(upload.bytes),
        "content-disposition": f"attachment; filename*=UTF-8''{quote(upload.filename, safe='')}",
        "x-content-type-options": "nosniff",
    }
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": 200, "headers": encoded}


async def _receive(receive: Receive, form: Form, draft: Draft) -> None:
    """The body into the form, the file's bytes from there to the disk."""
    async for chunk in body_chunks(receive):
        form.feed(chunk)
        if form.waiting >= PIECE:
            await asyncio.to_thread(draft.write, form.taken())
    if rest := form.taken():
        await asyncio.to_thread(draft.write, rest)
    form.finish()


@dataclass(frozen=True, slots=True)
class _About:
    """What an upload says of its file, checked."""

    purpose: Purpose
    life_s: int

    @classmethod
    def of(cls, form: Form, life_s: int) -> _About:
        if form.filename is None:
            raise InvalidField("“file” is missing, or was sent without a file name.", param="file")
        if not form.size:
            raise InvalidField("“file” is empty.", param="file")
        purpose = _PURPOSES.get(form.fields.get("purpose", ""))
        if purpose is None:
            raise InvalidField(f"“purpose” must be {' or '.join(PURPOSES)}.", param="purpose")
        if purpose == "vision" and not decode.is_taken(form.start):
            raise UnsupportedImageFormat("“file” is not a picture of a kind that is taken here.", param="file")
        return cls(purpose, _life(form.fields, life_s))


def _life(fields: dict[str, str], default_s: int) -> int:
    anchor, seconds = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return default_s
    if anchor != "created_at":
        raise InvalidField("“expires_after.anchor” must be created_at.", param="expires_after.anchor")
    if not (seconds or "").isascii() or not (seconds or "").isdigit() or len(seconds or "") > 9:
        raise InvalidField("“expires_after.seconds” must be a number of seconds.", param="expires_after.seconds")
    value = int(seconds or 0)
    if not LEAST_LIFE_S <= value <= MOST_LIFE_S:
        raise InvalidField(
            f"“expires_after.seconds” must be from {LEAST_LIFE_S} to {MOST_LIFE_S}.", param="expires_after.seconds"
        )
    return value


def _check_origin(scope: Scope, allowed: Collection[str]) -> None:
    """A page of another site can have a browser send a form here without asking; then it says where it comes from."""
    origin = header(scope, b"origin")
    if origin is None or origin in allowed or "*" in allowed:
        return
    if origin.partition("://")[2].lower() != (header(scope, b"host") or "").strip().lower():
        raise OriginNotAllowed("A page of another origin may not upload here.")


def _shown(upload: Upload) -> FileObject:
    return FileObject(
        id=upload.id,
        bytes=upload.bytes,
        created_at=upload.created_at,
        expires_at=upload.expires_at,
        filename=upload.filename,
        purpose=upload.purpose,
    )


class _Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a list is wanted."""

    limit: int = MOST_LISTED
    order: Literal["asc", "desc"] = "desc"
    after: str = ""
    purpose: str = ""

    @classmethod
    def read(cls, scope: Scope) -> _Query:
        """Raises InvalidField."""
        try:
            given = parse_qs(scope["query_string"].decode("ascii"), keep_blank_values=True, max_num_fields=32)
        except ValueError as error:
            raise InvalidRequest("The query of the address is not valid.") from error
        values = {name: value[-1] for name, value in given.items() if name in cls.__struct_fields__}
        limit = values.get("limit", str(MOST_LISTED))
        if not (limit.isascii() and limit.isdigit() and len(limit) < 9 and 1 <= int(limit) <= MOST_LISTED):
            raise InvalidField(f"“limit” must be a number from 1 to {MOST_LISTED}.", param="limit")
        order = values.get("order", "desc")
        if order not in ("asc", "desc"):
            raise InvalidField("“order” must be asc or desc.", param="order")
        if values.get("purpose", "vision") not in PURPOSES:
            raise InvalidField(f"“purpose” must be {' or '.join(PURPOSES)}.", param="purpose")
        return cls(
            limit=int(limit),
            order="asc" if order == "asc" else "desc",
            after=values.get("after", ""),
            purpose=values.get("purpose", ""),
        )

    def page(self, newest_first: list[Upload]) -> FileList:
        """The part of the list. Raises FileNotThere for an `after` that is not in it."""
        files = newest_first if self.order == "desc" else newest_first[::-1]
        if self.after:
            places = [at for at, upload in enumerate(files) if upload.id == self.after]
            if not places:
                raise FileNotThere("There is no such file.", param="after")
            files = files[places[0] + 1 :]
        files = [upload for upload in files if self.purpose in ("", upload.purpose)]
        shown = [_shown(upload) for upload in files[: self.limit]]
        return FileList(
            data=shown,
            first_id=shown[0].id if shown else None,
            last_id=shown[-1].id if shown else None,
            has_more=len(files) > self.limit,
        )
