"""The question that shows an engine to be ready: a picture and one token of answer, on the way that requests take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from twinlens.core import Image, ImagePart, ImageRef, Message, Request, Sampling, TextPart
from twinlens.engines.client import EngineClient
from twinlens.errors import EngineUnavailable, TwinlensError
from twinlens.settings import store_dir
from twinlens.store import Store
from twinlens.store.keys import pixels_key

if TYPE_CHECKING:
    from twinlens.engines.wire import Health
    from twinlens.model.checkpoint import Checkpoint
    from twinlens.supervisor.plan import Plan

WHERE = "probe"
SIDE = 56  # pixels; the model's own rule has the last word
GREY = 128
MOST_NAMES = 5  # of an engine's models that are told
MOST_NAME = 200
IDLE_S = 120.0  # silence that a trial answer may have; the start's own limit ends it in any case


class Probe:
    """Asks one engine. `health` raises EngineUnavailable, `inference` any refusal of the engine's."""

    def __init__(self, client: EngineClient, store: Store, model: Checkpoint) -> None:
        self._client = client
        self._store = store
        rule = model.rule
        size = rule.target(SIDE, SIDE)
        key = pixels_key(b"\0" * 32, part=WHERE, recipe=WHERE, size=size)
        self._image = Image(where=WHERE, key=key, size=size, grid=rule.grid(*size), tokens=rule.tokens(*size), hit=True)
        self._request = Request(
            id=WHERE,
            model=model.name,
            messages=(Message("user", (ImagePart(0), TextPart("Colour?"))),),
            images=(ImageRef(WHERE, ""),),
            sampling=Sampling(max_tokens=1, temperature=0.0),
        )

    async def health(self) -> Health:
        """How the engine is."""
        return await self._client.health()

    async def inference(self) -> None:
        """One real, tiny answer, to its end."""
        with self._store.lease() as lease:
            if not self._store.has(self._image.key, lease):
                shape = (*self._image.size, 3)
                with self._store.create(self._image.key, "pixels", np.uint8, shape, lease) as pixels:
                    pixels[...] = GREY
            try:
                pieces = [piece async for piece in self._client.generate(self._request, [self._image])]
            except EngineUnavailable:
                raise
            except TwinlensError as error:
                await self._see_names(error)
                raise
        if not pieces or pieces[-1].usage is None:
            raise EngineUnavailable("The engine's trial answer has no end.")

    async def _see_names(self, refused: TwinlensError) -> None:
        """Raises EngineUnavailable when the engine refused because it knows the model by another name."""
        names = await self._client.names()
        if names and self._request.model not in names:
            known = ", ".join(name[:MOST_NAME] for name in names[:MOST_NAMES])
            raise EngineUnavailable(
                f"The engine serves {known}, and was asked for {self._request.model}: start with "
                f"--served-name {names[0][:MOST_NAME]}."
            ) from refused

    async def close(self) -> None:
        """Close the connections and give back the store's room."""
        await self._client.close()
        self._store.close()


def probe_of(plan: Plan) -> Probe:
    """The probe of a planned service."""
    root = store_dir(plan.settings)
    client = EngineClient(plan.engine, model=plan.model.name, pool=4, idle_timeout_s=IDLE_S, store=root)
    return Probe(client, Store(root, plan.settings.store_bytes), plan.model)
