"""What all stored parts of a pipeline have in common."""

from typing import Final

import msgspec

from holdfast.pipeline.model.redaction import REDACTED, URLS, redacted_options, redacted_url

EARLIEST: Final = "earliest"
LATEST: Final = "latest"


class StoredStruct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=False
):
    """Base of stored parts: immutable, camelCase in JSON, no unknown fields, secrets redacted in `repr`."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_redacted_repr(name, getattr(self, name))!r}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({shown})"


def _redacted_repr(name: str, value: object) -> object:
    if isinstance(value, dict):
        return redacted_options(value)
    if isinstance(value, str) and value:
        return REDACTED if name == "password" else redacted_url(value) if name in URLS else value
    return value
