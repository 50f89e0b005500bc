"""Edits of saved parts. No I/O.

The one rule: an edit that changes nothing succeeds, whatever version its editor saw: a request whose answer was lost may be sent
again.
"""

from collections.abc import Mapping

import msgspec

from holdfast.pipeline.catalog.parts import Part
from holdfast.pipeline.catalog.secrets import restored
from holdfast.pipeline.catalog.stored_parts import StoredPart
from holdfast.pipeline.model.column_mapping import Mapping as ColumnMapping
from holdfast.pipeline.model.errors import EditConflictError, Mistakes


def merged_parts(
    before: Mapping[str, StoredPart], given: Mapping[str, Part], expected: Mapping[str, int], now_ms: int
) -> dict[str, StoredPart]:
    """The given parts as they will be stored; one that does not change stays the same object. `EditConflictError`."""
    after = {}
    complete = restored_parts(given, {name: part.value for name, part in before.items()})
    for name, value in complete.items():
        stored = before.get(name)
        if stored is not None and _same(value, stored.value):
            after[name] = stored
            continue
        version = 0 if stored is None else stored.version
        check_expected(f"the {name}", expected.get(name), version)
        if isinstance(value, ColumnMapping):
            value = msgspec.structs.replace(value, version=version + 1)
        after[name] = StoredPart(name, value, version + 1, now_ms)
    return after


def restored_parts(given: Mapping[str, Part], stored: Mapping[str, Part]) -> dict[str, Part]:
    """The given parts with their secrets. All mistakes at once."""
    mistakes, complete = Mistakes(), {}
    for name, part in given.items():
        with mistakes.collect():
            complete[name] = restored(part, stored.get(name))
    mistakes.raise_if_any()
    return complete


def _same(given: Part, stored: Part) -> bool:
    """Whether saving would change nothing. The version inside a mapping is counted by the catalog."""
    if isinstance(given, ColumnMapping) and isinstance(stored, ColumnMapping):
        given = msgspec.structs.replace(given, version=stored.version)
    return given == stored


def check_expected(what: str, expected: int | None, found: int) -> None:
    """Reject a change that was made to an outdated version."""
    if expected is not None and expected != found:
        raise EditConflictError(what, expected, found)
