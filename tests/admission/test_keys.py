"""The keys file and the ring: what is kept, what is refused, and what a broken file changes (nothing)."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.admission import keyfile
from twinlens.admission.keys import Ring, checked, ring_of
from twinlens.errors import SettingsError
from twinlens.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from twinlens.admission.keyfile import Scope


def add(path: Path, tenant: str, *scopes: Scope, expires: datetime | None = None) -> str:
    """A new key in the file."""
    key, record = keyfile.made(tenant, scopes or ("chat",), expires=expires)
    with keyfile.changing(path) as records:
        records.append(record)
    return key


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some" / "keys.jsonl"


def test_a_key_is_found_by_its_text_and_nothing_of_it_is_kept(path: Path) -> None:
    key = add(path, "lab", "chat", "admin")
    other = add(path, "shop", "batch")
    ring = Ring((), path)
    lab, shop = ring.find(key), ring.find(other)
    assert lab
    assert shop
    assert (lab.tenant, sorted(lab.scopes)) == ("lab", ["admin", "chat"])
    assert (shop.tenant, sorted(shop.scopes)) == ("shop", ["batch"])
    text = path.read_text()
    assert key.split("-", 2)[2] not in text
    assert path.stat().st_mode & 0o777 == 0o600
    swapped = f"tl-{keyfile.id_of(other)}-{key.split('-', 2)[2]}"
    for wrong in ("", "x", key[:-1], key + "x", key.upper(), swapped, keyfile.digest(key)):
        assert ring.find(wrong) is None


def test_several_keys_of_a_tenant_are_added_and_revoked_while_it_runs(path: Path) -> None:
    first = add(path, "lab")
    ring = Ring((), path)
    second = add(path, "lab")
    assert ring.find(second) is None
    ring.reread()
    assert ring.find(first)
    assert ring.find(second)
    with keyfile.changing(path) as records:
        records[:] = [record for record in records if record.id != keyfile.id_of(first)]
    ring.reread()
    assert ring.find(first) is None
    assert ring.find(second)


def test_a_key_ends_with_its_time(path: Path) -> None:
    key = add(path, "lab", expires=datetime.now(UTC) + timedelta(seconds=0.3))
    ring = Ring((), path)
    assert ring.find(key)
    time.sleep(0.35)
    assert ring.find(key) is None


@pytest.mark.parametrize("damage", ["half", "line", "field", "zone", "twice", "mode", "gone"])
def test_a_broken_file_keeps_the_last_good_keys_and_says_so(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = add(path, "lab")
    ring = Ring((), path)
    good = path.read_bytes()
    if damage == "mode":
        path.chmod(0o644)
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes(
            {
                "half": good[: len(good) // 2],
                "line": good + b"nonsense\n",
                "field": good.replace(b'"sha256":"', b'"sha256":"zz'),
                "zone": good.replace(b"}", b',"expires":"2030-01-01T00:00:00"}'),
                "twice": good + good,
            }[damage]
        )
    for _ in range(3):
        ring.reread()
    assert ring.configured
    assert ring.find(key)
    assert ring.trouble
    assert len([entry for entry in caplog.records if "stay in force" in entry.message]) == 1
    if damage != "gone":
        with pytest.raises(SettingsError) as refused:
            checked(Settings(keys_file=str(path)))
        assert str(path) in refused.value.message
    path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_bytes(good)
    ring.reread()
    assert not ring.trouble


def test_a_worker_that_starts_beside_a_broken_file_lets_nobody_in(path: Path) -> None:
    key = add(path, "lab")
    path.write_bytes(path.read_bytes()[:-10])
    ring = ring_of(Settings(keys_file=str(path)))
    assert ring.configured
    assert ring.find(key) is None


def test_a_file_that_is_named_has_to_exist(path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no"):
        checked(Settings(keys_file=str(path)))
    assert ring_of(Settings(keys_file=str(path))).configured


def test_without_any_keys_none_are_needed_until_there_are(path: Path) -> None:
    ring = Ring((), path)
    before = ring.configured
    key = add(path, "lab")
    ring.reread()
    assert (before, ring.configured) == (False, True)
    assert ring.find(key)


def test_keys_of_the_settings_may_do_everything_and_are_tenants_of_their_own() -> None:
    ring = Ring(("one", "two"), None)
    one, two = ring.find("one"), ring.find("two")
    assert one
    assert two
    assert sorted(one.scopes) == ["admin", "batch", "chat"]
    assert one.tenant != two.tenant
    assert "one" not in one.tenant
    assert ring.find("three") is None


@pytest.mark.parametrize("tenant", ["", "a b", "../x", "a" * 65, "-a", "a\n"])
def test_a_tenants_name_is_a_name(tenant: str) -> None:
    with pytest.raises(SettingsError):
        keyfile.made(tenant, ("chat",))


@given(st.binary(max_size=400))
def test_no_file_is_read_as_keys_by_accident(data: bytes) -> None:
    import tempfile  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys"
        path.touch(0o600)
        path.write_bytes(data)
        try:
            assert keyfile.read(path) == () or b"sha256" in data
        except SettingsError as error:
            assert error.message


def test_a_service_has_a_key_of_its_own_that_is_no_tenants(path: Path) -> None:
    key = add(path, "lab")
    ring = Ring((), path, own=keyfile.digest("secret of this run"))
    ours = ring.find("secret of this run")
    assert ours
    assert sorted(ours.scopes) == ["chat"]
    assert not keyfile.TENANT.fullmatch(ours.tenant)
    assert ring.find(key)
    for wrong in ("", "0" * 64, keyfile.digest("secret of this run")):
        assert ring.find(wrong) is None
        assert Ring((), path).find(wrong) is None


@pytest.mark.parametrize("wrong", ['"requests":-1', '"requests":"x"', '"burst":1.5', '"priority":"high"'])
def test_limits_of_a_key_have_their_form(path: Path, wrong: str) -> None:
    add(path, "lab")
    good = path.read_text()
    path.write_text(good.replace("}", f",{wrong}}}"))
    with pytest.raises(SettingsError, match=r"[Ll]ine 1"):
        keyfile.read(path)
    path.write_text(good.replace("}", ',"requests":5,"vision_tokens":0,"priority":"low"}'))
    (record,) = keyfile.read(path)
    assert (record.limits.requests, record.limits.burst, record.limits.vision_tokens) == (5, None, 0)
    assert record.bulk
    assert not record.batch
