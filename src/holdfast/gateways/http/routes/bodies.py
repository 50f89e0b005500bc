"""What request bodies have in common."""

import msgspec


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A request body: fields are in camel case, and an unknown one is an error."""
