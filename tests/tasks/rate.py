"""How often the shipped tasks answer rightly with the demo model, on pictures that it has never seen.

    python -m tests.tasks.rate [--each 12] [--url http://127.0.0.1:8000]

Pictures come from seeds of the generator that neither training nor the examples use. The tasks hold no answers and no
rules for single pictures; what is compared is the finished result, field by field.
"""

from __future__ import annotations

import argparse
import base64
import io
import random
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from demo_model.documents import contract, document
from demo_model.scenes import CAUSES, chart, garment, plate, units
from demo_model.words import FIELDS, Values
from tests.serving.harness import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from PIL import Image

FIRST_SEED = 5 << 40  # the examples begin at 2 << 40, the held-out set at 1 << 40
NUMBERS = {key for key, field in FIELDS.items() if field.number}

Case = tuple["Image.Image", dict[str, Any]]  # a picture, and the right value of each field


def cases(task: str, each: int) -> Iterator[Case]:
    """`each` pictures for a task, with fonts and wordings of training, as the examples have them."""
    made = 0
    seed = FIRST_SEED + sum(map(ord, task)) * 100_000
    while made < each:
        seed += 1
        rng = random.Random(seed)
        found = _case(task, rng, Values(rng, held=False))
        if found:
            made += 1
            yield found


def _case(task: str, rng: random.Random, values: Values) -> Case | None:
    width, height = rng.randint(280, 460), rng.randint(260, 420)
    if task in ("receipt", "lab-report", "id-card"):
        kind = {"receipt": "receipt", "lab-report": "lab", "id-card": "card"}[task]
        page = document(rng, values, width, height, chinese=False, kind=kind)
        return (page.image, _of_document(task, page.fields, page.table)) if len(page.fields) > 2 else None
    if task == "contract-clauses":
        image, clauses = contract(rng, values, width, height, chinese=False)
        return (image, _of_contract(clauses)) if clauses else None
    if task == "inspect-defect":
        image, material, kind_, box = plate(rng, width, height, held=False)
        cause = CAUSES[material, kind_][0] if kind_ else None
        return image, {"defect": kind_, "cause": cause, "box": units(box, width, height) if box else None}
    if task == "chart-to-table":
        drawn = chart(rng, values, width, height, chinese=False)
        return drawn.image, {"rows": [[label, value] for label, value in zip(drawn.labels, drawn.values, strict=True)]}
    image, worn = garment(rng, width, height, held=False)
    craft = [one for one in (worn.fabric, worn.pattern, worn.neckline) if one]
    return image, {"audience": worn.audience, "occasions": [worn.occasion], "fabric_and_craft": craft}


def _of_document(task: str, said: dict[str, str], table: list[dict[str, str]]) -> dict[str, Any]:
    keys = {
        "receipt": ("merchant", "receipt_no", "date", "time", "payment", "total", "tax", "discount"),
        "lab-report": ("patient", "report_no", "date", "sex", "age", "doctor"),
        "id-card": ("name", "id_number", "birth_date", "sex", "country", "expiry", "address", "phone"),
    }[task]
    right: dict[str, Any] = {}
    for key in keys:
        value = said.get(key)
        right[key] = float(value) if value is not None and key in NUMBERS else value
    if task == "receipt":
        right["items"] = [
            {"name": row["name"], "quantity": int(row["quantity"]), "price": float(row["price"])} for row in table
        ]
    if task == "lab-report":
        right["results"] = [(row["test"], float(row["value"]), row["unit"]) for row in table]
    if task == "id-card":
        for key in ("id_number", "phone"):
            right[key] = "".join("*" if char.isalnum() else char for char in right[key]) if right[key] else None
    return right


def _of_contract(clauses: list[dict[str, str]]) -> dict[str, Any]:
    order = (
        "payment",
        "term",
        "termination",
        "liability",
        "delivery",
        "warranty",
        "confidentiality",
        "governing law",
        "disputes",
    )
    by_heading = {clause["heading"].lower(): clause["text"] for clause in clauses}
    right: dict[str, Any] = {key.replace(" ", "_"): by_heading.get(key) for key in order}
    return right | {"others": [clause for clause in clauses if clause["heading"].lower() not in order]}


