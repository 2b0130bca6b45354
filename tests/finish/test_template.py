"""Templates: the user's own shape, and no way to run for ever, to fill the memory or to look at Python's insides."""

from __future__ import annotations

import time
from typing import Any

import pytest

from twinlens.core import AnswerFormat
from twinlens.errors import FinishError, TaskError
from twinlens.finish.sandbox import Bounded, TemplateProblem
from twinlens.finish.seam import About, Draft, Frame, Seen
from twinlens.finish.template import Template

JSON = About(AnswerFormat("json_object"), "steps[2]")


def through(template: str, text: str, about: About = JSON, **options: Any) -> Draft:
    plan = Template({"template": template, **options}, about)
    return plan.begin(Seen((Frame((20, 10), (28, 28)),), variables={"lang": "zh"})).finish(Draft(text))


def test_json_in_json_out() -> None:
    template = """{"总计": {{ answer.total|tojson }}, "rows": [
      {% for row in answer.rows %}{"n": {{ loop.index }}, "名": {{ row.name|tojson }}}{% if not loop.last %},{% endif %}
      {% endfor %}], "w": {{ pictures[0].width }}, "l": {{ variables.lang|tojson }}}"""
    done = through(template, '{"total": 1.5, "rows": [{"name": "a\\"b"}, {"name": "理"}]}')
    assert done.value == {"总计": 1.5, "rows": [{"n": 1, "名": 'a"b'}, {"n": 2, "名": "理"}], "w": 10, "l": "zh"}
    assert "理" in done.text
    assert "\\u" not in done.text


def test_json_08_chinese_is_written_as_it_is_and_once_only() -> None:
    assert through('{"v": {{ answer.v|tojson }} }', '{"v": "\\u7406\\u60f3"}').text == '{"v":"理想"}'


def test_text_out() -> None:
    assert through("- {{ answer.a }}\n- {{ answer.b }}", '{"a": "x", "b": "y"}', output="text").text == "- x\n- y"


def test_what_is_not_json_and_what_is_missing_fail_without_telling_the_answer() -> None:
    with pytest.raises(FinishError, match="not JSON"):
        through("{ {{ answer.a }}", '{"a": "secret"}')
    with pytest.raises(FinishError, match="nosuch"):
        through("{{ answer.nosuch }}", '{"a": "secret"}')
    with pytest.raises(FinishError) as failed:
        through("{{ {}[answer.a] }}", '{"a": "secret"}')
    assert "secret" not in failed.value.message


DOUBLED = "".join("{% set a = [a, a] %}" for _ in range(60))
HOSTILE = [
    "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "{{ 'a' * 10**9 }}",
    "{{ 'a'.ljust(1000000000) }}",
    "{{ 'a'.zfill(1000000000) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ 10 ** 1000000 }}",
    "{% set a = ['x'] %}" + DOUBLED + "{{ a }}",
    "{% set a = 'xxxxxxxxxx' %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}",
    "{% set a = 'xxxxxxxxxx' %}" + "{% set a = a + a %}" * 60 + "{{ a }}",
    "{% set a = 'xxxxxxxxxx' %}" + "{% set a = a|replace('x', a) %}" * 9 + "{{ a }}",
    "{% set a = ['xxxxxxxxxx'] %}" + "{% set a = [a|join(a[0]), a|join(a[0])] %}" * 60 + "{{ a }}",
    "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% for a in big %}{% for b in big %}{{ a }}{% endfor %}{% endfor %}",
    "{% for a in range(90000) %}{{ text }}{% endfor %}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ answer.__init__.__globals__ }}",
    "{{ self.__init__ }}",
    "{% include '/etc/passwd' %}",
    "{{ cycler.__init__ }}",
    "{{ twinlens_budget.__init__ }}",
    "{{ twinlens_budget.spend(-1000000000000) }}",
    "{{ (big|map(attribute='__class__')|first).__name__ }}",
]


@pytest.mark.parametrize("source", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_templates_end_soon_and_fail(source: str) -> None:
    start = time.monotonic()
    template = Bounded(source, "t")
    with pytest.raises(TemplateProblem):
        template.render({"answer": {"a": 1}, "big": list(range(20000)), "text": "x" * 1000})
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"template": "{% for %}"}, "line 1"),
        ({"template": "{{ x|nosuch }}"}, "nosuch"),
        ({}, "either"),
        ({"template": "a", "file": "b"}, "either"),
        ({"templat": "a"}, "Did you mean “template”"),
        ({"template": "x" * 100_000}, "characters"),
    ],
)
def test_wrong_templates_are_refused_when_the_task_is_read(options: dict[str, Any], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        Template(options, JSON)
