"""What an API of this face is: its number, its versions, and the function that answers it.

Three kinds. A *control* API gets its request as kio decoded it and returns a mapping with the field names of the newest version;
`control` keeps what the version at hand has. A *raw* API (Fetch) gets the bytes and returns bytes, for speed. A *direct* one
(Produce) does so without a task: it begins at once, and says the answer when it is known.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.log.batches import Buffer

ResponseFields = Mapping[str, object]
ResponseChunks = Sequence[Buffer]


@dataclass(slots=True)
class ClientInfo:
    """Who is at the other end of a connection."""

    host: str
    port: int
    software: str = ""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request, as its handler sees it."""

    api: "Api"
    version: int
    correlation: int
    client_id: str
    peer: ClientInfo
    backend: KafkaBackend


ControlHandler = Callable[[RequestContext, Any], Awaitable[ResponseFields]]
RawHandler = Callable[[RequestContext, memoryview], Awaitable[ResponseChunks | None]]
OnResponse = Callable[[ResponseChunks | BaseException | None], None]
DirectHandler = Callable[[RequestContext, memoryview, OnResponse], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API: `flexible_from` is the first version with compact strings and tagged fields (also in the header).

    `overlaps`: whether a request may begin before the connection's earlier ones are answered. Answers keep their order anyway.
    `waits`: whether a request may rest for long without anything being wrong: a server that stops does not wait for it.
    """

    key: int
    name: str
    versions: tuple[int, int]
    flexible_from: int
    control: ControlHandler | None = None
    raw: RawHandler | None = None
    direct: DirectHandler | None = None
    pipelined: bool = False
    long_poll: bool = False

    def supports(self, version: int) -> bool:
        """Whether this version is implemented."""
        return self.versions[0] <= version <= self.versions[1]

    def is_flexible(self, version: int) -> bool:
        """Whether a request of this version has a flexible header."""
        return version >= self.flexible_from