def scored(task: str, result: dict[str, Any], right: dict[str, Any]) -> tuple[int, int]:
    """(right fields, fields) of one result."""
    if task == "lab-report":
        return _scored_report(result, right)
    hits = 0
    for key, value in right.items():
        hits += _overlap(result.get(key), value) if key == "box" else result.get(key) == value
    return hits, len(right)


def _scored_report(result: dict[str, Any], right: dict[str, Any]) -> tuple[int, int]:
    observations = [one for one in result["contained"] if one["resourceType"] == "Observation"]
    told = [
        (one["code"]["text"], float(one["valueQuantity"]["value"]), one["valueQuantity"].get("unit", ""))
        for one in observations
    ]
    story = result["text"]["div"]
    hits = [told == right["results"]]
    for key, title in (
        ("patient", "Patient"),
        ("report_no", "Report"),
        ("date", "Date"),
        ("sex", "Sex"),
        ("doctor", "Doctor"),
    ):
        shown = f"<p>{title}: {right[key]}</p>" in story if right[key] is not None else f"<p>{title}: " not in story
        hits.append(shown)
    age = (
        f"<p>Age: {right['age']:g}</p>" in story or f"<p>Age: {right['age']}</p>" in story
        if right["age"] is not None
        else "<p>Age" not in story
    )
    hits.append(age)
    return sum(hits), len(hits)


def _overlap(box: Any, right: list[int] | None) -> bool:
    """Whether a box of the default calibration (100 x 100, y upwards) covers the right one by more than half."""
    if box is None or right is None:
        return box is None and right is None
    one = (box[0] * 10, 1000 - box[3] * 10, box[2] * 10, 1000 - box[1] * 10)
    wide = min(one[2], right[2]) - max(one[0], right[0])
    tall = min(one[3], right[3]) - max(one[1], right[1])
    both = max(wide, 0) * max(tall, 0)
    area = (one[2] - one[0]) * (one[3] - one[1]) + (right[2] - right[0]) * (right[3] - right[1]) - both
    return bool(both > 0.5 * area)


def data_uri(image: Image.Image) -> str:
    """The picture as the examples are kept."""
    out = io.BytesIO()
    image.convert("RGB").save(out, "JPEG", quality=92)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


TASKS = ("describe-garment", "receipt", "lab-report", "id-card", "inspect-defect", "contract-clauses", "chart-to-table")


def rate(http: httpx.Client, task: str, each: int) -> dict[str, float]:
    """Measured of one task: whole results and fields that are right, answers that failed (loudly), of how many."""
    whole = hits = fields = failed = 0
    for image, right in cases(task, each):
        answer = http.post(f"/v1/tasks/{task}", json={"images": [data_uri(image)]})
        if answer.status_code != 200:
            assert answer.json()["error"]["code"] in ("invalid_answer", "output_truncated", "structured_output_stalled")
            failed += 1
            fields += len(right)
            continue
        good, count = scored(task, answer.json()["result"], right)
        hits, fields, whole = hits + good, fields + count, whole + (good == count)
    return {"whole": 100 * whole / each, "fields": 100 * hits / fields, "failed": failed, "of": each}


def table(http: httpx.Client, each: int) -> str:
    """All tasks."""
    rows = ["task              whole %  fields %  failed  of"]
    for task in TASKS:
        said = rate(http, task, each)
        rows.append(f"{task:17} {said['whole']:7.1f} {said['fields']:9.1f} {said['failed']:7} {said['of']:3}")
    return "\n".join(rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Rate of right answers of the shipped tasks.")
    parser.add_argument("--each", type=int, default=12)
    parser.add_argument("--url", default="")
    args = parser.parse_args()
    if args.url:
        print(table(httpx.Client(base_url=args.url, timeout=120, trust_env=False), args.each))
        return
    with serving("--engine", "openvino") as service:
        print(table(service.http, args.each))


if __name__ == "__main__":
    main()
