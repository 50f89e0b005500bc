"""Optimistic concurrency over HTTP: what is read carries an `ETag`, and a change may say in `If-Match` which one it was made to."""

import re
from collections.abc import Mapping
from typing import Final

from holdfast.pipeline.errors import EditConflictError
from holdfast.vocabulary.errors import InvalidError

PIPELINE: Final = "pipeline"
_TAG: Final = re.compile(r'"([a-z]+)-(\d{1,18})"')


def etag(what: str, version: int) -> str:
    """The tag of a version of something: `"mapping-3"`."""
    return f'"{what}-{version}"'


def expected(what: str, headers: Mapping[str, str]) -> int | None:
    """The version a change was made to, if it says so: `If-Match`, or `If-None-Match: *` for what is not there yet.

    A tag of something else, or a weak one, matches nothing: `EditConflictError`.
    """
    if headers.get("if-none-match") == "*":
        return 0
    given = headers.get("if-match", "*").strip()
    if given == "*":
        return None
    found = _TAG.fullmatch(given)
    if found is None and not given.startswith('W/"'):
        raise InvalidError("If-Match", given[:100], f'a tag as it was given in ETag, such as "{what}-3", or *')
    if found is None or found[1] != what:
        raise EditConflictError(what, -1, -1)
    return int(found[2])
