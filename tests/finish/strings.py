# ruff: noqa: E501  (tables of words)
"""Generated strings that hold something personal, and near misses that do not. Shared by tests; every draw is seeded.

`python -m tests.finish.strings` prints recall and precision of the redaction by kind.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import phonenumbers
from stdnum import luhn, numdb
from stdnum.cn import ric
from stdnum.exceptions import ValidationError

from twinlens.finish.redact import Redact
from twinlens.finish.seam import About

if TYPE_CHECKING:
    from collections.abc import Callable

SENTENCES = (
    "{}", "请联系 {} 谢谢", "The number is {}.", "记录：{}，已核对", "({})", "见{}。", "value={}; next", "{}\nsecond line", "a {} b 42",
    "编号12 {} 共3件", "“{}”", "He wrote {}, then left.", "单号:{}/已收",
)  # fmt: skip
FULL_WIDTH = str.maketrans("0123456789", "０１２３４５６７８９")


@dataclass(frozen=True)
class Case:
    """A sentence; `secret` is what must not stay in it, or must (`keep`)."""

    text: str
    secret: str
    kind: str
    keep: bool


def _spaced(rng: random.Random, digits: str, groups: tuple[tuple[int, ...], ...]) -> str:
    """The number as somebody might write it."""
    form = rng.random()
    if form < 0.45:
        return digits
    if form < 0.6:
        return digits.translate(FULL_WIDTH)
    parts, at = [], 0
    for size in rng.choice(groups):
        parts.append(digits[at : at + size])
        at += size
    parts.append(digits[at:])
    return rng.choice([" ", "-", " ", "‐", "\u00a0", " - "]).join(part for part in parts if part)


_COUNTIES = [
    f"{province}{city:02d}{county:02d}"
    for province in ("11", "31", "32", "33", "37", "42", "44", "51", "61")
    for city in range(1, 4)
    for county in range(1, 30)
    if numdb.get("cn/loc").info(f"{province}{city:02d}{county:02d}")[-1][1]
]


def id_number(rng: random.Random) -> str:
    """A valid ID number of 18 characters."""
    day = dt.date(1940, 1, 1) + dt.timedelta(days=rng.randrange(25000))
    body = f"{rng.choice(_COUNTIES)}{day:%Y%m%d}{rng.randrange(1000):03d}"
    return body + ric.calc_check_digit(body + "0")


def old_id(rng: random.Random) -> str:
    """A valid ID number of 15 digits."""
    while True:
        number = id_number(rng)
        try:
            ric.get_birth_place(number)
        except (ValidationError, KeyError):
            continue
        if number[6:8] == "19":
            return number[:6] + number[8:17]


def card(rng: random.Random) -> str:
    """A valid card number of an issuer."""
    head, length = rng.choice(
        [("4", 16), ("51", 16), ("55", 16), ("37", 15), ("62", 16), ("62", 19), ("6217", 19), ("35", 16), ("6011", 16)]
    )
    if head == "35":
        head = "3530"
    body = head + "".join(rng.choice("0123456789") for _ in range(length - len(head) - 1))
    return body + luhn.calc_check_digit(body)


def mobile(rng: random.Random) -> str:
    """A Chinese mobile number."""
    while True:
        number = rng.choice(["13", "15", "18", "17", "19"]) + "".join(rng.choice("0123456789") for _ in range(9))
        if phonenumbers.is_valid_number(phonenumbers.parse(number, "CN")):
            return number


def phone(rng: random.Random) -> str:
    """A phone number, written in one of the usual ways."""
    form = rng.random()
    number = mobile(rng)
    if form < 0.5:
        return _spaced(rng, number, ((3, 4), (3, 4), (3, 8), (7,)))
    if form < 0.65:
        return f"+86 {number}" if form < 0.6 else f"+86-{number[:3]}-{number[3:7]}-{number[7:]}"
    if form < 0.85:
        area, rest = rng.choice([("010", 8), ("021", 8), ("0755", 8), ("0571", 8), ("028", 8)])
        line = rng.choice("2345678") + "".join(rng.choice("0123456789") for _ in range(rest - 1))
        if not phonenumbers.is_valid_number(phonenumbers.parse(area + line, "CN")):
            return number
        return rng.choice([f"{area}-{line}", f"({area}) {line}", f"{area} {line[:4]} {line[4:]}", area + line])
    return rng.choice(
        ["+1 650-253-0000", "+44 20 7946 0958", "+49 30 901820", "+81 3-1234-5678", "+65 6123 4567", "0086" + number]
    )


def email(rng: random.Random) -> str:
    """An e-mail address."""
    name = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz0123456789._+-") for _ in range(rng.randint(1, 18)))
    host = rng.choice(["qq.com", "example.co.uk", "mail.example.com", "163.com", "uni-x.edu.cn", "a-b.io"])
    return f"{rng.choice('abcxyz')}{name.strip('.+-') or 'q'}@{host}"


_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"


def plate(rng: random.Random) -> str:
    """A Chinese number plate."""
    province = rng.choice("京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼")
    form = rng.random()
    if form < 0.5:
        body = list("".join(rng.choice("0123456789") for _ in range(5)))
        for at in rng.sample(range(5), rng.randint(0, 2)):
            body[at] = rng.choice(_LETTERS)
    elif form < 0.7:
        body = [rng.choice("DF"), rng.choice(_LETTERS + "0123456789"), *(rng.choice("0123456789") for _ in range(4))]
    elif form < 0.85:
        body = [*(rng.choice("0123456789") for _ in range(5)), rng.choice("DF")]
    else:
        body = [*(rng.choice("0123456789") for _ in range(4)), rng.choice("警学挂")]
    return province + rng.choice(_LETTERS) + rng.choice(["", "", "·", " "]) + "".join(body)


def passport(rng: random.Random) -> str:
    """A passport number behind the word that says so."""
    number = rng.choice("EGPSD") + "".join(rng.choice("0123456789") for _ in range(8))
    return rng.choice([f"护照号 {number}", f"passport no. {number}", f"护照：{number}", f"Passport {number}"])


def name(rng: random.Random) -> str:
    """A name behind its label."""
    zh = rng.choice("王李张刘陈杨") + "".join(rng.choice("伟芳娜敏静丽强磊") for _ in range(rng.randint(1, 2)))
    en = f"{rng.choice(['Ada', 'Grace', 'Alan'])} {rng.choice(['Lovelace', 'Hopper', 'Turing'])}"
    return rng.choice(
        [f"姓名：{zh}", f"患者: {zh}", f"Name: {en}", f'"name": "{en}"', f"Patient: {en}", f"姓名 = {zh}"]
    )


def _wrong(digit: str, rng: random.Random) -> str:
    return rng.choice([other for other in "0123456789" if other != digit])


def wrong_id(rng: random.Random) -> str:
    """An ID number whose checksum is wrong."""
    number = id_number(rng)
    return number[:-1] + _wrong(number[-1], rng)


def wrong_card(rng: random.Random) -> str:
    """A card number whose checksum is wrong."""
    number = card(rng)
    return number[:-1] + _wrong(number[-1], rng)


def no_phone(rng: random.Random) -> str:
    """Digits that nobody can be called by."""
    tail = "".join(rng.choice("0123456789") for _ in range(9))
    return rng.choice(
        ["12" + tail, "11" + tail, "138" + tail[:6], "1388" + tail, "20" + tail[:6], tail[:4], "400" + tail[:5]]
    )


def no_email(rng: random.Random) -> str:
    """Something with an @, or nearly."""
    return rng.choice(["@someone", "a@b", "price@100", "x@.com", "user@", "3 @ 5.00", "name at example.com", "v1.2@3"])


def no_plate(rng: random.Random) -> str:
    """Nearly a plate."""
    digits = "".join(rng.choice("0123456789") for _ in range(8))
    return rng.choice(
        [
            f"京A{digits[:4]}",
            f"粤B{digits[:7]}",
            f"沪I{digits[:5]}",
            f"浙{digits[:6]}",
            f"苏AB{digits[:2]}",
            f"川O{digits[:5]}",
        ]
    )


def no_passport(rng: random.Random) -> str:
    """What looks like a passport's number where nothing says that it is one."""
    return "型号 " + rng.choice("EGPSD") + "".join(rng.choice("0123456789") for _ in range(8))


