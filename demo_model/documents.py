# ruff: noqa: SIM905, E501  (word lists read best as one string)
"""Pictures to read: lines of text, documents with labelled fields and tables, pages of headed clauses."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from demo_model import words
from demo_model.canvas import Colour, Font, face_name, font, ink, paper, sheet, skew
from demo_model.sample import Number, Turn, compact, schema_of, written
from demo_model.words import FIELDS, Field, Values, wording

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from PIL import Image, ImageDraw

TEXT_OR_NULL: Final[dict[str, Any]] = {"type": ["string", "null"]}
NUMBER_OR_NULL: Final[dict[str, Any]] = {"type": ["number", "null"]}
CURRENCIES: Final = ("", "", "$", "€", "¥", "£", "$ ")


def text_size(rng: Random, width: int, height: int, chinese: bool, lines: int) -> int:
    """From just legible to as large as the page allows for about `lines` lines of 16 characters."""
    low = 15 if chinese else 13
    high = max(low, min(34, int(height / (lines * 1.45)), int(width / (11 if chinese else 9.5))))
    return int(math.exp(rng.uniform(math.log(low), math.log(high))) + 0.5)


# ---- lines of text ------------------------------------------------------------------------------------------------
def text_lines(
    rng: Random, values: Values, width: int, height: int, chinese: bool, only_random: bool = False
) -> tuple[Image.Image, list[str]]:
    """Short strings on plain ground: the first thing to learn, and the row of random strings."""
    background, colour = paper(rng), ink(rng)
    if rng.random() < 0.12:
        background, colour = (
            (rng.randint(0, 70), rng.randint(0, 70), rng.randint(0, 90)),
            (240, 240, rng.randint(180, 255)),
        )
    image, draw = sheet(width, height, background)
    name = face_name(rng, chinese, values.held)
    lines: list[str] = []
    top = rng.randint(2, max(3, height // 6))
    most = 1 if only_random and rng.random() < 0.6 else rng.randint(1, 12)
    size = text_size(rng, width, height, chinese, min(most, 3))
    while len(lines) < most and top + size * 1.3 < height:
        for _ in range(6):
            if only_random:
                text = values.random_string()
            else:
                draws = [
                    values.word,
                    values.person,
                    values.goods,
                    values.code,
                    values.money,
                    values.date,
                    values.address,
                    values.random_string,
                    values.random_string,
                    values.company,
                ]
                if chinese:
                    draws = [
                        values.person_zh,
                        values.goods_zh,
                        values.company_zh,
                        values.date,
                        values.money,
                        values.code,
                    ]
                    if not values.held:
                        draws += [values.random_string_zh] * 5
                if not values.held and rng.random() < 0.15:
                    draws = [lambda: clause_text(rng, values, chinese)]
                text = rng.choice(draws)()
            room = width - 6 - font(name, size).getlength(text)
            if room >= 0:
                draw.text((3 + rng.uniform(0, room), top), text, colour, font(name, size))
                lines.append(text)
                break
        top += int(size * rng.uniform(1.25, 1.9))
        if rng.random() < 0.15:
            name = face_name(rng, chinese, values.held)
    return image, lines


def read_turns(rng: Random, lines: list[str], lang: str, held: bool, skill: str = "read") -> list[Turn]:
    if not lines:
        return []
    return [Turn(wording(rng, words.READ_ASKS, lang, held), "\n".join(lines), skill, lang=lang)]


# ---- documents ----------------------------------------------------------------------------------------------------
@dataclass
class Document:
    """What a drawn page says. `fields` holds what is printed; `absent` what its kind could have but has not."""

    kind: str
    image: Image.Image
    fields: dict[str, str]
    absent: list[str]
    table: list[dict[str, str]]
    chinese: bool


def draw_value(rng: Random, values: Values, field: Field, chinese: bool) -> str:
    zh = chinese and rng.random() < 0.7
    match field.draw:
        case "person":
            return values.person_zh() if zh else values.person()
        case "company":
            return values.company_zh() if zh else values.company()
        case "goods":
            return values.goods_zh() if zh else values.goods()
        case "payment":
            return rng.choice(words.PAYMENTS)[1 if chinese else 0]
        case "unit":
            return rng.choice(words.UNITS)[1 if chinese else 0]
        case "sex":
            return rng.choice(["男", "女"]) if chinese else rng.choice(["Male", "Female", "M", "F"])
        case "country":
            return rng.choice(words.COUNTRIES_ZH if chinese else words.COUNTRIES)
        case "age":
            return str(rng.randint(1, 99))
        case "phone":
            return (
                rng.choice(["", "+", ""]) + values.digits(7, 11)
                if rng.random() < 0.6
                else f"{values.digits(3, 3)}-{values.digits(4, 4)}"
            )
        case "digits":
            return values.digits(6, 18 if rng.random() < 0.3 else 12)
        case "weight":
            return f"{rng.randint(1, 999)} {rng.choice(['g', 'kg', 'ml'])}"
        case _:
            drawn: str = getattr(values, field.draw)()
            return drawn


#: What stands between label and value in training's "filled" rows; dots ("leader") are kept for evaluation.
FILLERS: Final = ("-", "- ", "_", "_ ", "=", "~", "* ", "+ ", "/", "> ", "|", "x ", "-=", "<>")


class Flow:
    """Rows of label and value, one under another, inside a column of the page."""

    def __init__(
        self,
        rng: Random,
        draw: ImageDraw.ImageDraw,
        box: tuple[int, int, int, int],
        faces: tuple[str, str],
        size: int,
        colour: Colour,
        arrangement: str,
    ) -> None:
        self.rng, self.draw, self.box, self.size, self.colour, self.arrangement = (
            rng,
            draw,
            box,
            size,
            colour,
            arrangement,
        )
        self.label_face, self.value_face = faces
        self.top = float(box[1])
        self.step = size * rng.uniform(1.3, 1.75)
        self.split = rng.uniform(0.36, 0.5)
        self.colon = rng.choice([":", ":", "", " :"]) if arrangement != "colon" else rng.choice([": ", ":", " : "])
        self.shade = rng.random() < 0.4
        self.filler = rng.choice(FILLERS) if arrangement == "filled" else "."
        self.count = 0
        self.rows: list[tuple[str, ...]] = []

    def _font(self, face: str) -> Font:
        return font(face, self.size)

    def row(self, label: str, value: str) -> bool:
        """Draw one row; False, with nothing drawn, where it does not fit."""
        left, _, right, bottom = self.box
        name, said = self._font(self.label_face), self._font(self.value_face)
        room = right - left
        tall = 2 if self.arrangement in ("stacked", "boxed") else 1
        if self.top + self.step * tall > bottom:
            return False
        long_label, long_value = name.getlength(label + self.colon), said.getlength(value)
        if self.arrangement == "stacked" or self.arrangement == "boxed":
            if max(long_label, long_value) > room:
                return False
            if self.arrangement == "boxed":
                self.draw.rectangle((left - 2, self.top, right, self.top + self.size * 1.2), fill=(205, 212, 222))
            self.draw.text((left, self.top), label, self.colour, name)
            self.draw.text(
                (left + (6 if self.arrangement == "boxed" else 0), self.top + self.size * 1.22),
                value,
                self.colour,
                said,
            )
            self.top += self.step * 0.4 + self.size * 1.9
            return True
        gap = self.size * 0.5
        if self.arrangement == "colon":
            if long_label + gap + long_value > room:
                return False
            spot = left + long_label + (gap if not self.colon.endswith(" ") else 1)
        elif self.arrangement == "columns" or self.arrangement == "table":
            spot = left + room * self.split
            if long_label + gap > room * self.split or long_value > room * (1 - self.split) - 2:
                return False
        else:
            spot = right - long_value
            if long_label + gap * 2 + long_value > room:
                return False
        if self.arrangement == "table":
            self.draw.rectangle((left - 3, self.top - 2, right, self.top + self.step - 2), outline=(120, 120, 120))
            self.draw.line((spot - 4, self.top - 2, spot - 4, self.top + self.step - 2), fill=(120, 120, 120))
        elif self.shade and self.count % 2:
            self.draw.rectangle((left - 3, self.top - 1, right + 2, self.top + self.step - 2), fill=(222, 226, 230))
        self.draw.text((left, self.top), label + self.colon, self.colour, name)
        if self.arrangement in ("leader", "filled"):
            count = max(0, int((spot - left - long_label - gap) / max(1.0, name.getlength(self.filler))) - 1)
            self.draw.text((left + long_label + gap / 2, self.top), self.filler * count, self.colour, name)
        self.draw.text((spot, self.top), value, self.colour, said)
        self.top += self.step
        self.count += 1
        return True

    def table(self, rows: Sequence[tuple[str, ...]], widths: tuple[float, ...], ruled: bool) -> int:
        """Draw rows of cells until one does not fit; how many were drawn."""
        left, _, right, bottom = self.box
        room = right - left
        face = self._font(self.value_face)
        drawn = 0
        if ruled:
            self.draw.line((left, self.top + 1, right, self.top + 1), fill=self.colour)
            self.top += 4
        for row in rows:
            if self.top + self.step > bottom:
                break
            if any(face.getlength(cell) > room * share - 3 for cell, share in zip(row, widths, strict=True)):
                if drawn == 0:
                    break
                continue
            spot = float(left)
            for place, (cell, share) in enumerate(zip(row, widths, strict=True)):
                shift = room * share - face.getlength(cell) - 2 if place else 0
                self.draw.text((spot + shift, self.top), cell, self.colour, face)
                spot += room * share
            self.top += self.step
            drawn += 1
            self.rows.append(row)
        if ruled and drawn:
            self.draw.line((left, self.top + 1, right, self.top + 1), fill=self.colour)
            self.top += 6
        return drawn


TITLES: Final = {
    "receipt": ("RECEIPT|Receipt|Sales receipt", "小票|收据|购物小票"),
    "invoice": ("INVOICE|Invoice|Tax invoice", "发票|销售发票"),
    "lab": ("LAB REPORT|Laboratory report|Test results", "检验报告|化验单"),
    "card": ("IDENTITY CARD|ID CARD|Member card|Staff card", "证件|会员卡|工作证"),
    "tag": ("SALE|PRICE|Offer", "特价|价签"),
}
TRAIN_ARRANGEMENTS: Final = ("colon", "colon", "justify", "stacked", "columns", "columns", "table", "filled", "filled")
HELD_ARRANGEMENTS: Final = ("leader", "boxed", "justify", "columns", "colon")


def document(
    rng: Random, values: Values, width: int, height: int, chinese: bool, kind: str | None = None, tilt: bool = True
) -> Document:
    kind = kind or rng.choice(list(words.DOCUMENTS))
    background, colour = paper(rng), ink(rng)
    if kind in ("card", "tag") and rng.random() < 0.5:
        background = (rng.randint(190, 255), rng.randint(190, 255), rng.randint(190, 255))
    image, draw = sheet(width, height, background)
    size = text_size(rng, width, height, chinese, rng.randint(6, 9))
    value_face = face_name(rng, chinese, values.held)
    label_face = value_face if rng.random() < 0.6 else face_name(rng, chinese, values.held)
    margin = rng.randint(4, max(5, width // 14))
    top = rng.randint(3, max(4, height // 14))
    if rng.random() < 0.25:
        draw.rectangle((1, 1, width - 2, height - 2), outline=colour, width=rng.randint(1, 2))
        margin += 3
        top += 3
    if kind == "card" and rng.random() < 0.5 and width > 260:
        # A portrait stands beside the fields.
        side = min(int(width * 0.24), int(height * 0.5))
        draw.rectangle((margin, top + size, margin + side, top + size + int(side * 1.25)), fill=(170, 180, 190))
        centre = margin + side / 2
        draw.ellipse(
            (centre - side / 4, top + size + side * 0.2, centre + side / 4, top + size + side * 0.7),
            fill=(225, 195, 170),
        )
        left = margin + side + size
    else:
        left = margin
    fields: dict[str, str] = {}
    big = font(label_face, int(size * rng.uniform(1.0, 1.4)))
    keys = list(words.DOCUMENTS[kind][0])
    title = rng.choice(TITLES[kind][1 if chinese else 0].split("|"))
    if "merchant" in keys and rng.random() < 0.45:
        title = draw_value(rng, values, FIELDS["merchant"], chinese)
        if big.getlength(title) <= width - left - margin:
            fields["merchant"] = title
        else:
            title = ""
        keys.remove("merchant")
        missing_merchant = "merchant" not in fields
    else:
        missing_merchant = False
    if title and big.getlength(title) <= width - left - margin:
        spot = left if rng.random() < 0.5 else (width + left - margin - big.getlength(title)) / 2
        draw.text((spot, top), title, colour, big)
        top += int(big.size * 1.5)
    arrangement = rng.choice(HELD_ARRANGEMENTS if values.held else TRAIN_ARRANGEMENTS)
    if width < size * 14:
        arrangement = "boxed" if values.held and rng.random() < 0.5 else "stacked"
    rng.shuffle(keys)
    boxes = [(left, top, width - margin, height - 3)]
    if width - left > size * 30 and rng.random() < 0.6:
        middle = (left + width) // 2
        boxes = [(left, top, middle - size, height - 3), (middle, top, width - margin, height - 3)]
    flows = [Flow(rng, draw, box, (label_face, value_face), size, colour, arrangement) for box in boxes]
    wanted = rng.randint(max(1, len(keys) // 3), len(keys))
    with_table = kind in ("receipt", "invoice", "lab") and height > size * 9 and rng.random() < 0.65
    before = rng.randint(1, wanted) if with_table else wanted
    money = rng.choice(CURRENCIES)
    table: list[dict[str, str]] = []

    def rows(some: list[str]) -> None:
        for place, key in enumerate(some):
            field = FIELDS[key]
            label = rng.choice((field.labels_zh if chinese else field.labels).split("|"))
            value = draw_value(rng, values, field, chinese)
            shown = money + value if field.draw == "money" else value
            flow = flows[place % len(flows)]
            if flow.row(label, shown):
                fields[key] = value

    rows(keys[:before])
    if with_table:
        flow = flows[0]
        flow.box = (left, flow.box[1], width - margin, height - 3)
        flow.top = max(each.top for each in flows)
        count = rng.randint(1, 7)
        if kind == "lab":
            cells = []
            for test in rng.sample(words.TESTS, count):
                low, high = test[3], test[4]
                digits = 1 if high < 100 else 0
                value = rng.uniform(low * 0.6, high * 1.5)
                value_text = f"{value:.{digits}f}" if digits else str(int(value))
                cells.append((test[1] if chinese else test[0], value_text, test[2]))
            flow.table(cells, (0.46, 0.24, 0.3), rng.random() < 0.6)
            table = [{"test": a, "value": b, "unit": c} for a, b, c in flow.rows]
        else:
            names: dict[str, None] = {}  # two rows of one name could not be told apart in a question
            while len(names) < count:
                names[values.goods_zh() if chinese and rng.random() < 0.8 else values.goods()] = None
            cells = [(name, str(rng.randint(1, 20)), values.money(500)) for name in names]
            flow.table(cells, (0.58, 0.14, 0.28), rng.random() < 0.6)
            table = [{"name": a, "quantity": b, "price": c} for a, b, c in flow.rows]
        flows = [flow]
        rows(keys[before:wanted])
    absent = [key for key in words.DOCUMENTS[kind][0] if key not in fields]
    if missing_merchant and "merchant" not in absent:
        absent.append("merchant")
    if rng.random() < 0.5 and tilt:
        image = skew(rng, image, background, 2.0)
    return Document(kind, image, fields, absent, table, chinese)


def _asked(rng: Random, field: Field, lang: str) -> str:
    return rng.choice((field.asked_zh if lang == "zh" else field.asked).split("|"))


def _kind_word(kind: str, lang: str) -> str:
    _, chinese, english = words.DOCUMENTS[kind]
    return chinese if lang == "zh" else english


def schema_text(rng: Random, schema: dict[str, Any]) -> str:
    return compact(schema) if rng.random() < 0.7 else json.dumps(schema, ensure_ascii=False)


def with_schema(rng: Random, prompt: str, schema: dict[str, Any], lang: str, held: bool) -> str:
    return prompt + wording(rng, words.SCHEMA_ASKS, lang, held) + schema_text(rng, schema)


def field_turn(rng: Random, page: Document, key: str, lang: str, held: bool) -> Turn:
    field = FIELDS[key]
    prompt = wording(rng, words.FIELD_ASKS, lang, held).format(
        f=_asked(rng, field, lang), d=_kind_word(page.kind, lang)
    )
    if key in page.fields:
        return Turn(prompt, page.fields[key], "field", lang=lang)
    return Turn(prompt, words.NOT_THERE[lang], "refuse", "refuse", lang=lang)


def table_turn(rng: Random, page: Document, lang: str, held: bool) -> Turn:
    row = rng.choice(page.table)
    name = row.get("name") or row["test"]
    column = rng.choice([key for key in row if key not in ("name", "test")])
    called = {
        "price": ("price", "价格"),
        "quantity": ("quantity", "数量"),
        "value": ("value", "结果"),
        "unit": ("unit", "单位"),
    }[column]
    asked = f"{name}的{called[1]}" if lang == "zh" else f"{called[0]} of {name}"
    prompt = wording(rng, words.FIELD_ASKS, lang, held).format(f=asked, d=_kind_word(page.kind, lang))
    return Turn(prompt, row[column], "field", lang=lang)


def _other_key(rng: Random, field: Field, name: str) -> str:
    """The same field under another name of JSON: nothing but reading the key tells what is meant."""
    asked = rng.choice(field.asked.split("|"))
    parts = asked.split(" ")
    label = rng.choice(field.labels.split("|"))
    chinese = rng.choice((field.asked_zh + "|" + field.labels_zh).split("|"))
    camel = parts[0] + "".join(part.capitalize() for part in parts[1:])
    return rng.choice([asked, asked.replace(" ", "_"), camel, name.upper(), name.capitalize(), label, chinese])


def record_turn(rng: Random, page: Document, lang: str, held: bool) -> Turn:
    """The whole record, or some of it, with null for what the page has not."""
    keys = [key for key in page.fields if rng.random() < 0.85] or list(page.fields)
    keys += [key for key in page.absent if rng.random() < 0.25]
    if rng.random() < 0.5:
        rng.shuffle(keys)
    keys = keys[:10]
    chinese_keys = lang == "zh" and rng.random() < 0.3
    properties: dict[str, Any] = {}
    answer: dict[str, Any] = {}
    for key in keys:
        field = FIELDS[key]
        name = field.key_zh if chinese_keys else key
        if not held and rng.random() < 0.15:
            name = _other_key(rng, field, name)
        if name in properties:
            continue
        properties[name] = NUMBER_OR_NULL if field.number else TEXT_OR_NULL
        value = page.fields.get(key)
        answer[name] = None if value is None else Number(value) if field.number else value
    if page.table and rng.random() < 0.6:
        row = page.table[0]
        name = "results" if "test" in row else "items"
        number = {"quantity": {"type": "integer"}, "price": {"type": "number"}, "value": {"type": "number"}}
        properties[name] = {
            "type": "array",
            "items": schema_of({key: number.get(key, {"type": "string"}) for key in row}),
        }
        answer[name] = [
            {key: Number(cell) if key in number else cell for key, cell in each.items()} for each in page.table
        ]
    prompt = wording(rng, words.RECORD_ASKS, lang, held).format(d=_kind_word(page.kind, lang))
    schema = schema_of(properties)
    if rng.random() < 0.6:
        prompt = with_schema(rng, prompt, schema, lang, held)
    else:
        prompt += wording(rng, words.KEY_ASKS, lang, held).format(k=", ".join(properties))
    return Turn(prompt, written(answer), "record", "json", schema, lang)


def document_turns(rng: Random, page: Document, lang: str, held: bool, how_many: int) -> list[Turn]:
    turns: list[Turn] = []
    if not page.fields and not page.table:
        return turns
    if rng.random() < 0.5 and page.fields:
        turns.append(record_turn(rng, page, lang, held))
        if page.absent and rng.random() < 0.3:
            turns.append(field_turn(rng, page, rng.choice(page.absent), lang, held))
        return turns
    keys = list(page.fields)
    rng.shuffle(keys)
    asks: list[tuple[str, str]] = [("field", key) for key in keys]
    asks += [("field", key) for key in rng.sample(page.absent, min(len(page.absent), rng.choice([0, 1, 1, 2])))]
    if page.table:
        asks += [("table", "")] * rng.randint(1, 3)
    rng.shuffle(asks)
    for what, key in asks[:how_many]:
        turns.append(field_turn(rng, page, key, lang, held) if what == "field" else table_turn(rng, page, lang, held))
    return turns


# ---- contracts ----------------------------------------------------------------------------------------------------
HEADINGS: Final = (
    ("Payment", "付款"),
    ("Term", "期限"),
    ("Liability", "责任"),
    ("Delivery", "交付"),
    ("Warranty", "保修"),
    ("Notice", "通知"),
    ("Governing Law", "适用法律"),
    ("Termination", "终止"),
    ("Confidentiality", "保密"),
    ("Services", "服务"),
    ("Fees", "费用"),
    ("Insurance", "保险"),
    ("Assignment", "转让"),
    ("Disputes", "争议"),
    ("Force Majeure", "不可抗力"),
    ("Taxes", "税费"),
    ("Inspection", "验收"),
    ("Renewal", "续约"),
    ("Penalties", "违约金"),
    ("Scope", "范围"),
)
CLAUSES: Final = (
    "The buyer pays {m} within {n} days.|The seller delivers the goods by {d}.|This contract runs until {d}.|"
    "Either party may end it with {n} days notice.|All notices go to {p}.|The fee is {m} per month.|"
    "Late payment costs {n} percent interest.|The supplier is liable up to {m}.|The goods are covered for {n} months.|"
    "Both parties keep the terms secret.|The law of {c} applies.|{p} signs for the buyer.|{o} provides the service.|"
    "No party may assign this contract.|Disputes go to the court of {c}.|Taxes are paid by the buyer.|"
    "The contract renews every {n} months.|Damage must be reported within {n} days.|{o} insures the goods for {m}.|"
    "The work starts on {d}.|Changes need the written consent of {p}.|The deposit of {m} is returned.".split("|"),
    "The service of {o} begins on {d}.|The buyer returns damaged goods within {n} days.|The court of {c} decides.|"
    "{p} pays the deposit of {m}.".split("|"),
)
CLAUSES_ZH: Final = (
    "买方应在{n}天内支付{m}元。|卖方于{d}前交货。|本合同有效期至{d}。|任何一方可提前{n}天通知终止。|通知应送达{p}。|每月费用为{m}元。|"
    "逾期付款按{n}%计息。|保修期为{n}个月。|双方应对内容保密。|{o}提供服务。|不得转让本合同。|税费由买方承担。|{p}代表买方签字。".split(
        "|"
    ),
    "服务自{d}开始。|押金{m}元由{p}支付。|买方应在{n}天内验收。".split("|"),
)
SALAD: Final = (
    "the buyer seller party goods service payment contract days months notice written court law fee price damage work term "
    "may must shall will pays returns keeps signs covers starts ends within after before until for of to by with and or not "
    "all any each new full part copy office person supplier customer order delivery report record order deposit interest"
).split()


SALAD_ZH: Final = (
    "买方 卖方 双方 任何一方 应在 须在 可于 天内 之前 以后 支付 退还 交付 验收 承担 通知 服务 货物 合同 押金 费用 税费 由 自 至 起 开始 终止 "
    "书面 同意 不得 转让 保密 责任 期限 每月 赔偿 损坏 负责 签字 法院 裁决 续约 逾期 利息 供应商 保险 的 和 或 与 及 按 每 元 个月 日"
).split()


def loose(rng: Random, values: Values) -> str:
    """A value, a number or bare characters, to be read between the words of a clause."""
    form = rng.randrange(6)
    if form == 0:
        return values.person_zh()
    if form == 1:
        return values.date()
    if form == 2:
        return values.money(9000)
    if form == 3:
        return str(rng.randint(2, 90))
    return values.random_string_zh()


#: Words that only held-out clauses have; training's are never made into one of them.
KEPT_WORDS: Final = frozenset(re.findall(r"[a-z]+", " ".join(CLAUSES[1]).lower())) - frozenset(
    re.findall(r"[a-z]+", " ".join((*CLAUSES[0], *SALAD)).lower())
)
ENDINGS: Final = ("s", "d", "ed", "ing", "er", "al", "ly", "es", "t", "n")


def some_word(rng: Random, values: Values) -> str:
    """A word of training's clauses: known, known with another ending, or without sense."""
    form = rng.random()
    if form < 0.5:
        return rng.choice(SALAD)
    if form < 0.85:
        while True:
            word = rng.choice(SALAD)
            made = word[: rng.randint(2, len(word))] + rng.choice(ENDINGS) if form < 0.72 else values.word().lower()
            if made not in KEPT_WORDS:
                return made
    return values.word()


