"""Finds Chinese ID numbers, bank cards and phone numbers in text, however they are spaced.

The rules of the numbers themselves are other people's libraries: python-stdnum for checksums, phonenumbers for who may
be called. What is ours is where a number begins and ends. Everything is decided from a window of bounded size, so that
an answer that comes in pieces is read exactly like a whole one.
"""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache
from typing import TYPE_CHECKING

import phonenumbers
from phonenumbers import PhoneNumberType
from stdnum import luhn
from stdnum.cn import ric
from stdnum.exceptions import ValidationError

from twinlens.finish.redact_seam import WAIT, Found

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

LONGEST = 60  # characters of a number with its separators
RUN = re.compile(r"\+?\(?\d(?:[ \-._·()]{0,3}[\dXx])*")
SEPARATORS = re.compile(r"[ \-._·()]{0,3}")
OPENING = re.compile(r"\+?\(?")
TIGHT = re.compile(r"[\d \-_·]*[Xx]?")  # what may stand inside an ID or card number
TAIL = re.compile(r"(?<!\d)\d{4}[ \-._·]{1,3}$")  # before a group of four inside a longer number
DECIMAL = re.compile(r"(?:^|\D)0\.$")

PROVINCES = frozenset(
    f"{tens}{units}"
    for tens, several in {
        "1": "12345",
        "2": "123",
        "3": "1234567",
        "4": "123456",
        "5": "01234",
        "6": "12345",
        "7": "1",
        "8": "123",
    }.items()
    for units in several
)
# Issuers' leading digits and how many digits their cards have (ISO/IEC 7812 ranges as the issuers publish them).
ISSUERS: tuple[tuple[tuple[int, int], frozenset[int]], ...] = (
    ((4000, 4999), frozenset((13, 16, 19))),  # Visa
    ((5100, 5599), frozenset((16,))),  # Mastercard
    ((2221, 2720), frozenset((16,))),
    ((3400, 3499), frozenset((15,))),  # American Express
    ((3700, 3799), frozenset((15,))),
    ((6200, 6299), frozenset((16, 17, 18, 19))),  # UnionPay
    ((8100, 8171), frozenset((16, 17, 18, 19))),
    ((6011, 6011), frozenset((16, 19))),  # Discover
    ((6440, 6599), frozenset((16, 19))),
    ((3528, 3589), frozenset((16, 17, 18, 19))),  # JCB
    ((3000, 3059), frozenset((14, 16, 19))),  # Diners
    ((3600, 3699), frozenset((14, 16, 19))),
    ((3800, 3999), frozenset((16, 19))),
    ((6030, 6039), frozenset((16, 18, 19))),  # debit cards of Chinese banks that are older than UnionPay's range
    ((9550, 9559), frozenset((19,))),
)
GROUPS = ((3, 4, 4), (3, 8), (7, 4), (4, 4, 3), (3, 3, 5), (5, 6))  # how people write a mobile number of 11 digits


class Numbers:
    """Finder of the kinds “id”, “card” and “phone”."""

    starts = r"(?<!\d)[\d+(]"

    def __init__(self, kinds: Collection[str], regions: Sequence[str]) -> None:
        self._kinds = frozenset(kinds)
        self._regions = tuple(regions)

    def at(self, text: str, at: int, *, final: bool) -> Found | str | None:
        """See `Finder.at`."""
        if at and text[at - 1].isdecimal():
            return None
        run = RUN.match(text, at, at + LONGEST)
        if not final and _open(run, text, at):
            return WAIT
        if not run or DECIMAL.search(text[max(0, at - 3) : at]):
            return None
        number = _Number(run.group(), text[run.end() : run.end() + 1])
        ends = {
            "id": number.id_end() if "id" in self._kinds else 0,
            "card": number.card_end() if "card" in self._kinds else 0,
            "phone": number.phone_end(self._regions, text[max(0, at - 8) : at]) if "phone" in self._kinds else 0,
        }
        kind = max(ends, key=lambda kind: ends[kind])
        return Found(at, at + ends[kind], kind) if ends[kind] else None


def _open(run: re.Match[str] | None, text: str, at: int) -> bool:
    """Whether what comes next may still belong to the number."""
    if not run:
        return bool(OPENING.fullmatch(text, at))
    cut = run.end() < at + LONGEST and SEPARATORS.fullmatch(text, run.end())
    return bool(cut) or run.end() == len(text)


