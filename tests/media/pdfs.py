"""PDFs made by hand, so that tests know every byte: content, boxes, rotation, forms, encryption, and what is wrong."""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

A4 = (0, 0, 595, 842)
_PAD = bytes.fromhex("28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a")


def pdf(objects: Mapping[int, bytes], root: int = 1, trailer: bytes = b"") -> bytes:
    """A PDF of these numbered objects with a right cross-reference table."""
    out = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
    places = {}
    for number, body in sorted(objects.items()):
        places[number] = len(out)
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    start, size = len(out), max(objects) + 1
    out += b"xref\n0 %d\n0000000000 65535 f \n" % size
    for number in range(1, size):
        out += b"%010d 00000 n \n" % places[number] if number in places else b"0000000000 65535 f \n"
    out += b"trailer\n<</Size %d/Root %d 0 R%b>>\nstartxref\n%d\n%%%%EOF\n" % (size, root, trailer, start)
    return bytes(out)


def stream(data: bytes, more: bytes = b"") -> bytes:
    """A stream object, compressed."""
    packed = zlib.compress(data)
    return b"<</Length %d/Filter/FlateDecode%b>>stream\n%b\nendstream" % (len(packed), more, packed)


def document(
    pages: Sequence[bytes] = (b"",),
    *,
    box: Sequence[float] = A4,
    page: bytes = b"",
    catalog: bytes = b"",
    tree: bytes = b"",
    more: Mapping[int, bytes] | None = None,
) -> bytes:
    """One page for each content stream; `page`, `catalog` and `tree` are further entries of their dictionaries.

    Font /F1 is Helvetica. Objects of `more` start at 10000.
    """
    objects = {3: b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>", **(more or {})}
    kids = []
    for at, content in enumerate(pages):
        number = 10 + 2 * at
        kids.append(b"%d 0 R" % number)
        objects[number] = b"<</Type/Page/Parent 2 0 R/Resources<</Font<</F1 3 0 R>>>>/Contents %d 0 R%b>>" % (
            number + 1,
            page,
        )
        objects[number + 1] = stream(content)
    media = b" ".join(b"%.4f" % side for side in box)
    objects[1] = b"<</Type/Catalog/Pages 2 0 R%b>>" % catalog
    objects[2] = b"<</Type/Pages/Kids[%b]/Count %d/MediaBox[%b]%b>>" % (b" ".join(kids), len(kids), media, tree)
    return pdf(objects)


def square(left: float, lower: float, side: float = 100, grey: float = 0) -> bytes:
    """A filled square."""
    return b"%g g %g %g %g %g re f\n" % (grey, left, lower, side, side)


def words(text: str, left: float = 72, lower: float = 700, size: float = 24) -> bytes:
    """A line of text in Helvetica."""
    return b"0 g BT /F1 %g Tf %g %g Td (%b) Tj ET\n" % (size, left, lower, text.encode("latin-1"))


def numbered(count: int) -> bytes:
    """So many pages that say their numbers."""
    return document([words(f"Page {number}") for number in range(1, count + 1)])


def field(*, appearance: bool) -> bytes:
    """A page with a text field that holds 12345, drawn by the file itself or only by whoever shows it."""
    drawn = b"/AP<</N 10001 0 R>>" if appearance else b""
    widget = (
        b"<</Type/Annot/Subtype/Widget/FT/Tx/T(code)/V(12345)/Rect[100 600 400 660]/F 4/P 10 0 R"
        b"/DA(/F1 36 Tf 0 g)%b>>" % drawn
    )
    form = b"/AcroForm<</Fields[10000 0 R]/DR<</Font<</F1 3 0 R>>>>/DA(/F1 36 Tf 0 g)/NeedAppearances %b>>" % (
        b"false" if appearance else b"true"
    )
    look = stream(
        b"/Tx BMC q BT /F1 36 Tf 0 g 4 16 Td (12345) Tj ET Q EMC",
        b"/Type/XObject/Subtype/Form/BBox[0 0 300 60]/Resources<</Font<</F1 3 0 R>>>>",
    )
    return document(page=b"/Annots[10000 0 R]", catalog=form, more={10000: widget, 10001: look})


def bomb(levels: int = 12, each: int = 10) -> bytes:
    """Forms that draw the next one ten times over: hours of work in a few hundred bytes."""
    more = {}
    for level in range(levels):
        inner = b"/X Do\n" * each if level + 1 < levels else b"0 0 500 500 re f\n" * each
        use = b"/Resources<</XObject<</X %d 0 R>>>>" % (10001 + level) if level + 1 < levels else b""
        more[10000 + level] = stream(inner, b"/Type/XObject/Subtype/Form/BBox[0 0 600 900]" + use)
    return document([b"/X Do"], tree=b"", page=b"/Resources<</XObject<</X 10000 0 R>>>>", more=more)


def encrypted(user: str, owner: str = "owner", content: bytes = b"") -> bytes:
    """A page under RC4 with 40 bits, the first handler that PDF had; with an empty `user` it opens by itself."""
    padded = [(secret.encode("latin-1") + _PAD)[:32] for secret in (owner, user)]
    sealed = _rc4(hashlib.md5(padded[0]).digest()[:5], padded[1])
    allowed, identity = b"\xfc\xff\xff\xff", b"0123456789abcdef"
    key = hashlib.md5(padded[1] + sealed + allowed + identity).digest()[:5]

    def hidden(number: int, data: bytes) -> bytes:
        return _rc4(hashlib.md5(key + number.to_bytes(3, "little") + b"\0\0").digest()[:10], data)

    body = hidden(5, content or words("Secret"))
    objects = {
        1: b"<</Type/Catalog/Pages 2 0 R>>",
        2: b"<</Type/Pages/Kids[4 0 R]/Count 1/MediaBox[0 0 595 842]>>",
        3: b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        4: b"<</Type/Page/Parent 2 0 R/Resources<</Font<</F1 3 0 R>>>>/Contents 5 0 R>>",
        5: b"<</Length %d>>stream\n%b\nendstream" % (len(body), body),
        6: b"<</Filter/Standard/V 1/R 2/O<%b>/U<%b>/P -4>>" % (sealed.hex().encode(), _rc4(key, _PAD).hex().encode()),
    }
    name = identity.hex().encode()
    return pdf(objects, trailer=b"/Encrypt 6 0 R/ID[<%b><%b>]" % (name, name))


def _rc4(key: bytes, data: bytes) -> bytes:
    box = list(range(256))
    at = 0
    for index in range(256):
        at = (at + box[index] + key[index % len(key)]) % 256
        box[index], box[at] = box[at], box[index]
    out, one, other = bytearray(), 0, 0
    for byte in data:
        one = (one + 1) % 256
        other = (other + box[one]) % 256
        box[one], box[other] = box[other], box[one]
        out.append(byte ^ box[(box[one] + box[other]) % 256])
    return bytes(out)
