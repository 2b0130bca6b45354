"""Task files: what is wrong is named with its place, and the shipped ones are in order."""

# ruff: noqa: E501  (tables of files)
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fhir.resources.R4B.diagnosticreport import DiagnosticReport

from twinlens.core import ImagePart, TextPart
from twinlens.errors import InvalidField, TaskError, TaskNotFound
from twinlens.finish.line import work
from twinlens.finish.seam import Draft, Frame, Seen
from twinlens.settings import Settings
from twinlens.tasks import shelf
from twinlens.tasks.reading import MAX_FILE
from twinlens.tasks.task import Pages, Task, read

if TYPE_CHECKING:
    from pathlib import Path

GOOD = 'prompt = "x"\n'
SHELF = shelf.load(Settings())


def task(folder: Path, text: str, name: str = "mine.toml") -> Task:
    (folder / name).write_text(text)
    return read(folder / name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "prompt"),
        ('promt = "x"', "Did you mean “prompt”"),
        (GOOD + 'pages = "all"', "pages"),
        (GOOD + 'pages = "first 0"', "pages"),
        (GOOD + "[pictures]\nmaxpixels = 3", "pictures: unknown key “maxpixels”. Did you mean “max_pixels”"),
        (GOOD + "[pictures]\nmost = 1\nleast = 2", "least 2"),
        (GOOD + "[sampling]\ntemperature = 3", "sampling"),
        (GOOD + "[sampling]\ntemprature = 0", "Did you mean “temperature”"),
        (GOOD + '[[steps]]\nuse = "redcat"', "steps[0].use: unknown key “redcat”. Did you mean “redact”"),
        (GOOD + '[[steps]]\nuse = "redact"\nkind = 3', "steps[0]: unknown key “kind”. Did you mean “kinds”"),
        (GOOD + '[[steps]]\nname = "redact"', "steps[0]: “use”"),
        (GOOD + '[[steps]]\nuse = "schema"', "needs a schema"),
        (GOOD + '[schema]\ntype = "objekt"', "schema"),
        (GOOD + '[schema]\ntype = "object"\n[[steps]]\nuse = "geometry"\nboxes = ["box"]', "JSON pointer"),
        (GOOD + '[variables.a]\ntipe = "string"', "variables.a: unknown key “tipe”. Did you mean “type”"),
        (GOOD + "[variables.a]\ndefault = 3", "must be of type string"),
        (GOOD + '[variables.a]\nchoices = ["x"]\ndefault = "y"', "one of x"),
        (GOOD + "[variables.schema]", "cannot have this name"),
        (GOOD + 'columns = [{name = "a", pat = "/a"}]', "Did you mean “path”"),
        (GOOD + 'columns = [{name = "a", path = "a"}]', "JSON pointer"),
        ('prompt = "{% if %}"', "prompt, line 1"),
        ('prompt = "{{ x|nosuch }}"', "nosuch"),
        (GOOD + 'schema = "../other.json"', "without a folder"),
        (GOOD + 'schema = "gone.json"', "gone.json cannot be read"),
        ("prompt = [", "TOML"),
        (GOOD * 2, "TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(TaskError) as refused:
        task(tmp_path, text)
    assert said in refused.value.message
    assert "mine.toml" in refused.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prompt: &a x\nsystem: *a", "alias"),
        ("prompt: x\nprompt: y", "twice"),
        ("prompt: !!python/object/apply:os.system [ls]", "YAML"),
        ("- x", "no table"),
        ("prompt: [", "line"),
        ("prompt: x\nsteps: " + "[" * 5000, "nested"),
        ("prompt: " + "x" * (MAX_FILE + 1), "bytes"),
        ("a: &a [x]\nb: &b [*a, *a]\nprompt: x", "alias"),
    ],
)
def test_yaml_is_bounded_and_safe(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        task(tmp_path, text, "mine.yaml")


def test_yaml_means_what_it_says(tmp_path: Path) -> None:
    text = "prompt: no\nvariables:\n  a: {choices: [on, off, 2024-01-01], default: on}\n  b: {type: boolean, default: true}\n"
    found = task(tmp_path, text, "mine.yml")
    assert found.prompt({}) == "no"
    assert found.filled({}) == {"a": "on", "b": True}
    assert found.variables["a"].choices == ("on", "off", "2024-01-01")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("each", Pages()),
        ("together", Pages(True)),
        ("first 3", Pages(False, 3)),
        ("together first 12", Pages(True, 12)),
    ],
)
def test_page_policies(tmp_path: Path, said: str, meant: Pages) -> None:
    assert task(tmp_path, f'{GOOD}pages = "{said}"').pages == meant


def test_the_version_is_the_digest_of_the_file_and_of_those_beside_it(tmp_path: Path) -> None:
    (tmp_path / "shape.json").write_text('{"type": "object"}')
    one = task(tmp_path, GOOD + 'schema = "shape.json"')
    assert task(tmp_path, GOOD + 'schema = "shape.json"').version == one.version
    (tmp_path / "shape.json").write_text('{"type": "object", "minProperties": 1}')
    assert task(tmp_path, GOOD + 'schema = "shape.json"').version != one.version
    assert task(tmp_path, GOOD).version != one.version


