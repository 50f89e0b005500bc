"""Keys and values to bytes and back: by name (`bytes`, `str`, `json`) or by a function of the caller.

The one rule: None stays None: a key that is not there, a value that deletes (a tombstone).
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.client.records.model import SerializationError
from holdfast.vocabulary.errors import InvalidError

Serializer = Callable[[Any], bytes | None]
Deserializer = Callable[[bytes], Any]


def _bytes(given: object) -> bytes:
    if isinstance(given, bytes):
        return given
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"{type(given).__name__} given: pass bytes, or choose the serializer str or json")


def _text(given: object) -> bytes:
    if not isinstance(given, str):
        raise TypeError(f"{type(given).__name__} given: pass text")
    return given.encode()


def _json(given: object) -> bytes:
    return msgspec.json.encode(given)


SERIALIZERS: Final[dict[str, Serializer]] = {"bytes": _bytes, "str": _text, "json": _json}
DESERIALIZERS: Final[dict[str, Deserializer]] = {
    "bytes": lambda data: data,
    "str": lambda data: data.decode(),
    "json": msgspec.json.decode,
}


def serializer(given: str | Serializer, field: str) -> Serializer:
    """The function for it, which is not called for None; it raises `SerializationError` under the name of the field."""
    chosen = SERIALIZERS.get(given) if isinstance(given, str) else given
    if chosen is None or not callable(chosen):
        raise InvalidError(f"{field} serializer", given, f"{', '.join(SERIALIZERS)}, or a function that returns bytes")

    def serialize(value: Any) -> bytes | None:
        if value.__class__ is bytes and chosen is _bytes:
            return value
        try:
            found = chosen(value)
        except Exception as error:
            raise SerializationError(field, _short(value), f"serializable: {error}") from error
        if found is not None and not isinstance(found, bytes):
            raise SerializationError(f"{field} serializer", type(found).__name__, "a function that returns bytes")
        return found

    return serialize


def deserializer(given: str | Deserializer, field: str) -> Deserializer | None:
    """The function for it; None: bytes are left as they are."""
    if given == "bytes":
        return None
    chosen = DESERIALIZERS.get(given) if isinstance(given, str) else given
    if chosen is None or not callable(chosen):
        raise InvalidError(f"{field} deserializer", given, f"{', '.join(DESERIALIZERS)}, or a function of bytes")
    return chosen


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
