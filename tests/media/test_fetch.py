"""Fetching from real https servers on loopback. That loopback counts as public is told to the fetcher by its
constructor, which no setting reaches; everything else is what production runs."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.media.pictures import plain
from tests.media.site import CA, answer, redirect, site, trust
from twinlens.errors import ImageError, ImageFetchFailed, ImageFetchTimeout, ImageTooLarge, ImageUrlNotAllowed
from twinlens.media import fetch
from twinlens.media.fetch import Fetcher
from twinlens.media.hosts import is_public
from twinlens.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.media.site import Site

WHERE = "messages[0].content[1]"
NAME = "img.test"
PNG = plain("PNG")


def here_too(address: str) -> bool:
    return address == "127.0.0.1" or is_public(address)


class Net:
    """A site, a resolver that says where names lead, and a fetcher that asks it."""

    def __init__(self, served: Site) -> None:
        self.site = served
        self.names: dict[str, Callable[[], list[str]]] = {NAME: lambda: ["127.0.0.1"]}
        self.asked: list[str] = []
        self.made: list[Fetcher] = []

    async def lookup(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return self.names[host]()

    def fetcher(self, *hosts: str, public: Callable[[str], bool] = here_too, **settings: Any) -> Fetcher:
        listed = hosts or (f"{NAME}:{self.site.port}",)
        made = Fetcher(Settings(url_hosts=listed, **settings), lookup=self.lookup, public=public, trust=trust())
        self.made.append(made)
        return made

    def url(self, path: str = "/a.png", host: str = NAME) -> str:
        return f"https://{host}:{self.site.port}{path}"

    async def get(self, url: str, limit: int = 1 << 20, **settings: Any) -> bytes:
        return await self.fetcher(**settings).get(url, WHERE, limit)

    async def refused(self, url: str, kind: type[ImageError], **settings: Any) -> ImageError:
        with pytest.raises(kind) as caught:
            await self.get(url, **settings)
        assert type(caught.value) is kind
        assert caught.value.param == WHERE
        text = str(caught.value.body())
        assert "127.0.0.1" not in text
        assert "refused" not in text
        return caught.value


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    async with site(NAME, "other.test") as served:
        served.pages["/a.png"] = answer(PNG, content_type="text/html")
        made = Net(served)
        yield made
        for fetcher in made.made:
            await fetcher.close()


async def test_a_picture_by_url(net: Net) -> None:
    assert await net.get(net.url()) == PNG
    (head,) = net.site.seen
    assert head.startswith("GET /a.png HTTP/1.1\r\n")
    sent = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
    assert sent["host"] == f"{NAME}:{net.site.port}"
    assert sent["accept-encoding"] == "identity"
    assert not {"cookie", "authorization", "referer"} & set(sent)


async def test_url_10_it_says_who_it_is(net: Net) -> None:
    await net.get(net.url(), url_user_agent="Pictures/1.0 (ops@example.org)")
    assert "Pictures/1.0 (ops@example.org)" in net.site.seen[0]
    await net.get(net.url())
    assert "Twinlens/" in net.site.seen[1]


async def test_nothing_is_fetched_unless_hosts_are_listed(net: Net) -> None:
    fetcher = Fetcher(Settings(), lookup=net.lookup, public=here_too, trust=trust())
    with pytest.raises(ImageUrlNotAllowed):
        await fetcher.get(net.url(), WHERE, 100)
    assert not net.asked
    assert not net.site.connections


async def test_connections_are_kept_and_cookies_are_not(net: Net) -> None:
    net.site.pages["/a.png"] = answer(PNG, set_cookie="a=b; Path=/")
    fetcher = net.fetcher()
    for _ in range(3):
        assert await fetcher.get(net.url(), WHERE, 1 << 20) == PNG
    assert net.site.connections == 1
    assert "cookie" not in "".join(net.site.seen).lower()


@pytest.mark.parametrize(
    "url",
    [
        "http://img.test/a.png",
        "https://user@img.test/a.png",
        "https://user:secret@img.test/a.png",
        "https://:@img.test/",
        "https://other.test/a.png",
        "https://img.test.evil.test/a.png",
        "https://img.test:8443/a.png",
        "https://img.test:0/",
        "https://img.test:99999/",
        "https:///a.png",
        "https://",
        "https:img.test",
        "https://img.test\\@evil.test/",
        "https://img.test%2eevil.test/",
        "https://img.test\r\nHost: x/",
        "https://im\tg.test/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://0x7f000001/",
        "https://017700000001/",
        "https://127.1/",
        "https://127.0.0.1/",
        "https://127。0。0。1/",
        "https://①②⑦.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::ffff:a9fe:a9fe]/latest/meta-data/",
        "https://[64:ff9b::7f00:1]/",
        "https://[fe80::1%25eth0]/",
        "https://169.254.169.254/latest/meta-data/",
        "https://10.0.0.5/a.png",
        "https://" + "a" * 9000 + ".test/",
    ],
)
@pytest.mark.parametrize("hosts", [("img.test",), ("*",)], ids=["listed", "all"])
async def test_url_01_addresses_that_are_not_followed(net: Net, url: str, hosts: tuple[str, ...]) -> None:
    fetcher = net.fetcher(*hosts, public=is_public)
    with pytest.raises(ImageError) as caught:
        await fetcher.get(url, WHERE, 100)
    # A name outside the list of one host may be looked up only where every host is allowed.
    looked_up = hosts == ("*",) and url in _OTHER_NAMES
    assert isinstance(caught.value, ImageFetchFailed if looked_up else ImageUrlNotAllowed)
    assert bool(net.asked) == looked_up
    assert not net.site.connections


_OTHER_NAMES = ("https://other.test/a.png", "https://img.test.evil.test/a.png")


async def test_names_are_compared_as_they_are_meant(net: Net) -> None:
    assert await net.get(net.url(host="IMG.test")) == PNG
    assert await net.get(net.url(host="img.test.")) == PNG  # and TLS checks the name without the dot
    assert await net.get(net.url("/a.png#part")) == PNG
    assert {head.split(" ")[1] for head in net.site.seen} == {"/a.png"}


@pytest.mark.parametrize(
    "addresses",
    [
        ["10.0.0.7"],
        ["169.254.169.254"],
        ["93.184.216.34", "127.0.0.1"],
        ["::ffff:127.0.0.1"],
        ["fd00::1"],
        ["64:ff9b::7f00:1"],
        [],
    ],
)
async def test_url_04_names_that_lead_inside(net: Net, addresses: list[str]) -> None:
    net.names[NAME] = lambda: addresses
    inside = await net.refused(net.url(), ImageFetchFailed, public=is_public)
    del net.names[NAME]
    nowhere = await net.refused(net.url(), ImageFetchFailed, public=is_public)
    # Whether there is such a name inside cannot be told from the answer.
    assert inside.body() == nowhere.body()
    assert not net.site.connections


async def test_url_04_a_name_that_changes_its_mind_is_asked_once(net: Net) -> None:
    async with site(NAME) as inner:  # where the second answer would lead
        answers = iter([["127.0.0.1"]] + [["127.0.0.2"]] * 9)
        net.names[NAME] = lambda: next(answers)
        assert await net.get(net.url()) == PNG
        assert net.asked == [NAME]
        assert not inner.connections


async def test_url_04_the_address_is_looked_at_again_when_it_is_connected_to(net: Net) -> None:
    said: list[str] = []

    def changing(address: str) -> bool:  # public when it is resolved, and no longer a moment later
        said.append(address)
        return len(said) == 1

    await net.refused(net.url(), ImageFetchFailed, public=changing)
    assert said == ["127.0.0.1", "127.0.0.1"]
    assert not net.site.connections


async def test_the_certificate_has_to_be_the_names(net: Net) -> None:
    net.names["wrong.test"] = lambda: ["127.0.0.1"]
    fetcher = net.fetcher(f"wrong.test:{net.site.port}")
    with pytest.raises(ImageFetchFailed, match="certificate"):
        await fetcher.get(net.url(host="wrong.test"), WHERE, 100)
    strangers = Fetcher(Settings(url_hosts=(f"{NAME}:{net.site.port}",)), lookup=net.lookup, public=here_too)
    with pytest.raises(ImageFetchFailed, match="certificate"):
        await strangers.get(net.url(), WHERE, 100)
    await strangers.close()
    assert not net.site.seen


async def test_certificates_of_ssl_cert_file_are_trusted(
    net: Net, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    CA.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    fetcher = Fetcher(Settings(url_hosts=(f"{NAME}:{net.site.port}",)), lookup=net.lookup, public=here_too)
    assert await fetcher.get(net.url(), WHERE, 1 << 20) == PNG
    await fetcher.close()


async def test_proxies_of_the_environment_are_not_used(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert await net.get(net.url()) == PNG


async def test_redirects_are_followed(net: Net) -> None:
    net.names["other.test"] = lambda: ["127.0.0.1"]
    net.site.pages["/1"] = redirect("2 b", "301 Moved")
    net.site.pages["/2%20b"] = redirect(net.url("/3", host="other.test"), "307 Temporary")
    net.site.pages["/3"] = redirect(f"//img.test:{net.site.port}/a.png", "308 Permanent")
    fetcher = net.fetcher(f"*.test:{net.site.port}")
    assert await fetcher.get(net.url("/1"), WHERE, 1 << 20) == PNG
    assert net.asked == [NAME, "other.test"]


async def test_url_02_too_many_redirects(net: Net) -> None:
    for number in range(12):
        net.site.pages[f"/{number}"] = redirect(f"/{number + 1}")
    await net.refused(net.url("/0"), ImageFetchFailed)
    assert len(net.site.seen) == fetch.MOST_REDIRECTS + 1


@pytest.mark.parametrize(
    "location",
    [
        "http://img.test/a.png",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::ffff:127.0.0.1]/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://localhost/",
        "https://other.test/",
        "https://user@img.test/",
        "file:///etc/hostname",
        "ftp://img.test/a",
        "data:image/png;base64,AAAA",
        "gopher://img.test/",
        "twinlens:" + "0" * 64,
        "//evil.test/",
        "https://img.test:1/",
        "https://[",
    ],
)
async def test_url_02_every_redirect_is_checked_like_the_first(net: Net, location: str) -> None:
    net.site.pages["/go"] = redirect(location)
    async with site("localhost", "127.0.0.1") as inner:
        net.site.pages["/in"] = redirect(f"https://127.0.0.1:{inner.port}/secret.png")
        await net.refused(net.url("/go"), ImageUrlNotAllowed)
        await net.refused(net.url("/in"), ImageUrlNotAllowed)
        assert not inner.connections
    assert net.asked == [NAME, NAME]


async def test_url_02_a_redirect_to_a_listed_name_that_leads_inside(net: Net) -> None:
    net.names["inner.test"] = lambda: ["10.1.2.3"]
    net.site.pages["/go"] = redirect(net.url("/x", host="inner.test"))
    fetcher = net.fetcher(f"*.test:{net.site.port}")
    with pytest.raises(ImageFetchFailed):
        await fetcher.get(net.url("/go"), WHERE, 100)
    assert len(net.site.seen) == 1


@pytest.mark.parametrize(
    "status", ["404 Not Found", "403 Forbidden", "500 Oops", "204 No Content", "206 Partial", "304 X"]
)
async def test_url_09_other_answers_are_said_with_their_status(net: Net, status: str) -> None:
    net.site.pages["/x"] = answer(b"" if status[:3] in ("204", "304") else b"gone", status)
    error = await net.refused(net.url("/x"), ImageFetchFailed)
    assert status[:3] in error.message
    assert len(net.site.seen) == 1  # and not asked again


async def test_url_09_a_closed_port_and_an_unknown_name(net: Net) -> None:
    net.names[NAME] = lambda: ["127.0.0.1"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    fetcher = net.fetcher(f"{NAME}:{port}")
    with pytest.raises(ImageFetchFailed) as closed:
        await fetcher.get(f"https://{NAME}:{port}/", WHERE, 100)
    del net.names[NAME]
    with pytest.raises(ImageFetchFailed) as unknown:
        await fetcher.get(f"https://{NAME}:{port}/", WHERE, 100)
    assert closed.value.body() == unknown.value.body()


@pytest.mark.parametrize(
    "raw",
    [
        b"not http at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000 + b"\r\n\r\n",
        b"",
    ],
)
async def test_broken_answers(net: Net, raw: bytes) -> None:
    async def broken(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()

    net.site.pages["/x"] = broken
    await net.refused(net.url("/x"), ImageFetchFailed)


async def test_url_08_silent_hosts_end_at_the_deadline(net: Net) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async def dripping(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        for _byte in range(100):
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.05)

    net.site.pages |= {"/silent": silent, "/dripping": dripping}
    for path in ("/silent", "/dripping"):
        start = time.monotonic()
        error = await net.refused(net.url(path), ImageFetchTimeout, url_timeout_s=0.5)
        assert error.retryable
        assert 0.4 < time.monotonic() - start < 3


async def test_url_08_a_resolver_that_does_not_answer(net: Net) -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    settings = Settings(url_hosts=("*",), url_timeout_s=0.3)
    fetcher = Fetcher(settings, lookup=never, public=here_too, trust=trust())
    with pytest.raises(ImageFetchTimeout):
        await fetcher.get("https://a.test/", WHERE, 100)
    await fetcher.close()


async def _endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    await _flood(writer)


async def _lying(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")
    await _flood(writer)


async def _flood(writer: asyncio.StreamWriter) -> None:
    for _ in range(20_000):  # 1.3 GB
        if writer.is_closing():
            return
        writer.write(b"\0" * 65536)
        await writer.drain()


async def test_url_11_the_bytes_are_counted_while_they_come(net: Net) -> None:
    net.site.pages["/endless"] = _endless
    net.site.pages["/says"] = answer(b"", content_length="1000000000").replace(b"content-length: 0\r\n", b"")
    before = psutil.Process().memory_info().rss
    for path in ("/endless", "/says"):
        error = await net.refused(net.url(path), ImageTooLarge)
        assert str(1 << 20) in error.message
    net.site.pages["/lying"] = _lying  # more than it says: not one byte beyond is taken for the picture's
    await net.refused(net.url("/lying"), ImageFetchFailed)
    assert psutil.Process().memory_info().rss - before < 60 << 20


async def test_the_callers_count_hears_of_every_piece(net: Net) -> None:
    net.site.pages["/endless"] = _endless
    heard: list[int] = []

    def take(size: int) -> None:
        heard.append(size)
        if sum(heard) > 200_000:
            raise ImageTooLarge("enough", param=WHERE)

    with pytest.raises(ImageTooLarge, match="enough"):
        await net.fetcher().get(net.url("/endless"), WHERE, 1 << 30, take)


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate, gzip", "GZIP"])
async def test_compressed_answers_are_not_opened(net: Net, encoding: str) -> None:
    bomb = gzip.compress(b"\0" * 10_000_000)
    net.site.pages["/x"] = answer(bomb, content_encoding=encoding)
    await net.refused(net.url("/x"), ImageFetchFailed)


async def test_connections_to_one_host_are_bounded(net: Net) -> None:
    async def slowly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        writer.write(answer(PNG))
        await writer.drain()

    net.site.pages["/slow"] = slowly
    fetcher = net.fetcher(url_connections_per_host=3)
    got = await asyncio.gather(*(fetcher.get(net.url("/slow"), WHERE, 1 << 20) for _ in range(12)))
    assert got == [PNG] * 12
    assert net.site.most_at_once <= 3


async def test_a_fetch_that_is_given_up_leaves_nothing_running(net: Net) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(1)
        gone.set()

    gone = asyncio.Event()
    net.site.pages["/silent"] = silent
    task = asyncio.ensure_future(net.get(net.url("/silent")))
    while not net.site.seen:
        await asyncio.sleep(0.01)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await asyncio.wait_for(gone.wait(), 5)


@pytest.mark.parametrize("text", ["https://a/x", " HTTP://a", "https:", "\nhttps://x"])
def test_what_is_taken_for_a_url(text: str) -> None:
    assert fetch.is_url(text)


@pytest.mark.parametrize("text", ["data:image/png;base64,https://", "httpsAAAA", "file:///x", "aHR0cHM6Ly8=", ""])
def test_what_is_not(text: str) -> None:
    assert not fetch.is_url(text)


async def test_the_systems_resolver_is_asked_for_names() -> None:
    assert "127.0.0.1" in await fetch.resolve("localhost", 443)
