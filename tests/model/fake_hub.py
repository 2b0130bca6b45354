"""A hub on loopback that answers what the clients of Hugging Face and ModelScope ask when they download a snapshot."""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub(ThreadingHTTPServer):
    """Serves folders as repositories. `asked` lists what came; the sets say how to misbehave."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, Path] = {}
        self.gated: set[str] = set()
        self.hidden: set[str] = set()  # names of files that are listed and not there
        self.broken = False  # every answer is a 500
        self.asked: list[str] = []
        self.tokens: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def files(self, repo: str) -> dict[str, bytes]:
        folder = self.repos[repo]
        return {
            str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
        }


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Silent."""

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        self.server.asked.append(path)
        self.server.tokens.add(self.headers.get("Authorization"))
        if self.server.broken:
            self._send(500, b"")
        elif path.startswith("/api/models/"):
            self._hugging_face(path.removeprefix("/api/models/").split("/"))
        elif path.startswith("/api/v1/models/"):
            self._model_scope(path.removeprefix("/api/v1/models/").split("/"), parse_qs(parts.query))
        elif "/resolve/" in path:
            repo, _, rest = path.removeprefix("/models/").strip("/").partition("/resolve/")
            self._file(repo, rest.split("/", 1)[1])
        else:
            self._send(404, b"")

    def _hugging_face(self, way: list[str]) -> None:
        repo, rest = "/".join(way[:2]), way[2:]
        if repo not in self.server.repos:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif repo in self.server.gated:
            self._send(403, b"{}", {"X-Error-Code": "GatedRepo"})
        elif rest[:1] == ["revision"] and rest[1] in ("main", "v2", COMMIT):
            self._json({"id": repo, "sha": COMMIT, "siblings": [], "private": False})
        elif rest[:1] == ["tree"]:
            self._json([_entry(name, data) for name, data in self.server.files(repo).items()])
        else:
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})

    def _model_scope(self, way: list[str], query: dict[str, list[str]]) -> None:
        repo = "/".join(way[:2])
        if repo not in self.server.repos or query.get("Revision", ["master"])[0] not in ("master", "v2"):
            self._json({"Code": 10010205001, "Message": "not found", "Success": False}, status=404)
        elif way[2:] == ["repo", "files"]:
            files = [_blob(name, data) for name, data in self.server.files(repo).items()]
            self._json({"Code": 200, "Success": True, "Data": {"Files": files}})
        elif way[2:] == ["repo"]:
            self._file(repo, query["FilePath"][0])
        else:
            self._json({"Code": 200, "Success": True, "Data": {}})

    def _file(self, repo: str, name: str) -> None:
        files = self.server.files(repo) if repo in self.server.repos else {}
        if name not in files or name in self.server.hidden:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        data = files[name]
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
        head = {"ETag": f'"{_digest(data)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if start:
            head["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._send(206 if start else 200, data[start:], head)

    def _json(self, value: object, status: int = 200) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, head: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (head or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _digest(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def _entry(name: str, data: bytes) -> dict[str, object]:
    return {"type": "file", "oid": _digest(data), "size": len(data), "path": name}


def _blob(name: str, data: bytes) -> dict[str, object]:
    sha = hashlib.sha256(data).hexdigest()
    return {
        "Path": name,
        "Name": name.rsplit("/", 1)[-1],
        "Type": "blob",
        "Size": len(data),
        "Sha256": sha,
        "Revision": COMMIT,
    }


@contextmanager
def running() -> Iterator[FakeHub]:
    """A hub that answers until the block ends."""
    hub = FakeHub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
