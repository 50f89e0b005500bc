"""What an operator may tune about the gRPC gateway, and what it counts. docs/grpc.md documents both."""

from collections import Counter
from dataclasses import dataclass, field

from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.histogram import Latencies
from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between
from holdfast.vocabulary.tasks import Notify


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcSettings:
    """Limits of the gateway.

    `message_bytes_max`: of a message that is received; `metadata_bytes_max`: of the headers of a call. `connections_max`: further
    ones are refused. `calls_max`: calls of all connections, streams included; `streams_max`: calls of one connection.
    `caller_calls_max`: calls of one principal, or of one address where nobody logs in, and never more than half of `calls_max`.
    `public_calls_max`: calls of health and reflection with one response, and as many streams, and never more than a quarter of
    `calls_max` each; `public_peer_max`: of these, from one address.
    `request_ms`: how long the request of a call may take to arrive.
    `fetches_max`: open Fetch and Watch streams.
    `produce_requests_max`, `produce_bytes_max`: reading from a ProduceStream pauses at so many requests, or bytes of them, that are
    not acknowledged.
    `keepalive_ms`, `keepalive_timeout_ms`: a connection is pinged when it was silent for so long, and closed when that is not
    answered in time. `ping_ms_min`: a client that pings more often is closed. `handshake_ms`: how long one may take.
    `idle_ms`: a connection without calls is closed after it. `age_ms`, `age_grace_ms`: a connection is asked to go after so long,
    and closed after the grace; clients connect again.
    `forward_ms`: how long another node may take for what this one cannot do itself. `session_ttl_ms_max`: of sessions.
    `stop_ms`: how long a graceful stop waits for calls. `health_ms`: how often readiness is checked.
    `tls_cert`, `tls_key`, `client_ca`: PEM files, read again when they change; the last are authorities of certificates that
    clients must have.
    """

    message_bytes_max: int = 4 * MIB
    metadata_bytes_max: int = 16 * KIB
    connections_max: int = 1_000
    calls_max: int = 1_024
    streams_max: int = 128
    caller_calls_max: int = 512
    public_calls_max: int = 128
    public_peer_max: int = 32
    request_ms: int = 30_000
    fetches_max: int = 64
    produce_requests_max: int = 64
    produce_bytes_max: int = 16 * MIB
    keepalive_ms: int = 30_000
    keepalive_timeout_ms: int = 10_000
    ping_ms_min: int = 10_000
    handshake_ms: int = 10_000
    idle_ms: int = 600_000
    age_ms: int = 3_600_000
    age_grace_ms: int = 60_000
    forward_ms: int = 20_000
    session_ttl_ms_max: int = 600_000
    stop_ms: int = 10_000
    health_ms: int = 1_000
    tls_cert: str = ""
    tls_key: str = ""
    client_ca: str = ""

    def __post_init__(self) -> None:
        check_between("message_bytes_max", self.message_bytes_max, KIB, 1 << 30)
        check_between("metadata_bytes_max", self.metadata_bytes_max, KIB, MIB)
        for name in (
            *(
                "connections_max",
                "calls_max",
                "streams_max",
                "caller_calls_max",
                "public_calls_max",
                "public_peer_max",
                "fetches_max",
                "produce_requests_max",
                "produce_bytes_max",
            ),
            *("keepalive_ms", "keepalive_timeout_ms", "ping_ms_min", "handshake_ms", "idle_ms", "age_ms"),
            *("request_ms", "forward_ms", "session_ttl_ms_max", "stop_ms", "health_ms"),
        ):
            check_at_least(name, getattr(self, name), 1)
        check_at_least("age_grace_ms", self.age_grace_ms, 0)
        if bool(self.tls_cert) != bool(self.tls_key):
            raise InvalidError("tls_cert", self.tls_cert, "given together with tls_key")
        if self.client_ca and not self.tls_cert:
            raise InvalidError("client_ca", self.client_ca, "given together with tls_cert and tls_key")


@dataclass(slots=True)
class GrpcCounters:
    """Since the process started; `/metrics` shows them. `calls`: finished ones by rpc and code; `open_streams`: Fetch and Watch.

    `latencies`: of calls with one response, by rpc.

    `idle` is notified when the last call in flight has ended.
    """

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    latencies: Latencies = field(default_factory=Latencies)
    in_flight: int = 0
    open_streams: int = 0
    records_appended: int = 0
    records_read: int = 0
    idle: Notify = field(default_factory=Notify)
