"""Optimistic concurrency: responses carry an `ETag`, and a change may be conditional on one by `If-Match`."""

import re
from collections.abc import Mapping
from typing import Final

from holdfast.gateways.http.errors import EtagMismatchError
from holdfast.vocabulary.errors import InvalidError

PIPELINE: Final = "pipeline"
_ETAG: Final = re.compile(r'"([a-z]+)-(\d{1,18})"')
_PARTS_ETAG: Final = re.compile(r'"parts((?:-[a-z]+\.\d{1,18})*)"')


def etag(what: str, version: int) -> str:
    """The tag of a version: `"mapping-3"`."""
    return f'"{what}-{version}"'


def parts_etag(versions: Mapping[str, int]) -> str:
    """The tag of several parts: `"parts-sink.2-source.1"`."""
    return '"parts' + "".join(f"-{name}.{version}" for name, version in sorted(versions.items())) + '"'


def expected_version(what: str, headers: Mapping[str, str]) -> int | None:
    """The version a change is conditional on: of `If-Match`, or 0 for `If-None-Match: *`; None: unconditional.

    A tag of something else, or a weak one, matches nothing: `EtagMismatchError`.
    """
    if headers.get("if-none-match") == "*":
        return 0
    given = headers.get("if-match", "*").strip()
    if given == "*":
        return None
    found = _ETAG.fullmatch(given)
    if found is None and not given.startswith('W/"') and not _PARTS_ETAG.fullmatch(given):
        raise InvalidError("If-Match", given[:100], f'a tag from an ETag header, such as "{what}-3", or *')
    if found is None or found[1] != what:
        raise EtagMismatchError(what, given[:100])
    return int(found[2])


def expected_part_versions(given: Mapping[str, object], headers: Mapping[str, str]) -> dict[str, int]:
    """The versions that a change of these parts is conditional on: from a tag of all parts, or of the only one given."""
    tag = headers.get("if-match", "*").strip()
    if found := _PARTS_ETAG.fullmatch(tag):
        versions = dict(each.split(".") for each in found[1].split("-")[1:])
        return {name: int(versions.get(name, 0)) for name in given}
    if tag == "*" and headers.get("if-none-match") != "*":
        return {}
    if len(given) != 1 and tag != "*":
        raise EtagMismatchError("parts", tag[:100])
    return {name: version for name in given if (version := expected_version(name, headers)) is not None}
