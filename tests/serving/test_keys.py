"""Keys and scopes through the front door: 401 for a key that is not known, 403 for one that may not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.serving.harness import serving, until
from twinlens.admission import keyfile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.serving.harness import Service
    from twinlens.admission.keyfile import Scope

CHAT = "/v1/chat/completions"
BODY = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}


def new_key(folder: Path, tenant: str, *scopes: Scope) -> str:
    """A key in the keys file of the service whose folder this is."""
    key, record = keyfile.made(tenant, scopes)
    with keyfile.changing(folder / "data" / keyfile.NAME) as records:
        records.append(record)
    return key


def bearer(key: str) -> dict[str, str]:
    """The header."""
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with a keys file, and a key for each scope."""
    folder = tmp_path_factory.mktemp("keyed")
    return folder, {scope: new_key(folder, f"tenant-{scope}", scope) for scope in keyfile.SCOPES}


@pytest.fixture(scope="module", params=["1", "4"], ids=["1 worker", "4 workers"])
def open_to_others(
    keys: tuple[Path, dict[str, str]], request: pytest.FixtureRequest
) -> Iterator[tuple[Service, dict[str, str]]]:
    """A service on an address that other machines reach (it is called from this one only)."""
    with serving("--host", "0.0.0.0", "--workers", request.param, folder=keys[0]) as running:
        yield running, keys[1]


def code(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_scopes_decide_what_a_key_may_do(open_to_others: tuple[Service, dict[str, str]]) -> None:
    service, keys = open_to_others
    for scope, status in (("chat", 200), ("batch", 200), ("admin", 403)):
        assert service.http.post(CHAT, json=BODY, headers=bearer(keys[scope])).status_code == status
        assert service.http.get("/v1/models", headers=bearer(keys[scope])).status_code == 200
    for path in ("/metrics", "/docs", "/openapi.json"):
        assert code(service.http.get(path)) == (401, "invalid_api_key")
        assert code(service.http.get(path, headers=bearer(keys["chat"]))) == (403, "insufficient_scope")
        assert service.http.get(path, headers=bearer(keys["admin"])).status_code == 200
    assert code(service.http.post(CHAT, json=BODY)) == (401, "invalid_api_key")
    assert service.http.post(CHAT, json=BODY, headers=bearer("tl-0-x")).headers["www-authenticate"] == "Bearer"


def test_only_operators_see_details_of_readiness_from_elsewhere(
    open_to_others: tuple[Service, dict[str, str]],
) -> None:
    service, keys = open_to_others
    assert service.http.get("/livez").status_code == 200
    for headers in ({}, bearer(keys["chat"]), bearer("wrong")):
        response = service.http.get("/readyz", headers=headers)
        assert response.status_code == 200
        assert set(response.json()) <= {"ready", "engine", "draining", "reason"}
        assert not response.json().get("reason")


@pytest.mark.slow
def test_keys_change_without_a_restart(tmp_path: Path) -> None:
    new_key(tmp_path, "first", "chat")
    with serving("--workers", "2", folder=tmp_path) as service:
        key = new_key(tmp_path, "late", "chat")

        def statuses() -> set[int]:
            return {service.http.post(CHAT, json=BODY, headers=bearer(key)).status_code for _ in range(6)}

        until(lambda: statuses() <= {200, 429}, 10)
        file = tmp_path / "data" / keyfile.NAME
        good = file.read_bytes()
        file.write_bytes(good[:-30])
        until(lambda: "stay in force" in service.log(), 10)
        assert statuses() <= {200, 429}
        file.write_bytes(good)
        with keyfile.changing(file) as records:
            records[:] = [record for record in records if record.id != keyfile.id_of(key)]
        until(lambda: statuses() == {401}, 10)
        assert key not in service.log()


@pytest.mark.slow
def test_a_page_of_another_origin_calls_with_a_key(tmp_path: Path) -> None:
    key = new_key(tmp_path, "page", "chat")
    with serving("--cors-origins", "https://a.example", folder=tmp_path) as service:
        ask = {
            "origin": "https://a.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        }
        allowed = service.http.options(CHAT, headers=ask)
        assert allowed.status_code == 200
        assert "authorization" in allowed.headers["access-control-allow-headers"].lower()
        origin = {"origin": "https://a.example"}
        assert service.http.post(CHAT, json=BODY, headers=origin | bearer(key)).status_code == 200
        refused = service.http.post(CHAT, json=BODY, headers=origin)
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "https://a.example"
