"""What an operator may tune about the HTTP face."""

from dataclasses import dataclass

from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Limits of the face.

    `body_bytes_max`: a larger body is refused; `head_bytes_max`: the same for the request line and headers together.
    `connections_max`: one more is hung up on. `requests_max`: so many requests are under way before others are told to come again;
    health and metrics are not counted. `head_ms`, `body_ms`: how long a request's head and its body may take to arrive.
    `request_ms`: how long an answer may take to make. `write_ms`: how long a client may leave an answer unread.
    `idle_ms`: a connection without a request for so long is closed. `stop_ms`: what a polite stop leaves to requests under way.
    `ready_ms`: how long `/ready` waits for the store. `hosts`, `origins`: names beyond loopback's that a request may be addressed
    to, and pages of other servers that may write, separated by commas.
    """

    body_bytes_max: int = 4 * MIB
    head_bytes_max: int = 64 * KIB
    connections_max: int = 1_000
    requests_max: int = 64
    head_ms: int = 10_000
    body_ms: int = 30_000
    request_ms: int = 60_000
    write_ms: int = 30_000
    idle_ms: int = 60_000
    stop_ms: int = 10_000
    ready_ms: int = 2_000
    hosts: str = ""
    origins: str = ""

    def __post_init__(self) -> None:
        check_between("body_bytes_max", self.body_bytes_max, KIB, 1 << 30)
        check_between("head_bytes_max", self.head_bytes_max, KIB, 16 * MIB)
        for name in ("connections_max", "requests_max"):
            check_at_least(name, getattr(self, name), 1)
        for name in ("head_ms", "body_ms", "request_ms", "write_ms", "idle_ms", "stop_ms", "ready_ms"):
            check_at_least(name, getattr(self, name), 1)


def comma_separated(text: str) -> frozenset[str]:
    """The names of a setting that has several."""
    return frozenset(name.strip().lower() for name in text.split(",") if name.strip())
