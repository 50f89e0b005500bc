"""docs/reference/python.md is what the docstrings say, and every public name has one."""

import importlib.util
import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

GENERATOR = Path(__file__).parents[2] / "docs" / "generate_reference.py"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_reference", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current(generator: ModuleType) -> None:
    assert generator.PAGE.read_text() == generator.render(), "run `python docs/generate_reference.py`"


def test_every_public_name_and_every_public_method_has_a_docstring(generator: ModuleType) -> None:
    missing = []
    for module in generator.MODULES:
        for name, found in generator.public_names(import_module(module)):
            if inspect.isfunction(found) and not generator.docstring(found):
                missing.append(f"{module}.{name}")
            if inspect.isclass(found):
                if not generator.docstring(found):
                    missing.append(f"{module}.{name}")
                members = dict(generator.public_members(found))
                missing += [
                    f"{module}.{name}.{each}" for each in members if not generator.method_docstring(found, each)
                ]
    assert not missing


def test_the_page_names_everything_that_is_public(generator: ModuleType) -> None:
    page = generator.PAGE.read_text()
    for module in generator.MODULES:
        for name, _ in generator.public_names(import_module(module)):
            assert f"### `{module}.{name}`" in page
