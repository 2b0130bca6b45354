"""Boxes: there and back on every orientation and rotation, clipped, and never by a calibration that cannot be right."""

from __future__ import annotations

import contextlib
import json
import math
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from tests.media import pdfs
from twinlens.core import AnswerFormat
from twinlens.errors import FinishError, InvalidField, TaskError
from twinlens.finish import boxes
from twinlens.finish.boxes import Page
from twinlens.finish.calibration import Calibration, fit
from twinlens.finish.geometry import Geometry
from twinlens.finish.seam import About, Draft, Frame, Seen, Units
from twinlens.media.pdf import Paper, Reader
from twinlens.model.pictures import PictureRule

if TYPE_CHECKING:
    from collections.abc import Iterator

JSON = About(AnswerFormat("json_object"), "steps[0]", frozenset(("calibration",)))
SIDE = st.integers(8, 5000)
RULE = PictureRule(14, 2, 2, 3136, 28 * 28 * 1280)


def run(value: Any, frame: Frame, units: Units = "thousandths", variables: Any = None, **options: Any) -> Any:
    plan = Geometry({"boxes": ["/box"], **options}, JSON)
    step = plan.begin(Seen((frame,), units, variables or {}))
    return step.finish(Draft(json.dumps(value))).value, dict(step.changes())


@settings(max_examples=300, deadline=None)
@given(
    SIDE,
    SIDE,
    st.integers(1, 8),
    st.sampled_from(get_args(Units)),
    st.data(),
)
def test_what_the_model_wrote_comes_back_within_half_a_pixel(w: int, h: int, turn: int, units: Any, data: Any) -> None:
    if max(w, h) > 200 * min(w, h):
        return
    frame = Frame((h, w), RULE.target(h, w), turn)
    left, right = sorted((data.draw(st.floats(0, w)), data.draw(st.floats(0, w))))
    top, bottom = sorted((data.draw(st.floats(0, h)), data.draw(st.floats(0, h))))
    box = (left, top, right, bottom)
    assert near(boxes.upright(boxes.written(box, frame, units), frame, units), box, 1e-6)
    assert near(boxes.unstored(boxes.stored(box, frame), frame), box, 1e-6)
    whole: Any = tuple(round(part) for part in boxes.stored(box, frame))
    assert near(boxes.unstored(whole, frame), box, 0.5 + 1e-6)  # rounded to pixels of the file


def near(one: Any, other: Any, most: float) -> bool:
    return all(abs(a - b) <= most for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("turn", range(1, 9))
def test_img_01_img_24_the_stored_box_holds_the_pixels_that_pillow_turns_upright(turn: int) -> None:
    stored = np.zeros((30, 50, 3), np.uint8)
    stored[4:9, 11:30] = (255, 0, 0)
    image = Image.fromarray(stored)
    exif = image.getexif()
    exif[0x0112] = turn
    image.info["exif"] = exif.tobytes()
    upright = np.asarray(ImageOps.exif_transpose(image))
    rows, columns = np.nonzero(upright[:, :, 0])
    box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    frame = Frame(upright.shape[:2], (28, 28), turn)
    assert boxes.stored(box, frame) == (11, 4, 30, 9)
    assert boxes.unstored((11, 4, 30, 9), frame) == box


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([0, 90, 180, 270]),
    st.tuples(*[st.floats(-500, 500)] * 2),
    st.tuples(*[st.floats(20, 2000)] * 2),
    SIDE,
    st.data(),
)
def test_points_of_a_page_come_back_within_half_a_pixel(
    rotate: Any, corner: Any, size: Any, height: int, data: Any
) -> None:
    page = Page((corner[0], corner[1], corner[0] + size[0], corner[1] + size[1]), rotate)
    width = max(1, round(height * page.shown[0] / page.shown[1]))
    left, right = sorted((data.draw(st.floats(0, width)), data.draw(st.floats(0, width))))
    top, bottom = sorted((data.draw(st.floats(0, height)), data.draw(st.floats(0, height))))
    there = boxes.points((left, top, right, bottom), (height, width), page)
    assert near(boxes.rendered(there, (height, width), page), (left, top, right, bottom), 0.01)
    assert page.crop[0] - 1e-6 <= there[0] <= there[2] <= page.crop[2] + 1e-6
    assert page.crop[1] - 1e-6 <= there[1] <= there[3] <= page.crop[3] + 1e-6


