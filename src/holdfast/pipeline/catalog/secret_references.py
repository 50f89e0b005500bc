"""The references in a pipeline's parts: checked when a part is saved, resolved in a copy when it is used.

The one rule: a reference is one only where a secret may be: a password, a URL, or an option of a catalog.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from holdfast.pipeline.model.definition import StoredStruct
from holdfast.pipeline.model.query import QueryConfig
from holdfast.pipeline.model.redaction import URLS
from holdfast.pipeline.model.secret_references import SecretReferences, SecretReferenceSettings

P = TypeVar("P", bound=msgspec.Struct)
Change = Callable[[str, str, bool], str]

_OPTIONS: Final = "catalog_options"


def check_references(name: str, part: msgspec.Struct, settings: SecretReferenceSettings) -> None:
    """`InvalidError`: the part called `name` refers to something that is not allowed."""

    def check(what: str, text: str, in_url: bool) -> str:
        settings.check(what, text)
        return text

    _changed(name, part, check)


def resolved(name: str, part: P, secrets: SecretReferences) -> P:
    """A copy of the part with the secrets that it refers to; the part itself if there are none."""
    return _changed(name, part, lambda what, text, in_url: secrets.resolve(what, text, in_url=in_url))


def _changed(name: str, part: P, change: Change) -> P:
    changes: dict[str, Any] = {}
    for field in part.__struct_fields__:
        value, what = getattr(part, field), f"{name}.{field}"
        if isinstance(value, str) and (field == "password" or field in URLS):
            after: Any = change(what, value, field in URLS)
        elif field == _OPTIONS and isinstance(value, dict):
            after = {key: change(f"{what}.{key}", text, False) for key, text in value.items()}
        elif isinstance(value, StoredStruct):
            after = _changed(what, value, change)
        elif isinstance(part, QueryConfig) and field == "sources":
            after = tuple(_changed(f"{what}[{at}]", each, change) for at, each in enumerate(value))
        else:
            continue
        if after != value:
            changes[field] = after
    return msgspec.structs.replace(part, **changes) if changes else part
