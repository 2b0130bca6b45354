"""The OpenAPI document, made from the wire structures, and a page that shows it with nothing from outside."""

from __future__ import annotations

import html
import json
from functools import cache
from typing import Any

import msgspec

from twinlens import __version__
from twinlens.gateway import wire, wire_responses

_STRUCTS = (
    wire.ChatBody,
    wire.TextPartBody,
    wire.ImagePartBody,
    wire.FilePartBody,
    wire_responses.ResponsesBody,
    wire_responses.InputMessage,
    wire_responses.InputText,
    wire_responses.OutputText,
    wire_responses.InputImage,
    wire_responses.InputFile,
    wire_responses.ResponseObject,
    wire_responses.ResponseEvent,
    wire.InferenceBody,
    wire.ChatAnswer,
    wire.Chunk,
    wire.InferenceAnswer,
    wire.TaskBody,
    wire.TaskAnswer,
    wire.TaskDelta,
    wire.TaskPage,
    wire.TaskList,
    wire.ModelList,
    wire.ModelBody,
    wire.FileObject,
    wire.FileList,
    wire.FileDeleted,
    wire.Readiness,
    wire.ErrorBody,
)

_EXAMPLE = """curl {base}/v1/chat/completions -H 'Content-Type: application/json' -d '{{
  "model": {model},
  "messages": [{{"role": "user", "content": [
    {{"type": "image_url", "image_url": {{"url": "data:image/jpeg;base64,..."}}}},
    {{"type": "text", "text": "What is the total?"}}]}}]
}}'"""


_HERE = "<!-- example -->"


@cache
def document() -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    _, components = msgspec.json.schema_components(_STRUCTS, ref_template="#/components/schemas/{name}")
    parts = components["MessageBody"]["properties"]["content"]["anyOf"]
    for branch in parts:
        if branch.get("type") == "array":
            branch["items"] = {"anyOf": [_ref("TextPartBody"), _ref("ImagePartBody"), _ref("FilePartBody")]}
    for branch in components["InputMessage"]["properties"]["content"]["anyOf"]:
        if branch.get("type") == "array":
            names = ("InputText", "InputImage", "InputFile", "OutputText")
            branch["items"] = {"anyOf": [_ref(name) for name in names]}
    for branch in components["ResponsesBody"]["properties"]["input"]["anyOf"]:
        if branch.get("type") == "array":
            branch["items"] = _ref("InputMessage")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Twinlens",
            "version": __version__,
            "description": "Pictures and a prompt in; text or schema-valid JSON out. OpenAI's clients work unchanged.",
        },
        "paths": _paths(),
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": _ref(name)}}


def _answers(content: dict[str, Any], what: str) -> dict[str, Any]:
    return {
        "200": {"description": what, "content": content},
        "default": {"description": "An error; docs/errors.md lists the codes.", "content": _json("ErrorBody")},
    }


def _paths() -> dict[str, Any]:
    text = {"text/plain": {"schema": {"type": "string"}}}
    page_ = {"text/html": {"schema": {"type": "string"}}}
    stream = {"text/event-stream": {"schema": {"type": "string", "description": "Frames of Chunk, then [DONE]."}}}
    frames = {"type": "string", "description": "Frames of TaskDelta and TaskPage, then one of TaskAnswer, then [DONE]."}
    told = {"type": "string", "description": "Events of ResponseEvent, from response.created to its last."}
    events = {"text/event-stream": {"schema": told}}
    task_stream = {"text/event-stream": {"schema": frames}}
    body = {"required": True}
    not_ready = {"503": {"description": "It does not, or it is stopping.", "content": _json("Readiness")}}
    ready = _answers(_json("Readiness"), "The engine answers real inferences.") | not_ready
    return {
        "/v1/chat/completions": {
            "post": {
                "summary": "Answer a conversation with pictures.",
                "requestBody": body | {"content": _json("ChatBody")},
                "responses": _answers(_json("ChatAnswer") | stream, "The answer, or its stream."),
            }
        },
        "/v1/responses": {
            "post": {
                "summary": "The same in OpenAI's newer form; nothing is kept between two requests.",
                "requestBody": body | {"content": _json("ResponsesBody")},
                "responses": _answers(_json("ResponseObject") | events, "The answer, or its stream of events."),
            }
        },
        "/v1/inference": {
            "post": {
                "summary": "One picture, one prompt, one text.",
                "requestBody": body | {"content": _json("InferenceBody")},
                "responses": _answers(_json("InferenceAnswer"), "The answer."),
            }
        },
        "/v1/tasks/{name}": {
            "post": {
                "summary": "Ask a task: a prompt, a schema and finishing steps under a name.",
                "parameters": [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}],
                "requestBody": body | {"content": _json("TaskBody")},
                "responses": _answers(_json("TaskAnswer") | task_stream, "The finished result, or its stream."),
            }
        },
        "/v1/tasks": {
            "get": {"summary": "All tasks.", "responses": _answers(_json("TaskList"), "The tasks, by name.")}
        },
        "/v1/models": {
            "get": {
                "summary": "The served model, and the tasks as models.",
                "responses": _answers(_json("ModelList"), "The model comes first."),
            }
        },
        "/v1/models/{name}": {
            "get": {
                "summary": "One of them.",
                "parameters": [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}],
                "responses": _answers(_json("ModelBody"), "The model, or task."),
            }
        },
        **_file_paths(),
        "/livez": {"get": {"summary": "The process lives.", "responses": _answers(text, "It does.")}},
        "/readyz": {"get": {"summary": "Requests are answered.", "responses": ready}},
        "/metrics": {"get": {"summary": "Prometheus metrics.", "responses": _answers(text, "The metrics.")}},
        "/docs": {"get": {"summary": "This page.", "responses": _answers(page_, "The page.")}},
        "/openapi.json": {
            "get": {
                "summary": "This document.",
                "responses": _answers({"application/json": {"schema": {"type": "object"}}}, "The document."),
            }
        },
    }


