"""Every error of ours has an exit code that the help lists, whatever module it is in."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest

import holdfast
from holdfast.cli.output import _CODES_BY_NAME, EXIT_CODES, exit_code
from holdfast.vocabulary.errors import HoldfastError


def error_classes() -> set[type[HoldfastError]]:
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    return set(_subclasses(HoldfastError))


def _subclasses(kind: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    for each in kind.__subclasses__():
        if each.__module__.startswith("holdfast."):
            yield each
        yield from _subclasses(each)


def test_every_error_of_every_module_has_an_exit_code_that_the_help_lists() -> None:
    classes = error_classes()
    assert len(classes) > 20
    for kind in classes:
        code = exit_code(kind.__new__(kind))
        assert f"  {code}  " in EXIT_CODES, kind


@pytest.mark.slow
def test_the_codes_by_name_name_classes_that_exist() -> None:
    assert set(_CODES_BY_NAME) <= {kind.__name__ for kind in error_classes()}


def test_an_error_without_an_action_is_a_failure() -> None:
    assert exit_code(HoldfastError("?")) == 1
