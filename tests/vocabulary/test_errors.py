"""Errors: one class per action of the caller, facts as arguments, one sentence each."""

import pickle

import pytest
from tests.support.error_examples import EXAMPLES

from holdfast.vocabulary import errors


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_pickles_and_says_its_facts(error: errors.HoldfastError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert again.args == error.args
    assert all(str(fact) in str(error) for fact in error.args)


def test_every_error_class_has_an_example_here() -> None:
    known = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.HoldfastError) and kind is not errors.HoldfastError
    }
    assert {type(error) for error in EXAMPLES} == known


def test_an_invalid_value_is_named_with_what_it_must_be() -> None:
    assert str(errors.InvalidError("ttl_ms", -1, "at least 100")) == "invalid ttl_ms -1: must be at least 100"
