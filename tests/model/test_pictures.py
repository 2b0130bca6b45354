from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.model.folders import make_folder
from tests.model.vision_tokens import TABLE, settings
from twinlens.errors import ImageAspectRatio, InvalidField
from twinlens.model import checkpoint
from twinlens.model.pictures import MAX_RATIO, PictureRule

if TYPE_CHECKING:
    from pathlib import Path

QWEN2 = PictureRule(patch=14, merge=2, temporal=2, min_pixels=3136, max_pixels=12845056)
QWEN3 = PictureRule(patch=16, merge=2, temporal=2, min_pixels=65536, max_pixels=16777216)
GOLDEN = json.loads(TABLE.read_text())

sides = st.integers(1, 12_000)


@st.composite
def rules(draw: st.DrawFn) -> PictureRule:
    """Any settings that an operator could write and that leave a size."""
    base = draw(st.sampled_from((QWEN2, QWEN3)))
    low = draw(st.integers(1, 3_000_000))
    rule = replace(base, min_pixels=low, max_pixels=low + draw(st.integers(0, 13_000_000)))
    assume(rule.feasible)
    return rule


@st.composite
def pictures(draw: st.DrawFn) -> tuple[int, int]:
    """(height, width) within the ratio that processors take."""
    height, width = draw(sides), draw(sides)
    assume(max(height, width) <= MAX_RATIO * min(height, width))
    return height, width


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_vision_tokens_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    family, processor = settings()[name]
    rule = checkpoint.read(make_folder(tmp_path, family=family, processor=processor)).rule
    for height, width, *grid in GOLDEN[name]:
        target = rule.target(height, width)
        if max(grid) > MAX_RATIO * min(grid[1:]):
            continue  # transformers would not take its own size again: see test_a_strip_that_rounds_past_the_ratio
        assert rule.grid(*target) == tuple(grid), (height, width)
        assert rule.tokens(*target) == grid[1] * grid[2] // 4


def test_the_golden_table_covers_all_families_and_settings() -> None:
    assert set(GOLDEN) == set(settings())
    assert all(len(rows) > 30 for rows in GOLDEN.values())


@given(rules(), pictures())
def test_the_processor_leaves_our_size_alone(rule: PictureRule, size: tuple[int, int]) -> None:
    target = rule.target(*size)
    assert rule._resized(*target) == target
    assert rule.target(*target) == target
    assert max(target) <= MAX_RATIO * min(target)
    assert rule.min_pixels <= target[0] * target[1] <= rule.max_pixels


@given(st.sampled_from((QWEN2, QWEN3)), pictures(), st.data())
def test_a_size_made_by_the_bounds_of_a_part_is_kept_by_the_models_own_bounds(
    rule: PictureRule, size: tuple[int, int], data: st.DataObject
) -> None:
    low = data.draw(st.integers(rule.min_pixels, rule.max_pixels))
    high = data.draw(st.integers(low, rule.max_pixels))
    try:
        bounded = rule.bounded(low, high, "auto")
    except InvalidField:
        return
    target = bounded.target(*size)
    assert rule._resized(*target) == target
    assert bounded.tokens(*target) <= high // rule.factor**2


@given(rules(), pictures())
def test_grid_and_tokens_agree(rule: PictureRule, size: tuple[int, int]) -> None:
    target = rule.target(*size)
    t, h, w = rule.grid(*target)
    assert (t, h * rule.patch, w * rule.patch) == (1, *target)
    assert rule.tokens(*target) * rule.merge**2 == h * w


@given(st.sampled_from((QWEN2, QWEN3)), pictures())
def test_ordinary_pictures_get_exactly_the_processors_size(rule: PictureRule, size: tuple[int, int]) -> None:
    once = rule._resized(*size)
    if max(once) <= MAX_RATIO * min(once):
        assert rule.target(*size) == once


def test_a_strip_that_rounds_past_the_ratio() -> None:
    # 41 x 8200 is a ratio of exactly 200, but its rounded size 28 x 8204 is 293 and would be refused.
    assert QWEN2._resized(41, 8200) == (28, 8204)
    assert QWEN2.target(41, 8200) == (56, 8204)


def test_bounds_too_tight_for_the_shape() -> None:
    exact = replace(QWEN2, min_pixels=1280 * 784, max_pixels=1280 * 784)
    height, width = exact.target(1000, 1000)
    assert height * width == 1280 * 784
    assert {height // 28, width // 28} == {32, 40}


def test_img_16_ratio_of_200_is_taken_and_more_is_refused_with_the_measure() -> None:
    assert QWEN2.target(1000, 5) == (812, 28)
    for height, width, shown in ((1005, 5, "201.0"), (5, 1005, "201.0"), (1093, 5, "218.6"), (5, 1093, "218.6")):
        with pytest.raises(ImageAspectRatio) as caught:
            QWEN2.target(height, width)
        assert shown in caught.value.message
        assert "200" in caught.value.message


def test_img_18_sides_below_the_factor_are_scaled_up() -> None:
    assert QWEN2.target(26, 28) == (56, 84)
    assert replace(QWEN3, min_pixels=3136).target(26, 28) == (64, 64)
    assert QWEN2.target(27, 500)[0] == 28


@pytest.mark.parametrize("size", [(1, 1), (3, 3), (1, 3), (3, 1), (1, 200)])
def test_img_17_tiny_pictures_are_scaled_up(size: tuple[int, int]) -> None:
    height, width = QWEN2.target(*size)
    assert height * width >= QWEN2.min_pixels


def test_img_26_bounds_of_a_part_decide_the_tokens() -> None:
    few = QWEN2.bounded(None, 200704, "auto")
    more = QWEN2.bounded(None, 1003520, "auto")
    assert few.tokens(*few.target(2000, 2000)) == 256
    assert 1200 < more.tokens(*more.target(2000, 2000)) <= 1280


@pytest.mark.parametrize(
    ("low", "high"), [(1, None), (None, 10**9), (12845057, None), (None, 3135), (5000, 4000), (3137, 3150)]
)
def test_bounds_outside_the_models_own_are_refused_and_named(low: int | None, high: int | None) -> None:
    with pytest.raises(InvalidField, match=r"\d"):
        QWEN2.bounded(low, high, "auto")


def test_detail() -> None:
    low = QWEN2.bounded(None, None, "low")
    assert low.max_pixels == 256 * 28 * 28
    assert QWEN3.bounded(None, None, "low").max_pixels == 256 * 32 * 32
    assert QWEN2.bounded(None, None, "high") is QWEN2
    assert QWEN2.bounded(None, None, "auto") is QWEN2
    assert QWEN2.bounded(None, 100_000, "low").max_pixels == 100_000
    with pytest.raises(InvalidField):
        QWEN2.bounded(300_000, None, "low")


def test_detail_low_never_goes_below_the_models_least_size() -> None:
    strict = replace(QWEN2, min_pixels=512 * 784)
    assert strict.bounded(None, None, "low").max_pixels == 512 * 784


def test_bounds_without_any_size_are_not_feasible() -> None:
    assert not replace(QWEN2, min_pixels=784 + 1, max_pixels=784 + 2).feasible
    assert not replace(QWEN2, min_pixels=1277 * 784, max_pixels=1277 * 784).feasible  # a prime: only 1 x 1277
    assert replace(QWEN2, min_pixels=784, max_pixels=784).feasible
