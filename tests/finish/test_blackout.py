"""What is hidden in the answer is black in the picture that is kept, or there is no such picture."""

from __future__ import annotations

import numpy as np
import pytest

from tests.media import pdfs
from twinlens.core import AnswerFormat
from twinlens.errors import FinishError
from twinlens.finish.blackout import blacked_out, boxes_of, without
from twinlens.finish.redact import Redact
from twinlens.finish.seam import About, Frame
from twinlens.media.documents import Documents
from twinlens.settings import Settings

PLAN = Redact({}, About(AnswerFormat("json_object")))
FRAME = Frame((100, 200), (56, 112))
WHITE = np.full((100, 200, 3), 255, np.uint8)


def test_hidden_fields_are_black_and_nothing_else() -> None:
    value = {
        "phone": "13812345678",
        "phone_box": [100, 100, 300, 200],
        "total": 5,
        "total_box": [0, 900, 100, 1000],
        "lines": [{"text": "id 11010519491231002X", "box": [500, 500, 900, 600]}, {"text": "x", "box": [0, 0, 50, 50]}],
    }
    done = without(WHITE, value, PLAN, FRAME, "thousandths")
    assert (done[10:20, 20:60] == 0).all()
    assert (done[50:60, 100:180] == 0).all()
    assert (done[90:, :20] == 255).all()
    assert (done[:5, :10] == 255).all()
    assert 0.08 < (done == 0).mean() < 0.12
    assert (WHITE == 255).all()
    seen = without(WHITE, {"phone": "1", "box": [11, 5, 33, 12]}, PLAN, FRAME, "seen")
    assert (seen[9:21, 20:58] == 0).all()


def test_a_hidden_field_without_a_box_is_an_error() -> None:
    with pytest.raises(FinishError, match="1 hidden fields"):
        without(WHITE, {"name": "Ada", "phone": "1", "phone_box": [1, 2, 3, 4]}, PLAN, FRAME, "thousandths")
    with pytest.raises(FinishError, match="size"):
        without(WHITE[:50], {}, PLAN, FRAME, "thousandths")


def test_boxes_of_things_around_and_those_that_are_none() -> None:
    value = {"person": {"name": {"first": "Ada"}}, "person_box": [1, 2, 3, 4], "x": {"phone": "1", "phone_box": [1, 2]}}
    found, unplaced = boxes_of(value, [("person", "name", "first"), ("x", "phone")])
    assert found == [(1, 2, 3, 4)]
    assert unplaced == [("x", "phone")]


def test_boxes_reach_every_pixel_they_touch_and_no_further_than_the_picture() -> None:
    done = blacked_out(WHITE, [(-10, 95.5, 1000, 99.2), (10.6, 10.6, 10.9, 10.9)])
    assert (done[95:] == 0).all()
    assert (done[10, 10] == 0).all()
    assert (done[20:90] == 255).all()


@pytest.mark.parametrize("rotate", [0, 90])
def test_a_page_of_a_pdf_is_kept_without_what_is_hidden(rotate: int) -> None:
    data = pdfs.document([b"", pdfs.square(100, 500, 150)], page=b"/Rotate %d" % rotate)
    with Documents(Settings(page_dpi=100)) as documents:
        pixels = np.asarray(documents.page(data, 2, "a.pdf"))
    rows, columns = np.nonzero(pixels[:, :, 0] < 128)
    height, width = pixels.shape[:2]
    box = [columns.min() / width, rows.min() / height, (columns.max() + 1) / width, (rows.max() + 1) / height]
    white = np.full_like(pixels, 255)
    value = {"phone": "13812345678", "phone_box": [float(1000 * side) for side in box]}
    done = without(white, value, PLAN, Frame((height, width), (56, 56)), "thousandths")
    assert (done[rows, columns] == 0).all()
    assert 0.02 < (done == 0).mean() < 0.2
