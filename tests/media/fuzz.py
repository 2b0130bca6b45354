"""Fuzzing of everything that reads a client's picture, for a bounded time: python -m tests.media.fuzz --seconds 60

The corpus is made on the spot: files of every format, animations, profiles, EXIF. With atheris installed its coverage
leads the way (`--engine atheris`); without it files are damaged, cut, spliced and their numbers changed at random, from
a seed that is printed. Ends with 1 and writes the input to the current folder when anything but pixels of the promised
size or an error of the tree comes out, when one input takes more than --slow seconds, or when memory grows.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import random
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import psutil

from tests.media.pictures import FOREIGN, display_p3, photo, saved
from tests.media.test_fuzz import seeds
from twinlens.errors import ImageError
from twinlens.media import decode, jpeg, signature

MOST_PIXELS = 1_000_000
MOST_GROWTH = 400 << 20  # bytes, once the decoders are warm
NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)


def corpus() -> list[bytes]:
    """Whole files of every kind."""
    from PIL import Image  # noqa: PLC0415 - after the warnings are off

    picture = Image.new("RGB", (64, 64), (90, 60, 30))
    made = [*seeds(), *FOREIGN.values(), photo(70, 50), saved(picture.convert("CMYK"), "JPEG")]
    made.append(saved(picture, "JPEG", progressive=True, icc_profile=display_p3()))
    for name, kind in (("AVIF", "AVIF"), ("HEIC", "HEIF")):
        if name in decode.FORMATS:
            made.append(saved(picture, kind))
    return made


def check(data: bytes) -> None:
    """Raises AssertionError, or whatever got out that should not."""
    signature.sniff(data)
    for at in ("PNG", "GIF", "WEBP", "JPEG"):
        signature.declared_size(data, at)
    signature.png_exif(data)
    signature.gif_frames(data)
    signature.tiff_pages(data)
    signature.is_camera_raw(data)
    jpeg.scans(data)
    jpeg.is_hollow(data)
    try:
        header = decode.look(data, "part", MOST_PIXELS)
        found = np.asarray(decode.pixels(data, header.format, (56, 84), "part"))
    except ImageError as error:
        assert error.param == "part"
        assert "0x" not in error.message
        return
    assert found.shape == (56, 84, 3)
    assert found.dtype == np.uint8


def damaged(draw: random.Random, files: list[bytes]) -> bytes:
    """One of the files, no longer whole."""
    data = bytearray(draw.choice(files))
    for _ in range(draw.randrange(1, 8)):
        if not data:
            break
        near = min(len(data), 600) if draw.random() < 0.7 else len(data)
        at = draw.randrange(near)
        way = draw.randrange(6)
        if way == 0:
            data[at] = draw.randrange(256)
        elif way == 1:
            width = draw.choice((1, 2, 4))
            number = draw.choice(NUMBERS) & (256**width - 1)
            data[at : at + width] = number.to_bytes(width, draw.choice(("big", "little")))
        elif way == 2:
            del data[at : at + draw.randrange(1, 64)]
        elif way == 3:
            data[at:at] = draw.randbytes(draw.randrange(1, 64))
        elif way == 4:
            other = draw.choice(files)
            start = draw.randrange(len(other))
            data[at : at + 32] = other[start : start + 64]
        else:
            del data[draw.randrange(at, len(data)) :]
    return bytes(data)


def by_chance(seconds: float, slow: float, seed: int) -> int:
    """Our own engine; the number of faults."""
    files = corpus()
    for data in files:
        check(data)
    process = psutil.Process()
    before = process.memory_info().rss
    draw = random.Random(seed)
    end = time.monotonic() + seconds
    count = faults = 0
    while time.monotonic() < end and faults < 10:
        data = damaged(draw, files)
        began = time.monotonic()
        try:
            check(data)
        except Exception as error:  # noqa: BLE001 - finding them is the purpose
            faults += told(data, f"{type(error).__name__}: {str(error)[:200]}")
        count += 1
        if time.monotonic() - began > slow:
            faults += told(data, f"took {time.monotonic() - began:.1f} s")
        if count % 500 == 0 and process.memory_info().rss - before > MOST_GROWTH:
            faults += told(data, f"memory grew by {(process.memory_info().rss - before) >> 20} MiB")
            break
    grown = (process.memory_info().rss - before) / (1 << 20)
    print(f"seed {seed}: {count} inputs in {seconds:g} s, {faults} faults, memory grew by {grown:.0f} MiB")
    return faults


def told(data: bytes, what: str) -> int:
    """Say it and keep the input. Gives 1."""
    path = Path(f"fuzz-{hashlib.sha256(data).hexdigest()[:16]}")
    path.write_bytes(data)
    print(f"{path}: {what}", file=sys.stderr)
    return 1


def by_coverage(seconds: float) -> None:
    """atheris: never comes back; its exit code says whether anything was found."""
    import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore] # noqa: PLC0415

    folder = Path(".cache/fuzz-corpus")
    folder.mkdir(parents=True, exist_ok=True)
    for data in corpus():
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    for work in (signature.sniff, signature.declared_size, signature.png_exif, signature.gif_frames, decode.look):
        atheris.instrument_func(work)  # all of Python would take a minute before the first input
    limits = [f"-max_total_time={seconds:.0f}", "-timeout=20", "-rss_limit_mb=3000", "-max_len=20000"]
    atheris.Setup([sys.argv[0], str(folder), *limits], check)
    atheris.Fuzz()


def main() -> int:
    """Run one engine."""
    parser = argparse.ArgumentParser(prog="python -m tests.media.fuzz", description="Fuzz the picture decoders.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--slow", type=float, default=10, help="seconds that one input may take")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--engine", choices=["own", "atheris"], default="own")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    faulthandler.enable()
    decode.check_decoders()  # as a service does at its start: nothing below Pillow writes to the terminal
    if args.engine == "atheris":
        by_coverage(args.seconds)
    return 1 if by_chance(args.seconds, args.slow, args.seed) else 0


if __name__ == "__main__":
    sys.exit(main())
