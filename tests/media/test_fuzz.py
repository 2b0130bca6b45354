"""Whatever bytes arrive: pixels of the size that was promised, or one of our errors with a fixed text."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import twinlens
from tests.media.pictures import KINDS, animation, display_p3, grey16, photo, saved, strip
from twinlens.errors import ImageError
from twinlens.media import decode

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")


STARTS = (b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"II*\0\x08\0\0\0", b"RIFF\0\0\0\0WEBPVP8X")


@cache
def seeds() -> tuple[bytes, ...]:
    made = [make() for make in KINDS.values()]
    made += [animation(kind) for kind in ("GIF", "WEBP", "PNG", "TIFF")]
    made += [strip(6, kind) for kind in ("JPEG", "PNG", "WEBP", "TIFF")]
    made += [grey16([1, 2, 3]), photo(64, 48), saved(Image.new("RGB", (9, 9)), "JPEG", icc_profile=display_p3())]
    made += [saved(Image.new("P", (9, 9)), kind) for kind in ("PNG", "BMP", "TIFF", "GIF")]
    made += [
        saved(Image.new("RGBA", (9, 9)), "TIFF", compression=name) for name in ("tiff_lzw", "packbits", "tiff_deflate")
    ]
    return tuple(made)


def check(data: bytes) -> None:
    try:
        header = decode.look(data, "part", 1_000_000)
        image = decode.pixels(data, header.format, (56, 84), "part")
    except ImageError as error:
        assert not re.search(r"0x|BytesIO|PIL|/usr", error.message)
        assert error.param == "part"
        return
    assert np.asarray(image).shape == (56, 84, 3)


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    check(data)


@given(
    st.sampled_from(
        (b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"II*\0\x08\0\0\0", b"RIFF\0\0\0\0WEBPVP8X")
    ),
    st.binary(max_size=300),
)
def test_any_bytes_behind_a_right_start(start: bytes, data: bytes) -> None:
    check(start + data)


@given(st.data())
def test_damaged_files(data: st.DataObject) -> None:
    seed = bytearray(data.draw(st.sampled_from(seeds())))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(seed) - 1))
        seed[at] = data.draw(st.integers(0, 255))
    check(bytes(seed))


@pytest.mark.slow
def test_damaged_files_by_the_thousand() -> None:
    draw = random.Random(20)
    for _ in range(6000):
        seed = bytearray(draw.choice(seeds()))
        way = draw.randrange(3)
        if way == 0:
            del seed[draw.randrange(len(seed)) :]
        elif way == 1:
            at = draw.randrange(len(seed))
            seed[at:at] = draw.randbytes(draw.randrange(1, 40))
        for _ in range(draw.randrange(1, 12)):
            if seed:
                head = draw.random() < 0.7
                seed[draw.randrange(min(len(seed), 200) if head else len(seed))] = draw.choice(
                    (0, 255, draw.randrange(256))
                )
        check(bytes(seed))


@pytest.mark.slow
def test_the_script_runs_for_as_long_as_it_is_told(tmp_path: Path) -> None:
    places = (
        Path(__file__).parents[2],
        Path(twinlens.__file__).parents[1],
    )  # the tests, and the package that is tested
    done = subprocess.run(
        [sys.executable, "-m", "tests.media.fuzz", "--seconds", "8", "--seed", "1"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places))},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 faults" in done.stdout
    assert not list(tmp_path.iterdir())
