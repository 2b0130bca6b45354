"""Keys: what differs never shares one, what is the same always does."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.store import features_key, pixels_key
from twinlens.store.keys import is_key

DIGEST = hashlib.sha256(b"picture").digest()
PIXELS: dict[str, Any] = {"digest": DIGEST, "part": "0", "recipe": "pillow-1", "size": (30, 150), "salt": ""}
FEATURES: dict[str, Any] = {
    "pixels": pixels_key(**PIXELS),
    "rule": "28",
    "weights": "a" * 64,
    "encoder": "exact-bf16",
    "layout": "1",
}
TEXTS = st.text(max_size=6)


def test_cache_01_sizes_with_the_same_bytes_have_keys_of_their_own() -> None:
    assert pixels_key(**PIXELS) != pixels_key(**(PIXELS | {"size": (150, 30)}))


def test_cache_03_five_thousand_pictures_have_five_thousand_keys_of_256_bits() -> None:
    keys = {
        pixels_key(**(PIXELS | {"digest": hashlib.sha256(bytes([n % 256, n // 256])).digest()})) for n in range(5000)
    }
    assert len(keys) == 5000
    assert all(is_key(key) and len(key) == 64 for key in keys)


def test_cache_14_the_key_is_the_same_in_every_process() -> None:
    code = f"from twinlens.store import pixels_key; print(pixels_key(**{PIXELS!r}))"
    for seed in ("1", "2"):
        other = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, text=True, env={"PYTHONHASHSEED": seed}
        )
        assert other.stdout.strip() == pixels_key(**PIXELS)


@pytest.mark.parametrize(
    "change",
    [
        {"digest": hashlib.sha256(b"other").digest()},
        {"part": "1"},
        {"recipe": "pillow-2"},
        {"size": (30, 151)},
        {"size": (31, 150)},
        {"salt": "tenant"},
    ],
)
def test_every_field_of_pixels_counts(change: dict[str, Any]) -> None:
    assert pixels_key(**PIXELS) != pixels_key(**(PIXELS | change))


def test_every_field_of_features_counts() -> None:
    keys = {features_key(**FEATURES), FEATURES["pixels"]}
    for name, value in FEATURES.items():
        other = pixels_key(**(PIXELS | {"part": "1"})) if name == "pixels" else value + "x"
        keys.add(features_key(**(FEATURES | {name: other})))
    assert len(keys) == 2 + len(FEATURES)


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=2, max_size=8, unique=True))
def test_no_two_lists_of_fields_encode_alike(fields: list[tuple[str, str, str]]) -> None:
    keys = [pixels_key(DIGEST, part=part, recipe=recipe, size=(1, 1), salt=salt) for part, recipe, salt in fields]
    assert all(one != other for one, other in combinations(keys, 2))


def test_raw_and_hex_digests_are_the_same() -> None:
    assert pixels_key(**PIXELS) == pixels_key(**(PIXELS | {"digest": DIGEST.hex()}))


@pytest.mark.parametrize("change", [{"digest": b"short"}, {"digest": "zz" * 16}, {"size": (0, 5)}, {"size": (5, -1)}])
def test_what_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        pixels_key(**(PIXELS | change))


@pytest.mark.parametrize(
    "text", ["", "ab" * 15, "AB" * 16, "../" * 20, "a/b" * 12, "ab" * 65, "g" * 32, "ab" * 16 + "\n"]
)
def test_only_lower_case_hex_is_a_key(text: str) -> None:
    assert not is_key(text)
    with pytest.raises(ValueError):
        features_key(text, rule="", weights="", encoder="", layout="")
