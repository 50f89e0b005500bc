"""A pipeline's filter as it is stored: `{enabled, language, expression}`.

The one rule: a stored filter can be run. `read_filters` rejects what does not parse.
"""

from typing import Any, Final

import msgspec

from holdfast.pipeline.filters.evaluation import Filter, make_filter
from holdfast.pipeline.model.definition import FiltersConfig
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_one_of

LANGUAGES: Final = ("holdfast", "cel")


def condition_of(config: FiltersConfig) -> Filter | None:
    """The filter to run; None keeps every record."""
    return make_filter(config.expression) if config.enabled and config.expression.strip() else None


def read_filters(given: bytes | str | dict[str, Any]) -> FiltersConfig:
    """A filter from its JSON (or the same decoded). One that does not parse is a `FilterError`, even if it is not enabled."""
    try:
        decoded = msgspec.json.decode(given) if isinstance(given, bytes | str) else given
        config = msgspec.convert(decoded, FiltersConfig)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidError("filters-config", str(given)[:100], str(error)) from None
    language = config.language.lower() or "holdfast"
    check_one_of("filters-config: language", language, LANGUAGES)
    if config.expression.strip():
        make_filter(config.expression)
    return FiltersConfig(config.enabled, language, config.expression)
