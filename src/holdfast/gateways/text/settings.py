"""What an operator may tune about the text gateway, and what it counts. docs/text.md documents both."""

from dataclasses import dataclass

from holdfast.security.tls import TlsFiles, check_pair
from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSettings:
    """Limits and defaults of the gateway.

    `frame_bytes_max`: a larger request is refused, and drained; all nodes of a cluster should have the same.
    `connections_max`: open connections, those of other nodes included.
    `requests_in_flight_max`, `in_flight_bytes_max`: reading from a connection pauses at so many requests, or bytes of them, that
    are not answered; `requests_bytes_max`: the same for all connections.
    `unfinished_bytes_max`: of requests that have not arrived whole, of all connections; the slowest senders are closed there.
    `idle_ms`: a connection without a request for so long is closed. `frame_ms`: how long a frame may take to arrive.
    `write_ms`: how long a client may leave answers unread.
    `login_ms`: where connections need AUTH, how long one may take to send it. `handshake_ms`: how long that of TLS may take.
    `request_ms`: how long a request is tried, here or at the leader, before it gets an error.
    `fetch_bytes_max`: of a FETCH of several records. `auto_create_topics`: whether PUT creates a missing topic.
    `rotation_entries`: `rotation.entries` of topics that text requests create; 0: they do not rotate.
    `forward_connections_max`: connections to one other node; `connect_ms`: how long one may take to open.
    `tls_cert` and `tls_key`: PEM files with which the listener has TLS, and so has what nodes forward; read again within
    `tls_reload_ms` after they have changed. `tls_ca`: authorities of the other nodes' certificates; empty: the system's.
    """

    frame_bytes_max: int = 64 * KIB
    connections_max: int = 10_000
    requests_in_flight_max: int = 1_024
    in_flight_bytes_max: int = 4 * MIB
    requests_bytes_max: int = 256 * MIB
    unfinished_bytes_max: int = 64 * MIB
    idle_ms: int = 600_000
    frame_ms: int = 60_000
    write_ms: int = 120_000
    login_ms: int = 30_000
    handshake_ms: int = 10_000
    request_ms: int = 10_000
    fetch_bytes_max: int = 1 * MIB
    auto_create_topics: bool = True
    rotation_entries: int = 0
    forward_connections_max: int = 256
    connect_ms: int = 2_000
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    tls_reload_ms: int = 5_000

    def __post_init__(self) -> None:
        check_between("frame_bytes_max", self.frame_bytes_max, KIB, 64 * MIB)
        check_at_least("rotation_entries", self.rotation_entries, 0)
        check_at_least("unfinished_bytes_max", self.unfinished_bytes_max, self.frame_bytes_max)
        for name in (
            *("connections_max", "requests_in_flight_max", "in_flight_bytes_max", "requests_bytes_max", "idle_ms"),
            *(
                "frame_ms",
                "write_ms",
                "login_ms",
                "handshake_ms",
                "request_ms",
                "fetch_bytes_max",
                "forward_connections_max",
                "connect_ms",
            ),
            "tls_reload_ms",
        ):
            check_at_least(name, getattr(self, name), 1)
        check_pair(self.tls_cert, self.tls_key)

    @property
    def tls(self) -> TlsFiles | None:
        """The listener's certificate; None: it has no TLS."""
        return TlsFiles(certificate=self.tls_cert, key=self.tls_key) if self.tls_cert else None


@dataclass(slots=True)
class TextCounters:
    """Since the process started. METRICS and `/metrics` show them. `forwarded`: PUTs and GETs; `retries`: of any request."""

    requests: int = 0
    errors: int = 0
    invalid_frames: int = 0
    forwarded: int = 0
    retries: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    connections_accepted: int = 0
    connections_refused: int = 0
    unfinished_closed: int = 0
