"""The few words of ASGI this face speaks itself."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from holdfast.gateways.http.problems import MEDIA_TYPE, Problem, encode_problem, problem_headers

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]


def header_map(scope: Scope) -> dict[str, str]:
    """Headers by name; of one that comes several times the last."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def replaying(body: bytes, receive: Receive) -> Receive:
    """`receive` for an application whose body has been read already."""
    told = False

    async def replay() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def send_problem(send: Send, problem_details: Problem, more: Mapping[str, str] | None = None) -> None:
    """A problem as a whole answer. It closes the connection: what is left of the request is not read."""
    body = encode_problem(problem_details)
    headers = {
        "content-type": MEDIA_TYPE,
        "content-length": str(len(body)),
        "connection": "close",
        **problem_headers(problem_details),
        **(more or {}),
    }
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem_details.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body, "more_body": False})
