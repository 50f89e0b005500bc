"""The safety rules: every rule names a test that exists or says that it does not hold yet, and every citation names a rule."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "safety.md").read_text()
RULES = dict(re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
TESTS = re.findall(r"`([\w/.]+\.py)::(\w+)`", PAGE)
EXEMPT = re.compile(r"\(open|not implemented yet", re.IGNORECASE)


def test_rules_are_numbered_without_a_gap() -> None:
    assert [int(number) for number in RULES] == list(range(1, len(RULES) + 1))


@pytest.mark.parametrize("number", RULES)
def test_a_rule_names_its_test_or_says_that_it_does_not_hold_yet(number: str) -> None:
    assert re.search(r"\.py::test_", RULES[number]) or EXEMPT.search(RULES[number])


@pytest.mark.parametrize(("file", "name"), TESTS, ids=[name for _, name in TESTS])
def test_a_named_test_exists(file: str, name: str) -> None:
    path = ROOT / file if file.startswith("tests/") else ROOT / "src" / "holdfast" / "testing" / file
    assert f"def {name}(" in path.read_text()


def test_code_cites_rules_that_exist() -> None:
    cited = set()
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        cited |= set(re.findall(r"docs/safety\.md, rules? (\d+)", path.read_text()))
    assert cited <= set(RULES)
