"""Each shipped task runs on the examples with the demo model; how often it is right is printed, not asserted."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fhir.resources.R4B.diagnosticreport import DiagnosticReport

from tests.serving.harness import Service, serving
from tests.tasks.rate import TASKS, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
KIND = {
    "describe-garment": "garment",
    "receipt": "document",
    "lab-report": "document",
    "id-card": "document",
    "inspect-defect": "inspect",
    "contract-clauses": "contract",
    "chart-to-table": "chart",
}
LOUD = ("invalid_answer", "output_truncated", "structured_output_stalled")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving("--engine", "openvino") as running:
        yield running


@pytest.mark.parametrize("task", TASKS)
def test_it_runs_on_the_examples(service: Service, task: str) -> None:
    answered = 0
    for path in sorted(EXAMPLES.glob(f"{KIND[task]}-0[1-4].jpg")):
        uri = "data:image/jpeg;base64," + base64.b64encode(path.read_bytes()).decode()
        answer = service.http.post(f"/v1/tasks/{task}", json={"images": [uri]})
        if answer.status_code != 200:
            assert answer.json()["error"]["code"] in LOUD
            assert answer.json()["twinlens"]["raw_answer"]
            continue
        answered += 1
        result = answer.json()["result"]
        if task == "lab-report":
            DiagnosticReport.model_validate(result)
        assert result
        assert [step["step"] for step in answer.json()["steps"]][0] == "schema"  # noqa: RUF015
    assert answered


@pytest.mark.parametrize("task", TASKS)
def test_its_rate_is_printed(service: Service, task: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = rate(service.http, task, 4)
    with capsys.disabled():
        print(f"\n{task}: {json.dumps(said)}")
    assert said["of"] == 4
