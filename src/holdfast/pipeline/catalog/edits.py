"""What an edit makes of the parts that are saved. No I/O.

The one rule: an edit that changes nothing is no edit, whatever version its editor saw: a request whose answer was lost may be sent
again.
"""

from collections.abc import Mapping

import msgspec

from holdfast.pipeline.catalog.encoding import StoredPart
from holdfast.pipeline.catalog.parts import Part
from holdfast.pipeline.catalog.secrets import restored
from holdfast.pipeline.model.column_mapping import Mapping as ColumnMapping
from holdfast.pipeline.model.errors import EditConflictError


def merged_part(
    before: Mapping[str, StoredPart], given: Mapping[str, Part], expected: Mapping[str, int], now_ms: int
) -> dict[str, StoredPart]:
    """The given parts as they will stand; one that would not change stays the very same object. `EditConflictError`."""
    after = {}
    for name, part in given.items():
        stood = before.get(name)
        value = restored(part, None if stood is None else stood.value)
        if stood is not None and _same(value, stood.value):
            after[name] = stood
            continue
        version = 0 if stood is None else stood.version
        check_expected(f"the {name}", expected.get(name), version)
        if isinstance(value, ColumnMapping):
            value = msgspec.structs.replace(value, version=version + 1)
        after[name] = StoredPart(name, value, version + 1, now_ms)
    return after


def _same(given: Part, stood: Part) -> bool:
    """Whether saving would change nothing. The version inside a mapping is the catalog's to count."""
    if isinstance(given, ColumnMapping) and isinstance(stood, ColumnMapping):
        given = msgspec.structs.replace(given, version=stood.version)
    return given == stood


def check_expected(what: str, expected: int | None, found: int) -> None:
    """Refuse a change that was made to another version than there is."""
    if expected is not None and expected != found:
        raise EditConflictError(what, expected, found)
