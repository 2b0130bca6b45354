"""The plain gateway that the field usually writes: a FastAPI route, Pillow and `requests`.

It has an environment of its own (requirements-plain.txt) and imports nothing of ours. In its favour: the route is no
coroutine, so FastAPI runs it in threads and a slow request does not stop the others.
"""

# mypy: ignore-errors
# (its libraries are in an environment of its own)

from __future__ import annotations

import base64
import io
import os
from typing import Any

import requests
from fastapi import FastAPI, HTTPException
from PIL import Image
from pydantic import BaseModel

ENGINE = os.environ["ENGINE_URL"] + "/v1/chat/completions"

app = FastAPI()


class ChatRequest(BaseModel):
    """OpenAI's chat completion, as far as such a gateway looks at it."""

    model: str
    messages: list[dict[str, Any]]
    max_tokens: int = 512
    temperature: float = 0.0


@app.post("/v1/chat/completions")
def chat(request: ChatRequest) -> Any:
    """Check every picture by decoding it, send it on as a fresh JPEG, hand the answer back."""
    for message in request.messages:
        content = message["content"]
        for part in content if isinstance(content, list) else []:
            if part["type"] == "image_url":
                part["image_url"]["url"] = normalized(part["image_url"]["url"])
    response = requests.post(ENGINE, json=request.model_dump(), timeout=300)
    if not response.ok:
        raise HTTPException(response.status_code, response.text)
    return response.json()


@app.get("/health")
def health() -> dict[str, str]:
    """Up."""
    return {"status": "ok"}


def normalized(url: str) -> str:
    """An RGB JPEG of the same picture as a data URI."""
    try:
        image = Image.open(io.BytesIO(base64.b64decode(url.split(",", 1)[1]))).convert("RGB")
    except Exception as error:
        raise HTTPException(400, "invalid image") from error
    file = io.BytesIO()
    image.save(file, "JPEG")
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