def _file_paths() -> dict[str, Any]:
    name = {"name": "file_id", "in": "path", "required": True, "schema": {"type": "string"}}
    raw = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    listing = {
        "summary": "Your uploaded files.",
        "parameters": [
            _query("limit", {"type": "integer", "minimum": 1, "maximum": 10_000}),
            _query("order", {"type": "string", "enum": ["asc", "desc"]}),
            _query("after", {"type": "string"}),
            _query("purpose", _PURPOSE),
        ],
        "responses": _answers(_json("FileList"), "The files."),
    }
    upload = {
        "summary": "Upload a file that later requests name.",
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}},
        "responses": _answers(_json("FileObject"), "The file."),
    }
    return {
        "/v1/files": {"get": listing, "post": upload},
        "/v1/files/{file_id}": {
            "parameters": [name],
            "get": {"summary": "One uploaded file.", "responses": _answers(_json("FileObject"), "The file.")},
            "delete": {"summary": "Delete it.", "responses": _answers(_json("FileDeleted"), "It is gone.")},
        },
        "/v1/files/{file_id}/content": {
            "parameters": [name],
            "get": {"summary": "Its bytes as they came.", "responses": _answers(raw, "The bytes.")},
        },
    }


def _query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


_PURPOSE = {"type": "string", "enum": ["vision", "user_data"]}
_FORM = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": _PURPOSE,
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2_592_000},
    },
}


def page(base: str, model: str) -> str:
    """The routes as one HTML page, with a command for the service at `base` and the model of that name."""
    named = json.dumps(model, ensure_ascii=False).replace("'", r"'\''")  # in quotes of the shell
    example = html.escape(_EXAMPLE.format(base=base, model=named))
    return _page().replace(_HERE, example, 1)


@cache
def _page() -> str:
    whole = document()
    routes = "".join(
        _route(method, path, operation)
        for path, item in whole["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    )
    shapes = "".join(_shape(name, schema) for name, schema in sorted(whole["components"]["schemas"].items()))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Twinlens API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<style>:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;"
        "padding:0 1rem}code,pre{font-family:ui-monospace,monospace;font-size:.9em}pre{overflow:auto;padding:1rem;"
        "border:1px solid #8886;border-radius:.5rem}table{border-collapse:collapse;width:100%}td,th{text-align:left;"
        "vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid #8884}summary{cursor:pointer;padding:.3rem 0}"
        "</style>"
        f"<h1>Twinlens {html.escape(__version__)}</h1><p>{html.escape(whole['info']['description'])} "
        'The same as a document for programs: <a href="/openapi.json">/openapi.json</a>.</p>'
        f"<pre>{_HERE}</pre><h2>Routes</h2><table>{routes}</table><h2>Shapes</h2>{shapes}</html>"
    )


def _route(method: str, path: str, operation: dict[str, Any]) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    return (
        f"<tr><td><code>{method.upper()}</code></td><td><code>{html.escape(path)}</code></td>"
        f"<td>{html.escape(operation['summary'])}</td><td>{_kind(body) if body else ''}</td></tr>"
    )


def _shape(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = "".join(
        f"<tr><td><code>{html.escape(field)}</code>{' *' if field in required else ''}</td><td>{_kind(kind)}</td>"
        f"<td>{html.escape(kind.get('description', ''))}</td></tr>"
        for field, kind in schema.get("properties", {}).items()
    )
    about = html.escape(schema.get("description", ""))
    return f'<details id="{name}"><summary><code>{name}</code> {about}</summary><table>{rows}</table></details>'


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = html.escape(schema["$ref"].rsplit("/", 1)[1])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_kind(branch) for branch in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(html.escape(str(value)) for value in schema["enum"])
    kind = html.escape(str(schema.get("type", "anything")))
    bounds = " ".join(
        f"{key} {schema[key]}" for key in ("minimum", "maximum", "maxItems", "maxLength") if key in schema
    )
    inner = f" of {_kind(schema['items'])}" if schema.get("items") else ""
    return f"{kind}{inner}{' (' + html.escape(bounds) + ')' if bounds else ''}"
