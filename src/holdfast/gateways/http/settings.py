"""Settings of the HTTP gateway."""

from dataclasses import dataclass

from holdfast.security.tls import TlsFiles, check_pair
from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Limits of the gateway.

    `body_bytes_max`: of a request body; `head_bytes_max`: of the request line and headers together. `connections_max`: further
    ones are closed. `requests_max`: requests in flight; others get 503 with `Retry-After`, except health and metrics. `head_ms`,
    `body_ms`: how long the head and the body of a request may take to arrive. `request_ms`: how long a handler may take.
    `write_ms`: how long a client may leave a response unread. `idle_ms`: after it a connection without a request is closed.
    `forward_ms`: how long another node may take for what this one cannot do itself. `tails_max`: tails of topics that are open.
    `waits_max`: reads that wait for records, and tails, which do not count as requests in flight.
    `stop_ms`: how long a graceful stop waits for requests in flight. `ready_ms`: timeout of the checks of `/ready`. `hosts`,
    `origins`: host names that are accepted beside loopback's, and origins of other servers that may write, separated by commas.
    `tls_cert` and `tls_key`: PEM files with which the listener has TLS; read again within `tls_reload_ms` after they have changed.
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
    forward_ms: int = 20_000
    tails_max: int = 16
    waits_max: int = 64
    stop_ms: int = 10_000
    ready_ms: int = 2_000
    hosts: str = ""
    origins: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_reload_ms: int = 5_000

    def __post_init__(self) -> None:
        check_between("body_bytes_max", self.body_bytes_max, KIB, 1 << 30)
        check_between("head_bytes_max", self.head_bytes_max, KIB, 16 * MIB)
        for name in ("connections_max", "requests_max", "tails_max", "waits_max"):
            check_at_least(name, getattr(self, name), 1)
        for name in ("head_ms", "body_ms", "request_ms", "write_ms", "idle_ms", "forward_ms", "stop_ms", "ready_ms"):
            check_at_least(name, getattr(self, name), 1)
        check_at_least("tls_reload_ms", self.tls_reload_ms, 1)
        check_pair(self.tls_cert, self.tls_key)

    @property
    def tls(self) -> TlsFiles | None:
        """The listener's certificate; None: it has no TLS."""
        return TlsFiles(certificate=self.tls_cert, key=self.tls_key) if self.tls_cert else None


def comma_separated(text: str) -> frozenset[str]:
    """The values of a setting that is a list."""
    return frozenset(name.strip().lower() for name in text.split(",") if name.strip())
