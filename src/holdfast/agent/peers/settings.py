"""What an operator may tune about the connections between agents, and what they count."""

from dataclasses import dataclass, field

from holdfast.security.tls import TlsFiles, check_pair
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.histogram import Histogram
from holdfast.vocabulary.settings import KIB, MIB, check_at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """Limits and times of the streams between agents.

    `frame_bytes_max`: a larger frame closes its connection. `stream_credit_bytes`: what a peer may send before it is answered, and
    as much again waits in its memory; `partition_credit_bytes`: the same for one partition; `control_credit_bytes`: for messages
    without records, which wait for neither.
    `lag_ms`: a stream or a partition that is out of credit for so long is reported, and what waited for credit is dropped.
    `connect_ms`: how long connecting and the handshake may take. `admission_ms`: how long an agent that the store does not show yet
    is waited for. `reconnect_ms` and `reconnect_max_ms`: the first and the longest pause before another attempt.
    `keep_alive_ms`: how often a silent peer is asked; `silent_ms`: without a byte for so long, a connection is closed.
    `close_ms`: how long a closing connection may take to send what it has.
    `tls_cert`, `tls_key`: PEM files with which agents prove to each other who they are, and `tls_ca` the authorities of both ends'
    certificates: all three, or none. They are read again within `tls_reload_ms` after they have changed.
    """

    frame_bytes_max: int = 128 * MIB
    stream_credit_bytes: int = 64 * MIB
    partition_credit_bytes: int = 8 * MIB
    control_credit_bytes: int = 4 * MIB
    lag_ms: int = 10_000
    connect_ms: int = 5_000
    admission_ms: int = 1_000
    reconnect_ms: int = 50
    reconnect_max_ms: int = 2_000
    keep_alive_ms: int = 1_000
    silent_ms: int = 10_000
    close_ms: int = 500
    connections_max: int = 1_000
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    tls_reload_ms: int = 5_000

    def __post_init__(self) -> None:
        check_at_least("frame_bytes_max", self.frame_bytes_max, 64 * KIB)
        check_at_least("control_credit_bytes", self.control_credit_bytes, 64 * KIB)
        check_at_least("partition_credit_bytes", self.partition_credit_bytes, KIB)
        check_at_least("stream_credit_bytes", self.stream_credit_bytes, self.partition_credit_bytes)
        check_at_least("reconnect_max_ms", self.reconnect_max_ms, self.reconnect_ms)
        check_at_least("silent_ms", self.silent_ms, 2 * self.keep_alive_ms)
        check_at_least("admission_ms", self.admission_ms, 0)
        check_at_least("close_ms", self.close_ms, 0)
        for name in ("lag_ms", "connect_ms", "reconnect_ms", "keep_alive_ms", "connections_max", "tls_reload_ms"):
            check_at_least(name, getattr(self, name), 1)
        check_pair(self.tls_cert, self.tls_key)
        if bool(self.tls_ca) != bool(self.tls_cert):
            name, other = ("tls_ca", "tls_cert") if self.tls_cert else ("tls_cert", "tls_ca")
            raise InvalidError(name, "", f"a file: {other} is given, and TLS between agents is mutual")

    @property
    def tls(self) -> TlsFiles | None:
        """The certificates of both ends; None: no TLS between agents."""
        if not self.tls_cert:
            return None
        return TlsFiles(certificate=self.tls_cert, key=self.tls_key, client_authorities=self.tls_ca)


@dataclass(slots=True)
class TrafficCounters:
    """What went over the connections of one stream, however often it was connected again."""

    sent_bytes: int = 0
    sent_frames: int = 0
    received_bytes: int = 0
    received_frames: int = 0


@dataclass(slots=True)
class StreamCounters(TrafficCounters):
    """A stream to a peer, since it became one. `disconnects`: ended or failed connections by reason."""

    connects: int = 0
    credit_waits: int = 0
    lags: int = 0
    refused_sends: int = 0
    disconnects: dict[str, int] = field(default_factory=dict)
    round_trip_s: Histogram = field(default_factory=Histogram)