def shaken(rng: Random, values: Values, text: str, chinese: bool) -> str:
    """A clause, or the form of one, with some words (in Chinese: characters) exchanged, left out or put in.

    It cannot be guessed, only read.
    """
    pieces = re.findall(r"\{\w\}|.", text) if chinese else text.split(" ")
    for _ in range(rng.randint(1, max(2, len(pieces) // 4))):
        place = rng.randrange(len(pieces))
        new = rng.choice(words.ZH_ALPHABET) if chinese else some_word(rng, values)
        change = rng.random()
        if change < 0.5 or len(pieces) < 4:
            pieces[place] = new
        elif change < 0.75:
            pieces.insert(place, new)
        else:
            del pieces[place]
    return ("" if chinese else " ").join(pieces)


def filled(rng: Random, values: Values, form: str, chinese: bool) -> str:
    return form.format(
        m=values.money(9000),
        n=rng.randint(2, 90),
        d=values.date(),
        p=values.person_zh() if chinese else values.person(),
        o=values.company_zh() if chinese else values.company(),
        c=rng.choice(words.COUNTRIES),
    )


def clause_text(rng: Random, values: Values, chinese: bool) -> str:
    held = values.held
    if not chinese and rng.random() < (0.35 if held else 0.6):
        count = rng.randint(5, 10)
        if held:
            line = " ".join(rng.choice(SALAD) if rng.random() < 0.85 else values.word() for _ in range(count))
        else:
            line = " ".join(some_word(rng, values) for _ in range(count))
            if rng.random() < 0.4:
                line += " " + rng.choice([values.date, lambda: values.money(9000), values.person, values.company])()
        return line[0].upper() + line[1:] + "."
    if chinese and not held and rng.random() < 0.55:
        return (
            "".join(
                rng.choice(SALAD_ZH) if rng.random() < 0.65 else loose(rng, values) for _ in range(rng.randint(3, 7))
            )
            + "。"
        )
    side = 1 if held else 0
    text = filled(rng, values, rng.choice(CLAUSES_ZH[side] if chinese else CLAUSES[side]), chinese)
    return shaken(rng, values, text, chinese) if not held and rng.random() < 0.65 else text


def clause_texts(rng: Random, values: Values, chinese: bool) -> Callable[[], str]:
    """What draws the sentences of one page. Many pages of training say the same again and again with other values, so
    that the place has to be kept, not only the words before."""

    def any_text() -> str:
        return clause_text(rng, values, chinese)

    if values.held or rng.random() < 0.5:
        return any_text
    forms = [rng.choice(CLAUSES_ZH[0] if chinese else CLAUSES[0]) for _ in range(rng.randint(1, 4))]
    forms = [shaken(rng, values, form, chinese) if rng.random() < 0.7 else form for form in forms]
    return lambda: filled(rng, values, rng.choice(forms), chinese) if rng.random() < 0.8 else any_text()


def wrap(text: str, face: Font, room: float, chinese: bool) -> list[str]:
    pieces = list(text) if chinese else text.split(" ")
    glue = "" if chinese else " "
    lines: list[str] = []
    line = ""
    for piece in pieces:
        longer = line + glue + piece if line else piece
        if line and face.getlength(longer) > room:
            lines.append(line)
            line = piece
        else:
            line = longer
    return [*lines, line]


def contract(
    rng: Random, values: Values, width: int, height: int, chinese: bool, tilt: bool = True
) -> tuple[Image.Image, list[dict[str, str]]]:
    background, colour = paper(rng), ink(rng)
    image, draw = sheet(width, height, background)
    size = min(24, text_size(rng, width, height, chinese, 10))
    face = face_name(rng, chinese, values.held)
    body = font(face, size)
    head = font(face_name(rng, chinese, values.held), int(size * rng.uniform(1.0, 1.25)))
    margin, top = rng.randint(4, max(5, width // 12)), float(rng.randint(3, 12))
    if rng.random() < 0.4:
        title = ("合同" if chinese else "CONTRACT") if not values.held else ("协议" if chinese else "AGREEMENT")
        draw.text(((width - head.getlength(title)) / 2, top), title, colour, head)
        top += head.size * 1.6
    numbered = rng.choice(["", "{n}. ", "{n}) "]) if not values.held else rng.choice(["", "§{n} ", "{n}. "])
    sentence = clause_texts(rng, values, chinese)
    clauses: list[dict[str, str]] = []
    for pair in rng.sample(HEADINGS, rng.randint(2, 6)):
        heading = pair[1] if chinese else pair[0]
        text = ("" if chinese else " ").join(sentence() for _ in range(rng.choice([1, 1, 2])))
        lines = wrap(text, body, width - 2 * margin - 4, chinese)
        if (
            top + head.size * 1.4 + len(lines) * size * 1.3 > height
            or max(body.getlength(line) for line in lines) > width - margin
        ):
            break
        draw.text((margin, top), numbered.format(n=len(clauses) + 1) + heading, colour, head)
        top += head.size * 1.35
        for line in lines:
            draw.text((margin + 2, top), line, colour, body)
            top += size * 1.28
        top += size * rng.uniform(0.3, 0.8)
        clauses.append({"heading": heading, "text": text})
    if rng.random() < 0.4 and tilt:
        image = skew(rng, image, background, 1.2)
    return image, clauses


def contract_turns(rng: Random, clauses: list[dict[str, str]], chinese: bool, lang: str, held: bool) -> list[Turn]:
    if not clauses:
        return []
    if rng.random() < 0.55:
        item = schema_of({"heading": {"type": "string"}, "text": {"type": "string"}})
        listed: dict[str, Any] = {"type": "array", "items": item}
        prompt = wording(rng, words.CONTRACT_ASKS, lang, held)
        answer: Any = clauses
        if rng.random() < 0.5:
            if rng.random() < 0.5:
                listed, answer = schema_of({"clauses": listed}), {"clauses": clauses}
            prompt = with_schema(rng, prompt, listed, lang, held)
        return [Turn(prompt, written(answer), "contract", "json", listed, lang)]
    turns = []
    absent = [pair[1] if chinese else pair[0] for pair in HEADINGS]
    absent = [heading for heading in absent if heading not in {clause["heading"] for clause in clauses}]
    asked = rng.sample(clauses, min(len(clauses), 3))
    for clause in asked:
        prompt = wording(rng, words.CLAUSE_ASKS, lang, held).format(f=clause["heading"])
        turns.append(Turn(prompt, clause["text"], "contract", lang=lang))
    if rng.random() < 0.6:
        prompt = wording(rng, words.CLAUSE_ASKS, lang, held).format(f=rng.choice(absent))
        turns.insert(rng.randint(0, len(turns)), Turn(prompt, words.NOT_THERE[lang], "refuse", "refuse", lang=lang))
    return turns
