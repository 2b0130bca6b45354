"""From what was looked at to what is asked: a document stands in the question as its pages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from twinlens.core import ImagePart, TextPart
from twinlens.errors import TooManyPages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinlens.core import Message, Part, Request, Sight


def questions(request: Request, sights: tuple[Sight, ...]) -> Iterator[tuple[Request, tuple[Sight, ...]]]:
    """What is asked, each with its pictures: one question, or one for each page where the request wants that.

    Raises TooManyPages where pages are to be asked one by one and other pictures stand beside their document.
    """
    if not request.each_page or len(sights) == len(request.images):
        yield spread(request, sights), sights
        return
    if len(request.images) > 1:
        several = next(sight for sight in sights if sight.page)
        raise TooManyPages(
            f"{several.where} has several pages, which are asked one by one; other pictures cannot stand beside it.",
            param=several.where,
            cure="Send the document alone, or choose one page with “pages”.",
        )
    for sight in sights:
        yield spread(request, (sight,)), (sight,)


def alone(question: Request) -> bool:
    """Whether a question is about one page of a document, and gives one of several answers.

    So it is with the only page of a PDF too: the form of an answer must not hang on how many pages a client has.
    """
    return question.each_page and len(question.images) == 1


def spread(request: Request, sights: tuple[Sight, ...]) -> Request:
    """The request with a picture for each sight where its document stood, and behind it the text of the page."""
    if len(sights) == len(request.images) and not any(sight.page and sight.page.text for sight in sights):
        return request
    return replace(
        request,
        messages=tuple(_turn(turn, sights) for turn in request.messages),
        images=tuple(request.images[sight.ref] for sight in sights),
    )


def _turn(turn: Message, sights: Sequence[Sight]) -> Message:
    parts: list[Part] = []
    for part in turn.parts:
        if isinstance(part, ImagePart):
            for index, sight in enumerate(sights):
                if sight.ref == part.index:
                    parts += _page(index, sight)
        else:
            parts.append(part)
    return replace(turn, parts=tuple(parts))


def _page(index: int, sight: Sight) -> list[Part]:
    picture = ImagePart(index)
    text = sight.page.text.strip() if sight.page else ""
    if sight.page is None or not text:
        return [picture]
    return [picture, TextPart(f"\n[Text of page {sight.page.number}]\n{text}\n")]