def test_prompts_take_variables_and_pictures_in_their_order(tmp_path: Path) -> None:
    text = 'prompt = "{{ lang }}: {{ schema }}"\nsystem = "be {{ lang }}"\n[pictures]\nmost = 2\n'
    text += '[variables.lang]\ndefault = "en"\n[schema]\nrequired = ["a"]\ntype = "object"\n[schema.properties.a]\n'
    mine = task(tmp_path, text)
    system, user = mine.messages(mine.filled({"lang": "zh"}), 2, "more")
    assert system.parts == (TextPart("be zh"),)
    schema = '{"type":"object","properties":{"a":{}},"required":["a"]}'
    assert user.parts == (ImagePart(0), ImagePart(1), TextPart(f"zh: {schema}\nmore"))
    with pytest.raises(InvalidField, match="1 to 2"):
        mine.messages(mine.filled({}), 3)


def test_columns_and_rows() -> None:
    value = {"defect": "dent", "cause": None, "box": [1, 2, 3, 4]}
    assert SHELF.get("inspect-defect").row(value) == {**value, "box_pixels": None}
    rows = {"columns": ["label", "value"], "rows": [["a", 1], ["b", 2]]}
    assert SHELF.get("chart-to-table").row(rows) == {"label": ["a", "b"], "value": [1, 2]}


def test_users_own_win_and_names_are_once(tmp_path: Path) -> None:
    task(tmp_path, 'prompt = "mine"', "receipt.toml")
    assert shelf.load(Settings(tasks_dir=str(tmp_path))).get("receipt").prompt({}) == "mine"
    task(tmp_path, "prompt: other", "receipt.yaml")
    with pytest.raises(TaskError, match="both"):
        shelf.load(Settings(tasks_dir=str(tmp_path)))
    with pytest.raises(TaskError, match="no folder"):
        shelf.load(Settings(tasks_dir=str(tmp_path / "gone")))
    with pytest.raises(TaskNotFound, match="Did you mean “receipt”"):
        SHELF.get("recipt")


def through(name: str, value: Any, **variables: Any) -> Any:
    found = SHELF.get(name)
    seen = Seen((Frame((200, 100), (56, 28)),), variables=found.filled(variables))
    return work(found.steps, Draft(json.dumps(value, ensure_ascii=False)), seen)[0].value


RESULTS = [
    {"test": "Glucose", "value": 5.4, "unit": "mmol/L"},
    {"test": "谷丙转氨酶", "value": 31, "unit": "U/L"},
    {"test": '"<b>', "value": 0, "unit": ""},
]


@pytest.mark.parametrize(
    "date", ["7 Sep 2014", "2014-09-07", "2014.09.07", "07/09/2014", "2014年9月7日", "soon", "", None]
)
@pytest.mark.parametrize("sex", ["Male", "F", "女", "", None])
@pytest.mark.parametrize("patient", ['Ada <Lovelace> & "Co"', " ", None])
@pytest.mark.parametrize("results", [[], RESULTS])
def test_lab_reports_are_fhir(date: Any, sex: Any, patient: Any, results: Any) -> None:
    record = {"patient": patient, "report_no": patient, "date": date, "sex": sex, "age": 41, "doctor": patient}
    done = through("lab-report", record | {"results": results})
    report: Any = DiagnosticReport.model_validate(done)
    assert len(report.contained) == 1 + len(results)
    assert [entry.reference for entry in report.result or ()] == [f"#{one.id}" for one in report.contained[1:]]
    assert (str(report.effectiveDateTime) == "2014-09-07") is (date not in ("soon", "", None))
    assert [float(one.valueQuantity.value) for one in report.contained[1:]] == [one["value"] for one in results]


def test_how_a_date_is_meant_is_the_users_to_say() -> None:
    record = {"patient": "A", "report_no": None, "date": "07/09/2014", "sex": None, "age": None, "doctor": None}
    done = through("lab-report", record | {"results": []}, date_order="mdy")
    assert done["effectiveDateTime"] == "2014-07-09"


def test_clauses_are_re_ordered_and_none_is_lost() -> None:
    clauses = [("Scope", "s"), ("Term", "t"), ("付款", "p1"), ("Payment", "p2"), ("Whatever", 'w "q"')]
    done = through("contract-clauses", {"clauses": [{"heading": a, "text": b} for a, b in clauses]})
    assert done["payment"] == "p1 p2"
    assert done["term"] == "t"
    assert done["liability"] is None
    assert done["others"] == [{"heading": "Scope", "text": "s"}, {"heading": "Whatever", "text": 'w "q"'}]


def test_numbers_of_a_card_are_masked_whatever_they_look_like() -> None:
    card = dict.fromkeys(("birth_date", "sex", "country", "expiry", "address"))
    done = through("id-card", {"name": "Ada", "id_number": "12-AB 9", "phone": "x 7", **card})
    assert done == {"name": "Ada", "id_number": "**-** *", "phone": "* *", **card}


def test_points_of_a_garment_are_short() -> None:
    record = {"audience": "men", "occasion": None, "fabric": "cotton", "neckline": "round", "pattern": None}
    assert through("describe-garment", record) == {
        "audience": "men",
        "occasions": [],
        "fabric_and_craft": ["cotton", "round"],
    }
    with pytest.raises(Exception, match="schema"):
        through("describe-garment", record | {"fabric": "x" * 21})


def test_boxes_of_defects_are_in_the_machines_coordinates() -> None:
    done = through("inspect-defect", {"defect": "dent", "box": [0, 0, 500, 500], "cause": "x"})
    assert done["box"] == [0, 50, 50, 100]
    assert done["box_pixels"] == [0, 0, 50, 100]
    calibration = {"points": [[0, 0, 1000, 0], [100, 0, 1100, 0], [0, 200, 1000, 200]]}
    done = through("inspect-defect", {"defect": "dent", "box": [0, 0, 500, 500], "cause": "x"}, calibration=calibration)
    assert done["box"] == [1000, 0, 1050, 100]
