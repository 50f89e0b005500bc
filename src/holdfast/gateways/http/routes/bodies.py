"""What request and response bodies have in common."""

import re
import threading
from itertools import islice
from typing import Any, Final, TypeVar, cast

import msgspec
from litestar import Request
from litestar.exceptions import ValidationException

from holdfast.gateways.http.asgi import Receive, Scope, Send
from holdfast.gateways.http.errors import MalformedBodyError
from holdfast.vocabulary.errors import InvalidError

T = TypeVar("T")

SETTINGS_MAX: Final = 1_000  # of a topic, as over gRPC
_KEYS_MAX: Final = SETTINGS_MAX + 100  # in a body with settings, beside which it has a few fields
_STRINGS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"(\s*:)?', re.DOTALL)  # a key is one with a colon


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A request body: fields are in camel case, and an unknown one is an error."""


class JsonAnswer:
    """A response of a hot route, encoded by its handler. The framework's own costs as much as the append of a record."""

    __slots__ = ("_body",)

    def __init__(self, answer: msgspec.Struct) -> None:
        self._body = msgspec.json.encode(answer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = str(len(self._body)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self._body, "more_body": False})


class JsonRequest(Request[Any, Any, Any]):
    """A request whose JSON is UTF-8, or malformed: the framework lets that error of its decoder through."""

    async def json(self) -> Any:
        """The body."""
        try:
            return await super().json()
        except UnicodeDecodeError as error:
            raise MalformedBodyError(str(error)) from None


class _Room(threading.local):
    """What the body that this thread decodes may still have."""

    what, most, left = "", 0, 0


_room: Final = _Room()


def count_entry() -> None:
    """One more entry, as its `__post_init__` calls it: JSON does not say before its end how many there are. `InvalidError`."""
    _room.left -= 1
    if _room.left < 0:
        raise InvalidError(_room.what, f"more than {_room.most}", f"at most {_room.most}")


def decoded_entries(decoder: msgspec.json.Decoder[T], body: bytes, what: str, most: int) -> T:
    """A body with entries that count themselves. `InvalidError`: there are more; they are decoded no further."""
    _room.what, _room.most, _room.left = what, most, most
    return decoded_body(decoder, body)


def decoded_settings(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """A body with settings in its `config`, counted before: of hundreds of thousands, none would be one that anybody has.

    `ValidationException`: there are more than `SETTINGS_MAX`.
    """
    keys = sum(1 for _ in islice((found for found in _STRINGS.finditer(body) if found[1]), _KEYS_MAX + 1))
    data: Any = decoded_body(decoder, body) if keys <= _KEYS_MAX else None
    if data is None or len(data.config) > SETTINGS_MAX:
        problem = f"Expected `object` of length <= {SETTINGS_MAX} - at `$.data.config`"
        raise ValidationException(problem) from msgspec.ValidationError(problem)
    return cast("T", data)


def decoded_body(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """The body, whose values stay the JSON that was sent: the framework would have made Python of it."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise ValidationException(str(error)) from msgspec.ValidationError(str(error).replace("at `$", "at `$.data", 1))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBodyError(str(error)) from None
