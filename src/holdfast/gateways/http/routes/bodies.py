"""What request and response bodies have in common."""

from typing import Any, TypeVar

import msgspec
from litestar import Request
from litestar.exceptions import ValidationException

from holdfast.gateways.http.asgi import Receive, Scope, Send
from holdfast.gateways.http.errors import MalformedBodyError

T = TypeVar("T")


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


def decoded_body(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """The body, whose values stay the JSON that was sent: the framework would have made Python of it."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise ValidationException(str(error)) from msgspec.ValidationError(str(error).replace("at `$", "at `$.data", 1))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBodyError(str(error)) from None
