# ruff: noqa: E501, SIM905  (tables of words)
"""Pictures to look at: scenes of shapes and objects, plates to inspect, charts, garments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from PIL import Image, ImageDraw, ImageFilter

from demo_model import words
from demo_model.canvas import Colour, face_name, font, ink, paper, sheet
from demo_model.documents import with_schema
from demo_model.sample import BOX_SCHEMA, Number, Turn, schema_of, written
from demo_model.words import Values, wording

if TYPE_CHECKING:
    from random import Random

Box = tuple[float, float, float, float]

COLOURS: Final[dict[str, tuple[str, Colour]]] = {
    "red": ("红色", (214, 38, 36)),
    "blue": ("蓝色", (34, 84, 208)),
    "green": ("绿色", (36, 150, 62)),
    "yellow": ("黄色", (244, 212, 40)),
    "orange": ("橙色", (245, 136, 24)),
    "purple": ("紫色", (130, 54, 170)),
    "pink": ("粉色", (246, 150, 190)),
    "brown": ("棕色", (124, 78, 44)),
    "black": ("黑色", (22, 22, 24)),
    "gray": ("灰色", (136, 138, 142)),
}
SHAPES: Final = {
    "circle": "圆形",
    "square": "正方形",
    "triangle": "三角形",
    "star": "星形",
    "diamond": "菱形",
    "ring": "圆环",
    "cross": "十字",
    "hexagon": "六边形",
    "house": "房子",
    "tree": "树",
    "car": "汽车",
    "cup": "杯子",
    "fish": "鱼",
    "flower": "花",
}


def plural(noun: str) -> str:
    if noun == "fish":
        return noun
    return noun + ("es" if noun.endswith(("s", "x", "ss")) else "s")


def tint(rng: Random, colour: Colour, spread: int = 16) -> Colour:
    shifted = [max(0, min(255, channel + rng.randint(-spread, spread))) for channel in colour]
    return (shifted[0], shifted[1], shifted[2])


def units(box: Box, width: int, height: int) -> list[int]:
    """A box of pixels as [x1, y1, x2, y2] in thousandths of the picture."""
    left, top, right, bottom = box
    scaled = (left / width, top / height, right / width, bottom / height)
    return [max(0, min(1000, round(1000 * part))) for part in scaled]


def _regular(
    centre: tuple[float, float], radius: float, corners: int, turn: float = -90, inner: float = 0
) -> list[tuple[float, float]]:
    points = []
    steps = corners * (2 if inner else 1)
    for step in range(steps):
        reach = radius * (inner if inner and step % 2 else 1)
        angle = math.radians(turn + 360 * step / steps)
        points.append((centre[0] + reach * math.cos(angle), centre[1] + reach * math.sin(angle)))
    return points


def draw_shape(rng: Random, draw: ImageDraw.ImageDraw, shape: str, box: Box, fill: Colour, held: bool) -> Box:
    """Draw within `box`; the box really covered comes back. Held-out scenes use outlines that training never drew."""
    left, top, right, bottom = box
    wide, tall = right - left, bottom - top
    centre = ((left + right) / 2, (top + bottom) / 2)
    edge = None if not held else tuple(int(channel * 0.6) for channel in fill)
    radius = min(wide, tall) / 2
    match shape:
        case "circle":
            draw.ellipse(box, fill=fill, outline=edge)
            return box
        case "square":
            draw.rectangle(box, fill=fill, outline=edge)
            return box
        case "ring":
            draw.ellipse(box, outline=fill, width=max(3, int(radius * 0.35)))
            return box
        case "cross":
            third_x, third_y = wide / 3, tall / 3
            draw.rectangle((left + third_x, top, right - third_x, bottom), fill=fill)
            draw.rectangle((left, top + third_y, right, bottom - third_y), fill=fill)
            return box
        case "triangle":
            draw.polygon([(centre[0], top), (right, bottom), (left, bottom)], fill=fill, outline=edge)
            return box
        case "diamond":
            draw.polygon(
                [(centre[0], top), (right, centre[1]), (centre[0], bottom), (left, centre[1])], fill=fill, outline=edge
            )
            return box
        case "star" | "hexagon":
            points = _regular(centre, radius, 5, inner=0.42) if shape == "star" else _regular(centre, radius, 6, 0)
            draw.polygon(points, fill=fill, outline=edge)
            across, down = [x for x, _ in points], [y for _, y in points]
            return (min(across), min(down), max(across), max(down))
        case "house":
            roof = top + tall * 0.42
            draw.polygon([(centre[0], top), (right, roof), (left, roof)], fill=fill, outline=(60, 40, 40))
            draw.rectangle((left + wide * 0.1, roof, right - wide * 0.1, bottom), fill=fill)
            draw.rectangle(
                (centre[0] - wide * 0.1, bottom - tall * 0.28, centre[0] + wide * 0.1, bottom), fill=(250, 245, 225)
            )
            return box
        case "tree":
            draw.rectangle(
                (centre[0] - wide * 0.09, bottom - tall * 0.4, centre[0] + wide * 0.09, bottom), fill=(96, 64, 36)
            )
            draw.ellipse((left, top, right, bottom - tall * 0.28), fill=fill)
            return box
        case "car":
            upper, axle = top + tall * 0.35, bottom - tall * 0.3
            draw.rectangle((left + wide * 0.2, top + tall * 0.1, right - wide * 0.22, upper), fill=fill)
            draw.rectangle((left + wide * 0.26, top + tall * 0.16, right - wide * 0.28, upper), fill=(205, 228, 240))
            draw.rectangle((left, upper, right, bottom - tall * 0.15), fill=fill)
            for spot in (left + wide * 0.22, right - wide * 0.22):
                draw.ellipse((spot - tall * 0.16, axle - tall * 0.02, spot + tall * 0.16, bottom), fill=(35, 35, 35))
            return (left, top + tall * 0.1, right, bottom)
        case "cup":
            draw.ellipse(
                (right - wide * 0.42, top + tall * 0.25, right, bottom - tall * 0.28),
                outline=fill,
                width=max(2, int(wide * 0.08)),
            )
            draw.polygon(
                [(left, top), (right - wide * 0.22, top), (right - wide * 0.32, bottom), (left + wide * 0.1, bottom)],
                fill=fill,
            )
            return box
        case "fish":
            draw.polygon(
                [(right, top + tall * 0.15), (right, bottom - tall * 0.15), (right - wide * 0.4, centre[1])], fill=fill
            )
            draw.ellipse((left, top + tall * 0.1, right - wide * 0.25, bottom - tall * 0.1), fill=fill)
            eye = left + wide * 0.17
            draw.ellipse(
                (eye, centre[1] - tall * 0.15, eye + wide * 0.07, centre[1] - tall * 0.07), fill=(255, 255, 255)
            )
            return (left, top + tall * 0.1, right, bottom - tall * 0.1)
        case _:
            petal = radius * 0.38
            for x, y in _regular(centre, radius - petal, 5):
                draw.ellipse((x - petal, y - petal, x + petal, y + petal), fill=fill)
            draw.ellipse(
                (centre[0] - petal * 0.7, centre[1] - petal * 0.7, centre[0] + petal * 0.7, centre[1] + petal * 0.7),
                fill=(250, 230, 90),
            )
            middles = _regular(centre, radius - petal, 5)
            across, down = [x for x, _ in middles], [y for _, y in middles]
            return (min(across) - petal, min(down) - petal, max(across) + petal, max(down) + petal)


@dataclass(frozen=True)
class Thing:
    shape: str
    colour: str
    box: Box

    def called(self, lang: str) -> str:
        return f"{COLOURS[self.colour][0]}{SHAPES[self.shape]}" if lang == "zh" else f"{self.colour} {self.shape}"


def scene(rng: Random, width: int, height: int, held: bool) -> tuple[Image.Image, list[Thing], tuple[int, int] | None]:
    """The picture, its things, and which pair overlaps (the second of it lies in front)."""
    ground = rng.choice([(250, 250, 250), (235, 240, 245), (222, 236, 250), (245, 238, 222), (228, 240, 226)])
    if held:
        ground = rng.choice([(240, 232, 240), (232, 238, 232)])
    image, draw = sheet(width, height, tint(rng, ground, 6))
    horizon = None
    if rng.random() < 0.3:
        horizon = int(height * rng.uniform(0.55, 0.8))
        draw.rectangle((0, horizon, width, height), fill=tint(rng, (206, 220, 196), 10))
    side = min(width, height)
    things: list[Thing] = []
    count = rng.choice([1, 2, 3, 3, 4, 5, 6, 7, 8, 9])
    palette = rng.sample(list(COLOURS), rng.randint(2, 6))
    kinds = rng.sample(list(SHAPES), rng.randint(1, 4))
    biggest = min(0.45, 1.15 / math.sqrt(count + 1)) * side
    for _ in range(count * 12):
        if len(things) == count:
            break
        size = rng.uniform(max(20, biggest * 0.45), max(26, biggest))
        stretch = rng.uniform(0.8, 1.25)
        wide, tall = min(size * stretch, width - 6), min(size / stretch, height - 6)
        left, top = rng.uniform(2, width - wide - 3), rng.uniform(2, height - tall - 3)
        box = (left, top, left + wide, top + tall)
        if any(
            left < t.box[2] + 3 and t.box[0] < box[2] + 3 and top < t.box[3] + 3 and t.box[1] < box[3] + 3
            for t in things
        ):
            continue
        shape, colour = rng.choice(kinds), rng.choice(palette)
        covered = draw_shape(rng, draw, shape, box, tint(rng, COLOURS[colour][1]), held)
        things.append(Thing(shape, colour, covered))
    front = None
    if things and rng.random() < 0.3:
        back = rng.randrange(len(things))
        left, top, right, bottom = things[back].box
        wide, tall = right - left, bottom - top
        shift = (
            rng.choice([-1, 1]) * wide * rng.uniform(0.35, 0.6),
            rng.choice([-1, 1]) * tall * rng.uniform(0.3, 0.55),
        )
        box = (left + shift[0], top + shift[1], right + shift[0], bottom + shift[1])
        shape = rng.choice(["circle", "square", "triangle", "diamond", "hexagon", "star"])
        colour = rng.choice([name for name in COLOURS if name != things[back].colour])
        free = all(
            place == back or not (box[0] < t.box[2] and t.box[0] < box[2] and box[1] < t.box[3] and t.box[1] < box[3])
            for place, t in enumerate(things)
        )
        if free and box[0] > 1 and box[1] > 1 and box[2] < width - 1 and box[3] < height - 1 and min(wide, tall) > 18:
            covered = draw_shape(rng, draw, shape, box, tint(rng, COLOURS[colour][1]), held)
            things.append(Thing(shape, colour, covered))
            front = (back, len(things) - 1)
    return image, things, front


#: For training only: the whole scene at once teaches more about it than single questions.
LIST_ASKS: Final = {
    "en": (
        "List all things with their boxes.|Detect everything.|Find all objects and give their boxes as JSON.|"
        "What is in the scene, and where?|Locate every object.|Return every thing and its box.".split("|")
    ),
    "zh": "列出所有物体及其方框。|检测全部物体。|找出所有物体并给出边界框。|图中有什么，分别在哪里？|定位每个物体。".split(
        "|"
    ),
}


def listing(rng: Random, things: list[Thing], size: tuple[int, int], lang: str, hidden: int) -> Turn:
    """Every thing with its box, from left to right; one that lies half hidden is left out."""
    shown = sorted((t for place, t in enumerate(things) if place != hidden), key=lambda thing: thing.box[0])
    item = schema_of({"name": {"type": "string"}, "box": BOX_SCHEMA})
    answer = [{"name": thing.called(lang), "box": units(thing.box, *size)} for thing in shown]
    return Turn(rng.choice(LIST_ASKS[lang]), written(answer), "look", "json", {"type": "array", "items": item}, lang)


def scene_turns(
    rng: Random,
    things: list[Thing],
    front: tuple[int, int] | None,
    size: tuple[int, int],
    lang: str,
    held: bool,
    how_many: int,
) -> list[Turn]:
    width, height = size
    zh = lang == "zh"
    turns: list[Turn] = []
    by_name: dict[tuple[str, str], list[int]] = {}
    by_shape: dict[str, list[int]] = {}
    for place, thing in enumerate(things):
        by_name.setdefault((thing.colour, thing.shape), []).append(place)
        by_shape.setdefault(thing.shape, []).append(place)
    hidden = front[0] if front else -1
    single = [places[0] for places in by_name.values() if len(places) == 1]
    lone = [places[0] for places in by_shape.values() if len(places) == 1]

    def called(place: int) -> str:
        thing = things[place]
        if place in lone and rng.random() < 0.4:
            return SHAPES[thing.shape] if zh else thing.shape
        return thing.called(lang)

    def absent() -> str:
        while True:
            colour, shape = rng.choice(list(COLOURS)), rng.choice(list(SHAPES))
            if (colour, shape) not in by_name:
                return f"{COLOURS[colour][0]}{SHAPES[shape]}" if zh else f"{colour} {shape}"

    kinds = (
        ["count", "count"]
        + ["colour"] * bool(lone)
        + ["relation"] * 2 * (len(single) > 1)
        + ["locate"] * 2 * bool(single)
    )
    kinds += ["front"] * 2 * bool(front) + ["absent"]
    seen: set[str] = set()
    if not held and things and rng.random() < 0.4:
        turns.append(listing(rng, things, size, lang, hidden))
    for _ in range(how_many * 3):
        if len(turns) == how_many:
            break
        kind = rng.choice(kinds)
        if kind == "count":
            form = rng.random()
            if form < 0.45:
                shape = rng.choice(list(by_shape) or list(SHAPES)) if rng.random() < 0.8 else rng.choice(list(SHAPES))
                number = len(by_shape.get(shape, []))
                asked = SHAPES[shape] if zh else plural(shape)
            elif form < 0.75:
                colour = rng.choice(things).colour if things and rng.random() < 0.8 else rng.choice(list(COLOURS))
                number = sum(thing.colour == colour for thing in things)
                asked = f"{COLOURS[colour][0]}物体" if zh else f"{colour} things"
            elif form < 0.9 and things:
                thing = rng.choice(things)
                number = len(by_name[thing.colour, thing.shape])
                asked = thing.called(lang) if zh else f"{thing.colour} {plural(thing.shape)}"
            else:
                number, asked = len(things), "物体" if zh else "things"
            turn = Turn(wording(rng, words.COUNT_ASKS, lang, held).format(o=asked), str(number), "look", lang=lang)
        elif kind == "colour":
            thing = things[rng.choice(lone)]
            asked = SHAPES[thing.shape] if zh else thing.shape
            answer = COLOURS[thing.colour][0] if zh else thing.colour
            turn = Turn(wording(rng, words.COLOUR_ASKS, lang, held).format(o=asked), answer, "look", lang=lang)
        elif kind in ("relation", "front"):
            if kind == "front":
                assert front
                if not all(place in single for place in front):
                    continue
                one, other = front if rng.random() < 0.5 else (front[1], front[0])
            else:
                one, other = rng.sample(single, 2)
            prompt, _, relation = wording(rng, words.RELATION_ASKS, lang, held).partition("#")
            if (relation == "fr") != (kind == "front"):
                continue
            x, y = ((b[0] + b[2]) / 2 for b in (things[one].box, things[other].box))
            u, v = ((b[1] + b[3]) / 2 for b in (things[one].box, things[other].box))
            first, second = called(one), called(other)
            if relation == "lr":
                if abs(x - y) < width * 0.08:
                    continue
                answer = ("左边" if x < y else "右边") if zh else ("left" if x < y else "right")
            elif relation == "ab":
                if abs(u - v) < height * 0.08:
                    continue
                answer = ("上面" if u < v else "下面") if zh else ("above" if u < v else "below")
            else:
                answer = first if one == front[1] else second  # type: ignore[index]
                answer = answer if zh else f"the {answer}"
            turn = Turn(prompt.format(o=first, p=second), answer, "look", lang=lang)
        elif kind == "locate":
            place = rng.choice(single)
            if place == hidden:
                continue
            answer = written(units(things[place].box, width, height))
            prompt = wording(rng, words.LOCATE_ASKS, lang, held).format(o=called(place))
            turn = Turn(prompt, answer, "look", "box", BOX_SCHEMA, lang)
        else:
            table = rng.choice([words.LOCATE_ASKS, words.COLOUR_ASKS])
            prompt = wording(rng, table, lang, held).format(o=absent())
            turn = Turn(prompt, words.NOT_THERE[lang], "refuse", "refuse", lang=lang)
        if turn.prompt not in seen:
            seen.add(turn.prompt)
            turns.append(turn)
    return turns


# ---- inspection ---------------------------------------------------------------------------------------------------
DEFECTS: Final = {"scratch": "划痕", "dent": "凹陷", "hole": "孔洞", "stain": "污渍", "missing part": "缺件"}
MATERIALS: Final = {"metal": "金属", "fabric": "织物", "board": "电路板"}
#: The written rule: what caused a defect follows from the material and the kind of defect.
CAUSES: Final = {
    ("metal", "scratch"): ("handling", "搬运"),
    ("metal", "dent"): ("impact", "撞击"),
    ("metal", "hole"): ("corrosion", "腐蚀"),
    ("metal", "stain"): ("oil", "油污"),
    ("metal", "missing part"): ("assembly error", "装配错误"),
    ("fabric", "scratch"): ("abrasion", "磨损"),
    ("fabric", "dent"): ("pressure", "压痕"),
    ("fabric", "hole"): ("needle break", "断针"),
    ("fabric", "stain"): ("dye spill", "染料溅出"),
    ("fabric", "missing part"): ("loose thread", "线头松脱"),
    ("board", "scratch"): ("tool slip", "工具打滑"),
    ("board", "dent"): ("clamping", "夹持过紧"),
    ("board", "hole"): ("drill error", "钻孔错误"),
    ("board", "stain"): ("flux residue", "助焊剂残留"),
    ("board", "missing part"): ("placement error", "贴装错误"),
}


def plate(rng: Random, width: int, height: int, held: bool) -> tuple[Image.Image, str, str | None, Box | None]:
    """A surface with at most one defect: the picture, material, kind and box."""
    material = rng.choice(list(MATERIALS))
    kind = None if rng.random() < 0.17 else rng.choice(list(DEFECTS))
    if material == "metal":
        base = tint(rng, (168, 172, 178), 22)
        image, draw = sheet(width, height, base)
        for _ in range(rng.randint(10, 60)):
            line = rng.randint(0, height)
            draw.line((0, line, width, line), fill=tint(rng, base, 9))
    elif material == "fabric":
        base = tint(rng, rng.choice([(120, 140, 180), (176, 150, 130), (130, 160, 130), (190, 180, 170)]), 12)
        image, draw = sheet(width, height, base)
        pitch = rng.randint(4, 7) if not held else rng.randint(8, 9)
        dark = (base[0] - 16, base[1] - 16, base[2] - 16)
        for spot in range(0, max(width, height), pitch):
            draw.line((spot, 0, spot, height), fill=dark)
            draw.line((0, spot, width, spot), fill=dark)
    else:
        base = tint(rng, (32, 104, 62) if not held else (30, 66, 120), 12)
        image, draw = sheet(width, height, base)
        for _ in range(rng.randint(4, 12)):
            spot, level = rng.randint(0, width), rng.randint(0, height)
            bend = rng.randint(0, width)
            draw.line((spot, 0, spot, level, bend, level), fill=(base[0] + 40, base[1] + 40, base[2] + 20), width=2)
    # Parts in a grid: rivets, buttons or chips; a missing one leaves its mark.
    across, down = rng.randint(2, 4), rng.randint(2, 4)
    wide, tall = width / across, height / down
    reach = min(wide, tall) * rng.uniform(0.1, 0.16)
    gap = (rng.randrange(across), rng.randrange(down)) if kind == "missing part" else None
    box: Box | None = None
    for i in range(across):
        for j in range(down):
            x, y = (i + 0.5) * wide, (j + 0.5) * tall
            part = (x - reach, y - reach, x + reach, y + reach)
            mark = (base[0] // 2, base[1] // 2, base[2] // 2)
            if gap == (i, j):
                box = part
                if material == "board":
                    draw.rectangle(part, outline=(230, 230, 200), width=1)
                else:
                    draw.ellipse(part, outline=mark, width=1)
            elif material == "board":
                draw.rectangle(part, fill=(34, 34, 38), outline=(200, 200, 190))
            elif material == "metal":
                draw.ellipse(part, fill=(206, 208, 212), outline=(96, 98, 102))
            else:
                draw.ellipse(part, fill=(240, 236, 220), outline=(120, 110, 100))
    side = min(width, height)
    if kind and kind != "missing part":
        wide, tall = rng.uniform(0.12, 0.35) * side, rng.uniform(0.12, 0.35) * side
        if kind == "hole":
            wide = tall = rng.uniform(0.08, 0.18) * side
        left, top = rng.uniform(3, width - wide - 4), rng.uniform(3, height - tall - 4)
        box = (left, top, left + wide, top + tall)
        if kind == "scratch":
            bright = (246, 246, 246) if material != "fabric" else (70, 60, 60)
            ends = (box[0], box[1], box[2], box[3]) if rng.random() < 0.5 else (box[0], box[3], box[2], box[1])
            draw.line(ends, fill=bright, width=max(2, int(side * 0.012)))
        elif kind == "hole":
            draw.ellipse(box, fill=(8, 8, 8), outline=(base[0] // 2, base[1] // 2, base[2] // 2), width=2)
        elif kind == "dent":
            for ring in range(5):
                shrink = ring * 0.1
                level = 70 - ring * 26
                shade = tuple(max(0, min(255, channel - level)) for channel in base)
                draw.ellipse(
                    (left + wide * shrink, top + tall * shrink, left + wide * (1 - shrink), top + tall * (1 - shrink)),
                    fill=shade,
                )
        else:
            colour = {"metal": (92, 66, 30), "fabric": (120, 24, 50), "board": (196, 168, 90)}[material]
            for _ in range(9):
                small_w, small_h = wide * rng.uniform(0.4, 0.6), tall * rng.uniform(0.4, 0.6)
                x, y = rng.uniform(left, left + wide - small_w), rng.uniform(top, top + tall - small_h)
                draw.ellipse((x, y, x + small_w, y + small_h), fill=colour)
            draw.ellipse((left, top + tall * 0.25, left + wide, top + tall * 0.75), fill=colour)
            draw.ellipse((left + wide * 0.25, top, left + wide * 0.75, top + tall), fill=colour)
    if rng.random() < 0.5:
        image = image.filter(ImageFilter.GaussianBlur(0.5))
    return image, material, kind, box


def plate_turns(
    rng: Random, material: str, kind: str | None, box: Box | None, size: tuple[int, int], lang: str, held: bool
) -> list[Turn]:
    zh = lang == "zh"
    place = units(box, *size) if box else None
    cause = CAUSES[material, kind][1 if zh else 0] if kind else None
    named = (DEFECTS[kind] if zh else kind) if kind else None
    turns: list[Turn] = []
    properties: dict[str, Any] = {
        "defect": {"type": ["string", "null"]},
        "box": {"type": ["array", "null"], "items": {"type": "integer"}, "minItems": 4, "maxItems": 4},
        "cause": {"type": ["string", "null"]},
    }
    if rng.random() < 0.25:
        properties = {"material": {"type": "string"}, **properties}
    answer = {"material": MATERIALS[material] if zh else material, "defect": named, "box": place, "cause": cause}
    prompt = wording(rng, words.INSPECT_ASKS, lang, held)
    if "material" in properties or rng.random() < 0.5:
        prompt = with_schema(rng, prompt, schema_of(properties), lang, held)
    chosen = {key: answer[key] for key in properties}
    whole = Turn(prompt, written(chosen), "inspect", "json", schema_of(properties), lang)
    if named is None:
        brief = Turn(wording(rng, words.DEFECT_ASKS, lang, held), "无缺陷" if zh else "none", "inspect", lang=lang)
    else:
        brief = Turn(wording(rng, words.DEFECT_ASKS, lang, held), named, "inspect", lang=lang)
    if rng.random() < 0.4:
        turns.append(brief)
    turns.append(whole)
    if rng.random() < 0.5:
        missing = rng.choice([name for name in DEFECTS if name != kind])
        asked = DEFECTS[missing] if zh else missing
        prompt = wording(rng, words.LOCATE_ASKS, lang, held).format(o=asked)
        turns.insert(rng.randint(0, len(turns)), Turn(prompt, words.NOT_THERE[lang], "refuse", "refuse", lang=lang))
    elif kind and rng.random() < 0.4:
        prompt = wording(rng, words.LOCATE_ASKS, lang, held).format(o=named)
        turns.insert(0, Turn(prompt, written(place), "inspect", "box", BOX_SCHEMA, lang))
    return turns


# ---- charts -------------------------------------------------------------------------------------------------------
@dataclass
class Chart:
    image: Image.Image
    form: str
    labels: list[str]
    values: list[int]
    trend: str | None


TRENDS: Final = {"rising": "上升", "falling": "下降", "flat": "平稳"}


def chart(rng: Random, values: Values, width: int, height: int, chinese: bool) -> Chart:
    background, colour = paper(rng), ink(rng)
    image, draw = sheet(width, height, background)
    form = rng.choice(["bar", "bar", "line"])
    size = max(13 if not chinese else 15, min(22, int(min(width, height) / rng.uniform(12, 18))))
    face = font(face_name(rng, chinese, values.held), size)
    pool = rng.choice(
        [
            words.MONTHS,
            [f"Q{n}" for n in range(1, 5)],
            [str(year) for year in range(rng.randint(1990, 2010), 2030)],
            None,
            None,
        ]
    )
    if chinese and rng.random() < 0.5:
        pool = rng.choice([words.ZH_PLACES, [f"{n}月" for n in range(1, 13)]])
    bottom, left, top = height - size * 1.7, size * 3.0, size * rng.uniform(1.4, 2.4)
    room = width - left - 6
    most = max(2, min(8, int(room / (size * 2.0))))
    count = rng.randint(2, most)
    if pool is None:
        labels = list(dict.fromkeys(values.word()[: rng.randint(3, 6)] for _ in range(count)))
        labels = [label for label in labels if len(label) < 4 or words.is_held(label) == values.held]
    elif pool is words.MONTHS or form == "line":
        start = rng.randrange(max(1, len(pool) - count + 1))
        labels = pool[start : start + count]
    else:
        labels = rng.sample(pool, min(count, len(pool)))
    labels = [label for label in labels if face.getlength(label) < room / max(1, len(labels)) - 2] or ["A", "B", "C"][
        :count
    ]
    count = len(labels)
    step = rng.choice([1, 2, 5, 10, 20, 25, 50, 100])
    ticks = rng.randint(4, 6)
    peak = step * ticks
    printed = rng.random() < 0.7
    trend = None

    def draw_number() -> int:
        if printed:
            return rng.randint(max(1, peak // 12), peak)
        return rng.randint(1, ticks * 2) * step // 2 if step % 2 == 0 else rng.randint(1, ticks) * step

    numbers = [draw_number() for _ in labels]
    if form == "line" and count > 2 and rng.random() < 0.75:
        trend = rng.choice(list(TRENDS))
        if trend == "flat":
            numbers = [numbers[0]] * count
        else:
            numbers = sorted({draw_number() for _ in range(count * 3)})[:count] if count else numbers
            while len(numbers) < count:
                numbers.append(numbers[-1] + step)
            if trend == "falling":
                numbers.reverse()
        peak = max(peak, *numbers)
    elif form == "line":
        trend = None

    def level(number: float) -> float:
        return bottom - (bottom - top) * number / peak

    number_face = font(face_name(rng, False, values.held), max(12, size - 2))
    grid = rng.random() < 0.6 or not printed
    for tick in range(peak // step + 1):
        y = level(tick * step)
        if grid:
            draw.line((left, y, width - 4, y), fill=(200, 200, 200))
        text = str(tick * step)
        draw.text((left - 4 - number_face.getlength(text), y - size * 0.6), text, colour, number_face)
    draw.line((left, top - 3, left, bottom, width - 3, bottom), fill=colour, width=1)
    slot = room / count
    one = rng.choice(list(COLOURS.values()))[1] if rng.random() < 0.6 else None
    previous = None
    for place, (label, number) in enumerate(zip(labels, numbers, strict=True)):
        centre = left + slot * (place + 0.5)
        paint = tint(rng, one or rng.choice(list(COLOURS.values()))[1], 10)
        if form == "bar":
            half = slot * rng.uniform(0.3, 0.34)
            draw.rectangle(
                (centre - half, level(number), centre + half, bottom),
                fill=paint,
                outline=colour if values.held else None,
            )
        else:
            spot = (centre, level(number))
            if previous:
                draw.line((*previous, *spot), fill=one or colour, width=2)
            draw.ellipse((spot[0] - 3, spot[1] - 3, spot[0] + 3, spot[1] + 3), fill=one or colour)
            previous = spot
        if printed:
            text = str(number)
            draw.text(
                (centre - number_face.getlength(text) / 2, max(0, level(number) - size * 1.25)),
                text,
                colour,
                number_face,
            )
        draw.text((centre - face.getlength(label) / 2, bottom + 2), label, colour, face)
    return Chart(image, form, list(labels), numbers, trend)


def chart_turns(rng: Random, drawn: Chart, values: Values, lang: str, held: bool, how_many: int) -> list[Turn]:
    zh = lang == "zh"
    turns: list[Turn] = []
    labels, numbers = drawn.labels, drawn.values
    if rng.random() < 0.4:
        row = schema_of({"label": {"type": "string"}, "value": {"type": "number"}})
        listed: dict[str, Any] = {"type": "array", "items": row}
        answer: Any = [{"label": label, "value": Number(number)} for label, number in zip(labels, numbers, strict=True)]
        prompt = wording(rng, words.CHART_JSON_ASKS, lang, held)
        if rng.random() < 0.5:
            if rng.random() < 0.5:
                listed, answer = schema_of({"data": listed}), {"data": answer}
            prompt = with_schema(rng, prompt, listed, lang, held)
        return [Turn(prompt, written(answer), "chart", "json", listed, lang)]
    seen: set[str] = set()
    for _ in range(how_many * 4):
        if len(turns) == how_many:
            break
        prompt, _, what = wording(rng, words.CHART_ASKS, lang, held).partition("#")
        skill, kind = "chart", "text"
        if what == "v":
            place = rng.randrange(len(labels))
            asked, answer = labels[place], str(numbers[place])
            if rng.random() < 0.15:
                asked, answer, skill, kind = (
                    rng.choice(["XYZ", values.word(), values.goods()]),
                    words.NOT_THERE[lang],
                    "refuse",
                    "refuse",
                )
            prompt = prompt.format(o=asked)
        elif what == "t":
            if drawn.trend is None:
                continue
            answer = TRENDS[drawn.trend] if zh else drawn.trend
        else:
            best = max(numbers) if what == "max" else min(numbers)
            if numbers.count(best) > 1:
                continue
            answer = labels[numbers.index(best)]
        if prompt in seen or (what in seen and what != "v"):
            continue
        seen |= {prompt, what}
        turns.append(Turn(prompt, answer, skill, kind, lang=lang))
    return turns


# ---- garments -----------------------------------------------------------------------------------------------------
GARMENTS: Final = {
    "t-shirt": "T恤",
    "shirt": "衬衫",
    "dress": "连衣裙",
    "skirt": "半身裙",
    "trousers": "长裤",
    "shorts": "短裤",
    "coat": "大衣",
    "hoodie": "卫衣",
}
PATTERNS: Final = {"plain": "纯色", "stripes": "条纹", "dots": "圆点", "checks": "格子"}
FABRICS: Final = {"denim": "牛仔布", "knit": "针织", "linen": "亚麻", "silk": "丝绸", "cotton": "棉"}
NECKLINES: Final = {"round": "圆领", "v-neck": "V领", "collar": "翻领"}
AUDIENCES: Final = {"women": "女士", "men": "男士", "children": "儿童"}
OCCASIONS: Final = {"party": "聚会", "office": "办公", "sport": "运动", "leisure": "休闲"}


@dataclass(frozen=True)
class Garment:
    kind: str
    colour: str
    pattern: str
    fabric: str
    neckline: str | None

    @property
    def audience(self) -> str:
        """The written rule: dots are for children; dresses, skirts and silk for women; the rest for men."""
        if self.pattern == "dots":
            return "children"
        return "women" if self.kind in ("dress", "skirt") or self.fabric == "silk" else "men"

    @property
    def occasion(self) -> str:
        """The written rule: shorts and hoodies are for sport; silk for a party; collars and coats for the office; else leisure."""
        if self.kind in ("shorts", "hoodie"):
            return "sport"
        if self.fabric == "silk":
            return "party"
        return "office" if self.kind in ("shirt", "coat") or self.neckline == "collar" else "leisure"


def _outline(kind: str, box: Box) -> list[tuple[float, float]]:
    left, top, right, bottom = box

    def at(*points: tuple[float, float]) -> list[tuple[float, float]]:
        return [(left + x * (right - left), top + y * (bottom - top)) for x, y in points]

    match kind:
        case "t-shirt":
            return at(
                (0.3, 0),
                (0.7, 0),
                (1, 0.22),
                (0.88, 0.4),
                (0.76, 0.3),
                (0.76, 1),
                (0.24, 1),
                (0.24, 0.3),
                (0.12, 0.4),
                (0, 0.22),
            )
        case "shirt" | "hoodie":
            return at(
                (0.32, 0),
                (0.68, 0),
                (0.85, 0.12),
                (1, 0.75),
                (0.86, 0.8),
                (0.75, 0.32),
                (0.75, 1),
                (0.25, 1),
                (0.25, 0.32),
                (0.14, 0.8),
                (0, 0.75),
                (0.15, 0.12),
            )
        case "coat":
            return at(
                (0.35, 0),
                (0.65, 0),
                (0.82, 0.08),
                (1, 0.6),
                (0.88, 0.64),
                (0.76, 0.26),
                (0.84, 1),
                (0.16, 1),
                (0.24, 0.26),
                (0.12, 0.64),
                (0, 0.6),
                (0.18, 0.08),
            )
        case "dress":
            return at((0.32, 0), (0.42, 0.06), (0.58, 0.06), (0.68, 0), (0.7, 0.36), (1, 1), (0, 1), (0.3, 0.36))
        case "skirt":
            return at((0.28, 0), (0.72, 0), (1, 1), (0, 1))
        case "shorts":
            return at((0.1, 0), (0.9, 0), (1, 1), (0.56, 1), (0.5, 0.5), (0.44, 1), (0, 1))
        case _:
            return at((0.2, 0), (0.8, 0), (0.95, 1), (0.66, 1), (0.5, 0.3), (0.34, 1), (0.05, 1))


def garment(rng: Random, width: int, height: int, held: bool) -> tuple[Image.Image, Garment]:
    kind = rng.choice(list(GARMENTS))
    neck = rng.choice(list(NECKLINES)) if kind in ("t-shirt", "shirt", "coat") else None
    worn = Garment(
        kind,
        rng.choice([name for name in COLOURS if name != "black"]),
        rng.choice(list(PATTERNS)),
        rng.choice(list(FABRICS)),
        neck,
    )
    ground = tint(rng, (238, 234, 228) if not held else (226, 234, 238), 8)
    image, draw = sheet(width, height, ground)
    tall = height * rng.uniform(0.72, 0.92)
    wide = min(width * 0.9, tall * rng.uniform(0.7, 0.95))
    left, top = rng.uniform(2, width - wide - 2), rng.uniform(2, height - tall - 2)
    box = (left, top, left + wide, top + tall)
    base = tint(rng, COLOURS[worn.colour][1], 10)
    cloth = Image.new("RGB", (width, height), base)
    paint = ImageDraw.Draw(cloth)
    light = tuple(min(255, int(channel + (255 - channel) * 0.62)) for channel in base)
    unit = max(8, int(wide / rng.uniform(9, 13)))
    if worn.pattern == "stripes":
        for spot in range(0, height, unit * 2):
            paint.rectangle((0, spot, width, spot + unit - 1), fill=light)
    elif worn.pattern == "dots":
        for row, y in enumerate(range(0, height, unit * 2)):
            for x in range((row % 2) * unit, width, unit * 2):
                paint.ellipse((x - unit * 0.4, y - unit * 0.4, x + unit * 0.4, y + unit * 0.4), fill=light)
    elif worn.pattern == "checks":
        for spot in range(0, max(width, height), unit * 2):
            paint.rectangle((spot, 0, spot + unit // 2, height), fill=light)
            paint.rectangle((0, spot, width, spot + unit // 2), fill=light)
    dark = tuple(int(channel * 0.66) for channel in base)
    # Fabric shows as texture: slanted twill, rows of loops, loose weave, a sheen, or nothing (cotton).
    if worn.fabric == "denim":
        for spot in range(-height, width, 6):
            paint.line((spot, height, spot + height, 0), fill=dark, width=2)
    elif worn.fabric == "knit":
        for y in range(0, height, 9):
            for x in range(0, width, 8):
                paint.line((x, y, x + 4, y + 5, x + 8, y), fill=dark, width=1)
    elif worn.fabric == "linen":
        for spot in range(0, max(width, height), 5):
            paint.line((spot, 0, spot, height), fill=dark)
            paint.line((0, spot, width, spot), fill=dark)
    elif worn.fabric == "silk":
        for offset in (0.25, 0.5, 0.75):
            sheen = left + wide * offset
            paint.line(
                (sheen - wide * 0.12, 0, sheen + wide * 0.12, height),
                fill=(255, 255, 255),
                width=max(4, int(wide * 0.04)),
            )
    stencil = Image.new("L", (width, height), 0)
    outline = _outline(kind, box)
    ImageDraw.Draw(stencil).polygon(outline, fill=255)
    image.paste(cloth, (0, 0), stencil)
    draw.line([*outline, outline[0]], fill=dark, width=2)
    middle = left + wide / 2
    reach = wide * 0.16
    if neck == "round":
        draw.pieslice(
            (middle - reach, top - reach * 0.7, middle + reach, top + reach * 0.7), 0, 180, fill=ground, outline=dark
        )
    elif neck == "v-neck":
        draw.polygon(
            [(middle - reach, top), (middle + reach, top), (middle, top + reach * 1.5)], fill=ground, outline=dark
        )
    elif neck == "collar":
        draw.polygon(
            [(middle - reach, top), (middle, top + reach * 0.6), (middle - reach * 0.7, top + reach * 1.3)],
            fill=(250, 250, 250),
            outline=dark,
        )
        draw.polygon(
            [(middle + reach, top), (middle, top + reach * 0.6), (middle + reach * 0.7, top + reach * 1.3)],
            fill=(250, 250, 250),
            outline=dark,
        )
    if kind == "hoodie":
        draw.ellipse((middle - reach * 1.3, top - 2, middle + reach * 1.3, top + reach * 1.6), fill=dark, outline=light)
    if kind in ("shirt", "coat"):
        draw.line((middle, top + reach, middle, top + tall), fill=dark, width=2)
    return image, worn


def garment_turns(rng: Random, worn: Garment, lang: str, held: bool) -> list[Turn]:
    zh = lang == "zh"
    told = {
        "audience": (worn.audience, AUDIENCES[worn.audience]),
        "occasion": (worn.occasion, OCCASIONS[worn.occasion]),
        "fabric": (worn.fabric, FABRICS[worn.fabric]),
        "kind": (worn.kind, GARMENTS[worn.kind]),
        "colour": (worn.colour, COLOURS[worn.colour][0]),
        "pattern": (worn.pattern, PATTERNS[worn.pattern]),
        "neckline": (worn.neckline, NECKLINES[worn.neckline] if worn.neckline else None),
    }
    called = {
        "audience": "人群",
        "occasion": "场合",
        "fabric": "面料",
        "kind": "款式",
        "colour": "颜色",
        "pattern": "图案",
        "neckline": "领型",
    }
    turns: list[Turn] = []
    if rng.random() < 0.55:
        keys = ["audience", "occasion", "fabric"]
        prompt = wording(rng, words.GARMENT_ASKS, lang, held)
        if rng.random() < 0.6:
            points = [f"- {called[key] if zh else key}: {told[key][1 if zh else 0]}" for key in keys]
            return [Turn(prompt, "\n".join(points), "garment", lang=lang)]
        if rng.random() < 0.5:
            keys = keys + rng.sample(["kind", "colour", "pattern", "neckline"], rng.randint(1, 4))
        schema = schema_of({key: {"type": ["string", "null"]} for key in keys})
        prompt = with_schema(rng, prompt, schema, lang, held)
        return [
            Turn(prompt, written({key: told[key][1 if zh else 0] for key in keys}), "garment", "json", schema, lang)
        ]
    for key in rng.sample(list(told), rng.randint(2, 5)):
        prompt = wording(rng, words.GARMENT_PART_ASKS, lang, held).format(f=called[key] if zh else key)
        answer = told[key][1 if zh else 0]
        if answer is None:
            turns.append(Turn(prompt, words.NOT_THERE[lang], "refuse", "refuse", lang=lang))
        else:
            turns.append(Turn(prompt, answer, "garment", lang=lang))
    return turns