def plain_number(rng: random.Random) -> str:
    """Numbers of everyday life."""
    return rng.choice([
        f"{rng.uniform(0, 99999):.2f}", f"2024-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}", f"{rng.randint(1, 10**7):,}",
        f"No. {rng.randint(10**5, 10**7 - 1)}", f"{rng.randint(10, 23)}:{rng.randint(10, 59)}", f"{rng.uniform(0, 1):.10f}", f"v{rng.randint(1, 9)}.{rng.randint(0, 20)}.1",
        f"INV-{rng.randint(10**8, 10**9 - 1)}", f"{rng.randint(1, 999)} 件 x {rng.randint(1, 99)}", f"[{rng.randint(0, 1000)},{rng.randint(0, 1000)},{rng.randint(0, 1000)},{rng.randint(0, 1000)}]",
    ])  # fmt: skip


def _grouped(
    make: Callable[[random.Random], str], groups: tuple[tuple[int, ...], ...]
) -> Callable[[random.Random], str]:
    return lambda rng: _spaced(rng, make(rng), groups)


_ID = ((6, 8), (6, 4, 4), (3, 3, 4, 4))
_CARD = ((4, 4, 4), (4, 4, 4, 4))
SECRETS: dict[str, tuple[Callable[[random.Random], str], ...]] = {
    "id": (_grouped(id_number, _ID), _grouped(id_number, _ID), _grouped(old_id, ((6, 6),))),
    "card": (_grouped(card, _CARD),),
    "phone": (phone,),
    "email": (email,),
    "plate": (plate,),
    "passport": (passport,),
    "name": (name,),
}
NEAR: dict[str, tuple[Callable[[random.Random], str], ...]] = {
    "id": (_grouped(wrong_id, _ID),),
    "card": (_grouped(wrong_card, _CARD),),
    "phone": (no_phone,),
    "email": (no_email,),
    "plate": (no_plate,),
    "passport": (no_passport,),
    "plain": (plain_number,),
}


