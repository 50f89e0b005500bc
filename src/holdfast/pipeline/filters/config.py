"""A pipeline's filter as it is stored: `{enabled, language, expression}`.

The one rule: a stored filter can be run. `read_filters` rejects what does not parse.
"""

from typing import Any, Final

from holdfast.pipeline.filters.evaluation import Filter, make_filter
from holdfast.pipeline.model.definition import FiltersConfig
from holdfast.pipeline.model.errors import Mistakes
from holdfast.pipeline.model.shapes import read_object, read_struct
from holdfast.vocabulary.errors import InvalidError

LANGUAGE: Final = "holdfast"


def condition_of(config: FiltersConfig) -> Filter | None:
    """The filter to run; None keeps every record."""
    return make_filter(config.expression) if config.enabled and config.expression.strip() else None


def read_filters(given: bytes | str | dict[str, Any]) -> FiltersConfig:
    """A filter from its JSON (or the same decoded). It must parse even if it is not enabled. All mistakes at once."""
    mistakes = Mistakes()
    config = read_struct("filters", read_object("filters", given), FiltersConfig, mistakes)
    language = config.language.lower() or LANGUAGE
    if language != LANGUAGE:
        # CEL looks alike and means something else: there a comparison with null is an error, here it is null.
        mistakes.add(
            InvalidError("filters.language", config.language, f"{LANGUAGE}: no other is evaluated here, not CEL either")
        )
    if config.expression.strip():
        with mistakes.collect():
            make_filter(config.expression)
    mistakes.raise_if_any()
    return FiltersConfig(config.enabled, language, config.expression)
