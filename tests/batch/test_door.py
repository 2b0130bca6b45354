"""What an answer of the service means for the item that was asked about."""

from __future__ import annotations

import json
from typing import Any

import pytest

from twinlens.batch.door import Answer, Busy, Closed, Refused, Trouble, verdict


def error(code: str, message: str = "So.", **more: Any) -> bytes:
    return json.dumps({"error": {"code": code, "message": message}, **more}).encode()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_image", Refused),
        (413, "image_too_large", Refused),
        (422, "pdf_encrypted", Refused),
        (502, "invalid_answer", Refused),
        (502, "output_truncated", Refused),
        (429, "rate_limited", Busy),
        (408, "slow", Busy),
        (503, "overloaded", Busy),
        (503, "engine_unavailable", Trouble),
        (500, "internal_error", Trouble),
        (504, "timeout", Trouble),
        (401, "invalid_key", Closed),
        (403, "forbidden", Closed),
        (404, "task_not_found", Closed),
    ],
)
def test_statuses(status: int, code: str, kind: type) -> None:
    found = verdict(status, error(code), None)
    assert type(found) is kind
    assert not isinstance(found, Answer)
    assert (found.failure.code, found.failure.message) == (code, "So.")


def test_what_the_model_wrote_is_kept_with_the_failure() -> None:
    found = verdict(502, error("invalid_answer", twinlens={"raw_answer": "{nonsense"}), None)
    assert isinstance(found, Refused)
    assert found.failure.raw == "{nonsense"


def test_retry_after_is_waited_for() -> None:
    found = verdict(429, error("rate_limited"), 17.0)
    assert isinstance(found, Busy)
    assert found.wait_s == 17.0


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"null", b'{"error": null}', b'{"error": "text"}', b'{"error": {"code": 1}}', b"\xff\xfe"],
)
@pytest.mark.parametrize("status", [400, 429, 500, 418])
def test_bodies_of_other_servers_are_no_crash(status: int, body: bytes) -> None:
    found = verdict(status, body, None)
    assert not isinstance(found, Answer)
    assert str(status) in found.failure.code


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"[]",
        b'{"object": "chat.completion"}',
        b'{"object": "task.result"}',
        b'{"object": 1, "result": 2}',
    ],
)
def test_a_200_that_is_no_answer_is_trouble_and_not_an_empty_record(body: bytes) -> None:
    assert isinstance(verdict(200, body, None), Trouble)


def test_an_answer_without_its_usage_or_version_is_trouble() -> None:
    said = {"object": "task.result", "result": "x", "finish_reason": "stop"}
    assert isinstance(verdict(200, json.dumps(said).encode(), None), Trouble)


def test_a_cut_answer_is_a_failure_with_what_there_is() -> None:
    said = {"object": "task.result", "result": "one two", "finish_reason": "length", "usage": {}, "version": "1"}
    found = verdict(200, json.dumps(said).encode(), None)
    assert isinstance(found, Refused)
    assert (found.failure.code, found.failure.raw) == ("output_truncated", "one two")


def test_a_page_that_was_asked_by_itself_is_no_list() -> None:
    said = {"object": "task.result", "finish_reason": "stop", "usage": {}, "version": "1"}
    found = verdict(200, json.dumps(said | {"result": [{"a": 1}], "pages": [{"page": 3}]}).encode(), None)
    assert isinstance(found, Answer)
    assert found.said["result"] == {"a": 1}
    found = verdict(200, json.dumps(said | {"result": [{"a": 1}]}).encode(), None)
    assert isinstance(found, Answer)
    assert found.said["result"] == [{"a": 1}]
    more = {"pages": [{"page": 3, "raw_answer": "{nonsense"}]}
    failed = verdict(502, error("invalid_answer", twinlens=more), None)
    assert isinstance(failed, Refused)
    assert failed.failure.raw == "{nonsense"