def cases(seed: int, each: int) -> list[Case]:
    """`each` strings of every kind with something personal, and as many near misses."""
    rng = random.Random(seed)
    found = []
    for keep, table in ((False, SECRETS), (True, NEAR)):
        for kind, makers in table.items():
            for number in range(each):
                secret = makers[number % len(makers)](rng)
                found.append(Case(rng.choice(SENTENCES).format(secret), secret, kind, keep))
    return found


def core(case: Case) -> str:
    """The part of a secret that must be gone: without the label in front of it."""
    if case.kind == "passport":
        return case.secret[-9:]
    if case.kind == "name":
        return re.split("[：:=]", case.secret)[-1].strip(' "')
    return case.secret


def measured(seed: int, each: int) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]], list[Case]]:
    """(hidden of secrets by kind, untouched of near misses by kind, the wrong ones)."""
    reader = Redact({}, About()).reader
    recall: dict[str, tuple[int, int]] = {}
    precision: dict[str, tuple[int, int]] = {}
    wrong = []
    for case in cases(seed, each):
        said, _ = reader.read(case.text)
        if case.keep:
            right = said == case.text
            table = precision
        else:
            # How far a name goes cannot be seen from outside: words behind it may be hidden with it.
            right = core(case) not in said if case.kind == "name" else _gone(core(case), case.text, said)
            table = recall
        hits, all_ = table.get(case.kind, (0, 0))
        table[case.kind] = (hits + right, all_ + 1)
        if not right:
            wrong.append(case)
    return recall, precision, wrong


def _gone(secret: str, text: str, said: str) -> bool:
    """Whether exactly the secret is hidden: the sentence around it stays, and of the secret not a letter does."""
    before, _, after = text.rpartition(secret)
    hidden = said[len(before) : len(said) - len(after)]
    return said.startswith(before) and said.endswith(after) and not any(char.isalnum() for char in hidden)


def main() -> None:
    """Print the figures."""
    recall, precision, wrong = measured(20261201, 500)
    for title, table in (("hidden of what is personal (recall)", recall), ("near misses left alone", precision)):
        print(title)
        for kind, (right, count) in table.items():
            print(f"  {kind:9} {right:5} of {count:5}  {100 * right / count:6.2f}%")
        right, count = (sum(pair[at] for pair in table.values()) for at in (0, 1))
        print(f"  all       {right:5} of {count:5}  {100 * right / count:6.2f}%")
    hidden = sum(right for right, _ in recall.values())
    touched = sum(count - right for right, count in precision.values())
    print(f"precision {100 * hidden / (hidden + touched):.2f}%")
    for case in sorted(wrong, key=lambda case: case.keep)[-40:]:
        print("wrong:", case.kind, "keep" if case.keep else "hide", repr(case.text))


if __name__ == "__main__":
    main()
