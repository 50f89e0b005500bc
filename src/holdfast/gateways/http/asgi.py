"""ASGI types and helpers used outside the framework."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from holdfast.gateways.http.problems import PROBLEM_MEDIA_TYPE, Problem, encode_problem, problem_headers

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]


def header_map(scope: Scope) -> dict[str, str]:
    """Headers by name; the last one of a repeated header."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def header_value(scope: Mapping[str, Any], wanted: bytes) -> str | None:
    """The first header of a name in small letters."""
    for name, value in scope["headers"]:
        if name == wanted:
            return str(value.decode("latin-1"))
    return None


def replay_body(body: bytes, receive: Receive) -> Receive:
    """`receive` for an application whose request body has been read already."""
    replayed = False

    async def replay() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def send_problem(send: Send, problem_details: Problem, more: Mapping[str, str] | None = None) -> None:
    """Send a problem as the response, and close the connection: the rest of the request is not read."""
    body = encode_problem(problem_details)
    headers = {
        "content-type": PROBLEM_MEDIA_TYPE,
        "content-length": str(len(body)),
        "connection": "close",
        **problem_headers(problem_details),
        **(more or {}),
    }
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem_details.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body, "more_body": False})