class _Number:
    """A run of digits and separators that begins at a possible number. `after` is the character behind it."""

    def __init__(self, run: str, after: str) -> None:
        self.run = run
        self.after = after
        self.places = [place for place, char in enumerate(run) if char.isdecimal()]
        self.digits = "".join(run[place] for place in self.places)

    def _next(self, end: int) -> str:
        return self.run[end] if end < len(self.run) else self.after

    def _end(self, count: int) -> int:
        """Where the first `count` digits end; 0 when a digit follows at once or there are not so many."""
        if count > len(self.places):
            return 0
        end = self.places[count - 1] + 1
        return 0 if self._next(end).isdecimal() else end

    def id_end(self) -> int:
        """Where an ID number ends that begins here; 0: there is none."""
        end = self._end(18)
        if end and is_id(self.digits[:18]) and TIGHT.fullmatch(self.run[:end]):
            return end
        if len(self.places) >= 17:
            end = self.places[16] + 1
            mark = re.compile(r"[ \-_·]{0,3}[Xx]").match(self.run, end)
            if mark and is_id(self.digits[:17] + "X") and TIGHT.fullmatch(self.run[: mark.end()]):
                return mark.end()
        end = self._end(15)
        return end if end and is_old_id(self.digits[:15]) and TIGHT.fullmatch(self.run[:end]) else 0

    def card_end(self) -> int:
        """Where a bank card's number ends that begins here; the longest one."""
        for count in range(min(19, len(self.digits)), 12, -1):
            end = self._end(count)
            # An ID number of Gansu begins like a card; with a wrong checksum it is neither.
            if count == 18 and _is_dated(self.digits[:18]):
                continue
            if end and is_card(self.digits[:count]) and TIGHT.fullmatch(self.run[:end]):
                return end
        return 0

    def phone_end(self, regions: Sequence[str], before: str) -> int:
        """Where a phone number ends that begins here; the longest one."""
        for count in range(min(17, len(self.digits)), 6, -1):
            end = self._end(count)
            # The X of an ID number with a wrong checksum: its tail is no phone number.
            if not end or self._next(end) in ("X", "x") or "_" in self.run[:end]:
                continue
            if not _balanced(self.run[:end]) or self.run.startswith("0."):
                continue
            found = next((region for region in regions if is_phone(self.run[:end], region)), None)
            if found and (found != "CN" or self._grouped(end, before)):
                return end
        return 0

    def _grouped(self, end: int, before: str) -> bool:
        """Whether the digits are grouped as a phone number is, not as a part of a longer number in groups."""
        groups = tuple(len(group) for group in re.findall(r"\d+", self.run[:end]))
        if groups[0] == 4 and TAIL.search(before):
            return False
        if sum(groups) != 11 or not self.digits.startswith("1") or self.run.startswith("+"):
            return True
        return len(groups) in (1, 11) or groups in GROUPS


def _balanced(text: str) -> bool:
    return text.count("(") == text.count(")")


def is_id(number: str) -> bool:
    """Whether these 18 characters are an ID number: checksum, birth date and province."""
    number = number.upper()
    if number[:2] not in PROVINCES or not number[:17].isdecimal() or number[17] != ric.calc_check_digit(number):
        return False
    try:
        return 1850 <= ric.get_birth_date(number).year <= 2100
    except ValidationError:
        return False


def is_old_id(number: str) -> bool:
    """Whether these 15 digits are an ID number as given out before 1999: no checksum, so province, county and date."""
    if number[:2] not in PROVINCES:
        return False
    try:
        dt.date(1900 + int(number[6:8]), int(number[8:10]), int(number[10:12]))
        ric.get_birth_place(number[:6] + "19" + number[6:])
    except (ValueError, KeyError, ValidationError):  # KeyError: its table knows provinces without counties
        return False
    return True


def _is_dated(number: str) -> bool:
    """Whether 18 digits have a province and a birth date where an ID number has them."""
    try:
        return number[:2] in PROVINCES and 1900 <= ric.get_birth_date(number).year <= 2030
    except ValidationError:
        return False


def is_card(number: str) -> bool:
    """Whether an issuer gives out cards with these leading digits and this length, and the checksum is right."""
    head = int(number[:4])
    lengths = next((lengths for (low, high), lengths in ISSUERS if low <= head <= high), frozenset[int]())
    return len(number) in lengths and luhn.is_valid(number)


@lru_cache(maxsize=4096)
def is_phone(text: str, region: str) -> bool:
    """Whether this can be called: from anywhere with “+” or “00”, else as written in `region`."""
    digits = re.sub(r"\D", "", text)
    if digits.startswith("00"):
        text = "+" + digits[2:]
    try:
        number = phonenumbers.parse(text, region)
    except phonenumbers.NumberParseException:
        return False
    if not phonenumbers.is_valid_number(number):
        return False
    if text.startswith("+"):
        return True
    kind = phonenumbers.number_type(number)
    if region != "CN" or kind == PhoneNumberType.MOBILE:
        return True
    # A fixed line is written with its area code's 0; without it any number of ten digits would be one.
    return digits.startswith("0") or (len(digits) == 10 and digits[:3] in ("400", "800"))