@pytest.mark.parametrize(
    ("rotate", "wanted"),
    [(0, (10, 190, 20, 200)), (90, (10, 20, 20, 30)), (180, (100, 20, 110, 30)), (270, (100, 190, 110, 200))],
)
def test_the_left_upper_corner_of_a_rotated_page_is_where_pdf_says(rotate: Any, wanted: Any) -> None:
    page = Page((10, 20, 110, 200), rotate)
    width, height = page.shown
    assert boxes.points((0, 0, 10, 10), (int(height), int(width)), page) == pytest.approx(wanted)


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with contextlib.closing(Reader(30)) as found:
        yield found


def diamond(left: float, lower: float) -> bytes:
    """80 points wide and high. A square would be drawn on whole pixels; soft edges tell by weight where it lies."""
    corners = ((40, 0), (80, 40), (40, 80), (0, 40))
    lines = b" ".join(b"%g %g %b" % (left + x, lower + y, b"l" if x != 40 or y else b"m") for x, y in corners)
    return lines + b" h f"


def found(reader: Reader, paper: Paper, size: tuple[int, int]) -> tuple[float, float, float]:
    """Middle of the diamond and half its width, in pixels."""
    dark = 1 - reader.draw(paper, 1, size).result()[:, :, 0] / 255
    rows, columns = (np.arange(side) + 0.5 for side in size)
    x, y = (float(dark.sum(axis) @ middles / dark.sum()) for axis, middles in ((0, columns), (1, rows)))
    return x, y, math.sqrt(float(dark.sum()) / 2)


@pytest.mark.parametrize(
    ("media", "entry"),
    [
        ((0, 0, 400, 500), b"/CropBox[-100 50 900 900]"),  # beyond the page
        ((0, 0, 400, 500), b"/CropBox[350 450 20 30]"),  # the wrong way round
        ((400, 500, 0, 0), b""),
        ((10, 20, 400, 500), b"/UserUnit 3/Rotate 90"),
        ((0.5, 0.25, 400.75, 500.125), b"/CropBox[10.5 20.25 389.75 479.875]/Rotate 270"),
    ],
)
def test_pdf_05_boxes_that_files_have_and_should_not(reader: Reader, media: Any, entry: bytes) -> None:
    paper = Paper(pdfs.document([diamond(100, 200)], box=media, page=entry), "a.pdf")
    sheet = reader.page(paper, 1).result()
    size = sheet.pixels(110, 10**9)
    x, y, _ = found(reader, paper, size)
    there = boxes.points((x, y, x, y), size, Page(sheet.box, sheet.rotate))
    assert near(there, (140, 240, 140, 240), 0.5 * 72 / 110)


@pytest.mark.parametrize("inherited", [False, True])
@pytest.mark.parametrize("media", [(0, 0, 595, 842), (-300, -200, 295, 642), (1000, 50, 1400, 700)])
@pytest.mark.parametrize("rotate", [0, 90, 180, 270, -90, 450])
def test_pdf_05_what_is_drawn_lies_in_points_where_the_file_says(
    reader: Reader, rotate: int, media: Any, inherited: bool
) -> None:
    """A diamond is drawn, found in the pixels, and comes back to its points within half a pixel, crop box or not."""
    left, lower = media[0] + 130.0, media[1] + 260.0
    crop = (media[0] + 40, media[1] + 25, media[2] - 60, media[3] - 10)
    entry = b"/Rotate %d/CropBox[%d %d %d %d]" % (rotate, *crop)
    content = [diamond(left, lower)]
    data = pdfs.document(content, box=media, tree=entry) if inherited else pdfs.document(content, box=media, page=entry)
    paper = Paper(data, "a.pdf")
    sheet = reader.page(paper, 1).result()
    assert (sheet.box, sheet.rotate) == (crop, rotate % 360)
    size = sheet.pixels(110, 10**9)  # does not divide the page evenly
    x, y, radius = found(reader, paper, size)
    box = (x - radius, y - radius, x + radius, y + radius)
    frame = Frame(size, RULE.target(*size), page=Page(sheet.box, sheet.rotate))
    wrote = boxes.written(box, frame, "seen")
    value, _ = run({"box": list(wrote)}, frame, "seen", to="points", decimals=6)
    half = 0.5 * 72 / 110
    assert near(value["box"], (left, lower, left + 80, lower + 80), half + 1e-3)
    back = boxes.rendered(tuple(value["box"]), size, Page(sheet.box, sheet.rotate))
    assert near(back, box, 0.01)


