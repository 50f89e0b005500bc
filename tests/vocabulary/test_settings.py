"""Settings: frozen values, built from text, refused by name."""

from dataclasses import dataclass

import pytest

from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_between, check_one_of, settings_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    size: int = 3
    fast: bool = False

    def __post_init__(self) -> None:
        check_between("size", self.size, 1, 9)


def test_settings_are_built_from_text() -> None:
    assert settings_from(Tuning, {"size": "7", "fast": "true"}) == Tuning(size=7, fast=True)


@pytest.mark.parametrize("wrong", [{"sise": "7"}, {"size": "seven"}, {"size": "77"}, {"fast": "maybe"}])
def test_a_wrong_setting_is_refused_by_name(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidError):
        settings_from(Tuning, wrong)


def test_a_word_outside_its_list_is_refused_with_the_list() -> None:
    with pytest.raises(InvalidError, match="contiguous, sticky"):
        check_one_of("plan", "random", ("contiguous", "sticky"))
