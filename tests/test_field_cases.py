"""Every field case has a test that names it, and through the front door where it can be seen from there."""

from __future__ import annotations

from tests import field_cases


def held() -> list[str]:
    return [case for case in field_cases.ids() if case.startswith(field_cases.HELD)]


def test_every_case_of_the_kinds_that_are_held_has_a_test() -> None:
    tests = field_cases.found()
    assert [case for case in held() if case not in tests] == []


def test_cases_are_tried_through_the_front_door() -> None:
    tests = field_cases.found()
    inside = {case for case in held() if case in tests and not field_cases.at_the_front_door(tests[case])}
    assert inside == set(field_cases.INSIDE)


def test_no_test_names_a_case_that_is_none() -> None:
    assert set(field_cases.found()) - set(field_cases.ids()) == set()
