"""`twinlens keys`: made, listed, revoked; the key is shown once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from twinlens.admission import keyfile
from twinlens.cli.keys import when
from twinlens.cli.main import main
from twinlens.errors import OperatorError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_key_is_made_listed_and_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--keys-file", str(tmp_path / "keys")]
    assert main(["keys", "list", *at]) == 0
    assert "no keys file" in capsys.readouterr().out
    new = ["keys", "new", "--tenant", "lab", "--scope", "chat", "--scope", "batch", "--expires", "90d", *at]
    assert main(new) == 0
    key = capsys.readouterr().out.strip()
    (record,) = keyfile.read(tmp_path / "keys")
    assert (record.tenant, record.scopes, record.sha256) == ("lab", ("chat", "batch"), keyfile.digest(key))
    assert main(["keys", "list", *at]) == 0
    shown = capsys.readouterr().out
    assert keyfile.id_of(key) in shown
    assert key not in shown
    assert main(["keys", "revoke", keyfile.id_of(key), *at]) == 0
    assert keyfile.read(tmp_path / "keys") == ()
    assert main(["keys", "revoke", keyfile.id_of(key), *at]) == 2
    assert main(["keys", "new", *at]) == 2
    assert main(["keys", "new", "--tenant", "../x", *at]) == 2


def test_limits_of_a_key_are_given_changed_and_taken_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--keys-file", str(tmp_path / "keys")]
    assert main(["keys", "new", "--tenant", "lab", "--requests", "600", "--priority", "low", *at]) == 0
    number = keyfile.id_of(capsys.readouterr().out.strip())
    (record,) = keyfile.read(tmp_path / "keys")
    assert (record.requests, record.burst, record.priority, record.bulk, record.batch) == (
        600,
        None,
        "low",
        True,
        False,
    )
    assert main(["keys", "change", number, "--requests", "default", "--text-tokens", "0", *at]) == 0
    (record,) = keyfile.read(tmp_path / "keys")
    assert (record.requests, record.text_tokens, record.priority) == (None, 0, "low")
    assert main(["keys", "list", *at]) == 0
    assert "text_tokens=0 priority=low" in capsys.readouterr().out
    for wrong in (["change", number], ["change", "--requests", "1"], ["change", "0" * 10, "--requests", "1"]):
        assert main(["keys", *wrong, *at]) == 2
    for value in ("-1", "many", "1.5", "9999999999"):
        assert main(["keys", "change", number, f"--requests={value}", *at]) == 2
    assert keyfile.read(tmp_path / "keys") == (record,)


def test_ops_21_times_have_a_zone_and_lie_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    for zone in ("Asia/Tokyo", "America/Los_Angeles"):
        monkeypatch.setenv("TZ", zone)
        assert abs(when("12h") - datetime.now(UTC) - timedelta(hours=12)) < timedelta(seconds=5)
        assert when("2090-01-01T09:00:00+09:00") == datetime(2090, 1, 1, tzinfo=UTC)
        for wrong in ("2090-01-01", "2090-01-01T00:00:00", "2001-01-01T00:00:00Z", "soon", "12", "-1d"):
            with pytest.raises(OperatorError):
                when(wrong)