def test_points_are_those_of_a_pdf_and_of_nothing_else() -> None:
    with pytest.raises(InvalidField, match="PDF"):
        run({"box": [1, 1, 2, 2]}, Frame((100, 200), (28, 28)), to="points")
    page = Page((10, 20, 110, 220), 0)
    beside, _ = run({"box": [0, 0, 500, 500]}, Frame((200, 100), (28, 28), page=page), to="points", pixels_as="px")
    assert beside == {"box": [10, 120, 60, 220], "px": [0, 0, 50, 100]}
    outside, _ = run({"box": [1100, 0, 1200, 5]}, Frame((200, 100), (28, 28), page=page), to="points")
    assert outside == {"box": None}
    tiny = Page((5, 5, 5.01, 5.01), 270)
    assert run({"box": [0, 0, 1000, 1000]}, Frame((1, 1), (28, 28), page=tiny), to="points", decimals=3)[0] == {
        "box": [5, 5, 5.01, 5.01]
    }


def test_img_24_boxes_of_the_resized_picture_lie_where_the_square_is() -> None:
    frame = Frame((1920, 1080), RULE.target(1920, 1080))
    square = (300.0, 700.0, 500.0, 900.0)
    units: Units
    for units in ("seen", "thousandths"):
        wrote = [round(part) for part in boxes.written(square, frame, units)]
        value, _ = run({"box": wrote}, frame, units)
        assert near(value["box"], square, 1.0)


def test_img_24_boxes_are_clipped_turned_round_and_never_outside() -> None:
    frame = Frame((100, 200), (28, 28))
    assert run({"box": [-50, 500, 1200, 900]}, frame) == ({"box": [0, 50, 200, 90]}, {"/box": 1, "/box clipped": 1})
    assert run({"box": [500, 500, 100, 100]}, frame)[1] == {"/box": 1, "/box turned round": 1}
    assert run({"box": [1100, 500, 1200, 900]}, frame) == ({"box": None}, {"/box": 1, "/box outside": 1})
    assert run({"box": None}, frame) == ({"box": None}, {})
    assert run({}, frame) == ({}, {})


@pytest.mark.parametrize("box", [[1, 2, 3], "1,2,3,4", [1, 2, 3, "4"], [1, 2, 3, True], {"x": 1}, 7])
def test_what_is_no_box_fails_and_names_the_place(box: Any) -> None:
    with pytest.raises(FinishError, match="/box"):
        run({"box": box}, Frame((100, 200), (28, 28)))


def test_pixels_beside_and_several_boxes() -> None:
    value = {"defects": [{"box": [0, 0, 500, 500]}, {"kind": "none"}, {"box": None}]}
    plan = Geometry({"boxes": ["/defects/*/box"], "to": "fractions", "pixels_as": "px", "decimals": 3}, JSON)
    done = plan.begin(Seen((Frame((100, 200), (28, 28)),))).finish(Draft(json.dumps(value))).value
    assert done["defects"][0] == {"box": [0, 0, 0.5, 0.5], "px": [0, 0, 100, 50]}
    assert done["defects"][1:] == [{"kind": "none"}, {"box": None, "px": None}]


def test_file_frame() -> None:
    assert run({"box": [0, 0, 100, 100]}, Frame((100, 200), (28, 28), 6), to="file")[0] == {"box": [0, 180, 10, 200]}


AFFINE = [[0, 0, 10, 20], [100, 0, 60, 20], [0, 100, 10, -30], [100, 100, 60, -30]]


def test_machine_coordinates_with_origin() -> None:
    calibration = {"points": AFFINE, "origin": [10, 20]}
    value, _ = run({"box": [100, 100, 200, 300]}, Frame((1000, 1000), (28, 28)), to="machine", calibration=calibration)
    assert value == {"box": [50, -150, 100, -50]}


def test_a_calibration_from_a_variable_is_checked_like_one_of_the_file() -> None:
    frame = Frame((100, 100), (28, 28))
    options: dict[str, Any] = {"to": "machine", "calibration": "$calibration"}
    good = {"points": [[0, 0, 0, 0], [1, 0, 80, 0], [0, 1, 0, 40]], "source": "fractions"}
    assert run({"box": [500, 500, 1000, 1000]}, frame, variables={"calibration": good}, **options)[0]["box"] == [
        40,
        20,
        80,
        40,
    ]
    line = {"points": [[0, 0, 0, 0], [1, 1, 8, 0], [2, 2, 0, 4]]}
    with pytest.raises(InvalidField, match="line") as refused:
        run({"box": [1, 1, 2, 2]}, frame, variables={"calibration": line}, **options)
    assert refused.value.param == "variables.calibration"


@settings(max_examples=200, deadline=None)
@given(
    st.floats(-math.pi, math.pi),
    st.floats(0.01, 100),
    st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)),
    st.integers(0, 10**6),
)
def test_an_affine_mapping_is_found_again(angle: float, scale: float, shift: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    source = rng.uniform(0, 4000, (6, 2))
    turn = scale * np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    target = source @ turn.T + shift
    found = fit(Calibration(tuple(map(tuple, np.c_[source, target]))), "c")
    assert found.worst < 1e-6 * max(scale * 4000, 1)
    x, y = found.back(found.moved((123.0, 456.0)))
    assert abs(x - 123) < 1e-5
    assert abs(y - 456) < 1e-5


@pytest.mark.parametrize("seed", range(20))
def test_a_homography_is_found_again_with_its_noise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = np.array([[0.2, 0.02, 5], [-0.01, 0.22, 8], [2e-5, 3e-5, 1]])
    source = np.array([[0, 0], [2000, 0], [2000, 1500], [0, 1500], *rng.uniform(100, 1400, (12, 2))])
    exact = np.c_[source, np.ones(len(source))] @ matrix.T
    target = exact[:, :2] / exact[:, 2:]
    found = fit(Calibration(tuple(map(tuple, np.c_[source, target])), kind="homography"), "c")
    assert found.worst < 1e-6
    noisy = target + rng.normal(0, 0.05, target.shape)
    said = fit(Calibration(tuple(map(tuple, np.c_[source, noisy])), kind="homography"), "c")
    assert 0.01 < said.residual < 0.12
    assert math.dist(said.moved((1000, 700)), found.moved((1000, 700))) < 0.2


@pytest.mark.parametrize(
    ("points", "kind"),
    [
        ([[0, 0, 0, 0], [1, 0, 1, 0]], "affine"),
        ([[0, 0, 0, 0], [1, 1, 1, 0], [2, 2, 0, 1]], "affine"),
        ([[5, 5, 0, 0], [5, 5, 1, 0], [5, 5, 0, 1]], "affine"),
        ([[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]], "affine"),
        ([[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]], "homography"),
        ([[0, 0, 0, 0], [1, 0, 1, 0], [2, 0, 2, 0], [0, 1, 0, 1]], "homography"),
        ([[0, 0, 0, 0], [1, 0, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1]], "homography"),
    ],
)
def test_degenerate_pairs_are_refused(points: Any, kind: Any) -> None:
    with pytest.raises(TaskError):
        Geometry({"boxes": ["/box"], "to": "machine", "calibration": {"points": points, "kind": kind}}, JSON)


def test_a_fit_worse_than_allowed_is_refused_and_names_the_pair() -> None:
    points = [*AFFINE, [50, 50, 99, 99]]
    with pytest.raises(TaskError, match="max_residual") as refused:
        fit(Calibration(tuple(tuple(p) for p in points), max_residual=1.0), "c")  # type: ignore[misc]
    assert "5" in refused.value.cure


def test_another_size_and_the_horizon_are_refused() -> None:
    frame = Frame((100, 100), (28, 28))
    with pytest.raises(FinishError, match="640 x 480"):
        run({"box": [1, 1, 2, 2]}, frame, to="machine", calibration={"points": AFFINE, "size": [640, 480]})
    tilted = {"points": [[0, 0, 0, 0], [10, 0, 10, 0], [9, 10, 10, 30], [1, 10, 0, 30]], "kind": "homography"}
    with pytest.raises(FinishError, match="horizon"):
        run({"box": [0, 0, 1000, 1000]}, Frame((100, 100), (28, 28)), to="machine", calibration=tilted)
