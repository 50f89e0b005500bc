"""What an operator may tune about the Kafka gateway."""

from dataclasses import dataclass
from typing import Final

from holdfast.kafka.wire import ENTRIES_MAX
from holdfast.log.model import REPLICAS_MAX
from holdfast.log.topics import PARTITIONS_MAX
from holdfast.security.oauthbearer import OAUTHBEARER
from holdfast.security.principals import PrincipalMapping
from holdfast.security.scram import ScramMechanism
from holdfast.security.tls import TlsFiles, check_pair
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between, check_one_of

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *ScramMechanism, OAUTHBEARER)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Limits and defaults of the gateway.

    `request_bytes_max`: a larger frame closes its connection; `control_bytes_max`: the same for requests without records.
    `request_entries_max`: the same for what one names, all its arrays together: 50,000 partitions, each of a topic of its own.
    `produce_entries_max`: the same for requests with records. `large_requests_max`: of the others, how many large ones are handled
    at a time.
    `requests_in_flight_max` and `in_flight_bytes_max`: reading from a connection pauses at so many unanswered requests. One of them
    at most is a fetch that waits. `queued_bytes_max`: the same for requests that have to wait for those before them.
    `idle_ms`: a connection without a request for so long is closed. `frame_ms`: how long a frame may take to arrive.
    `write_ms`: how long a client may leave responses unread. `buffered_bytes_max`: a connection with so many unread response bytes
    starts no further request: it holds that and one response at most.
    `responses_bytes_max`: the same for all connections: fetches wait while unread responses hold so much memory. `unread_ms`: while
    they wait, a connection that has read nothing for so long is closed, the slowest first.
    `requests_bytes_max`: reading pauses when requests of all connections, arriving or in flight, hold so much memory. `stalled_ms`:
    while large ones wait for it, a connection whose request has not gone on arriving for so long is closed, the slowest first; then
    those whose requests wait for so long behind others, for records, or in a pause for a quota, the largest first.
    `slabs_bytes_max`: memory kept for large requests, in use until the log has published their records.
    `auto_create_topics`: whether a request for a missing topic creates it, with `auto_create_partitions`.
    `default_replication_factor`: of topics that are created without one and without a durability; 1 follows the durability.
    `replication_factor`: what becomes of a topic that asks for more replicas than there can be: `refuse`, `cap` (it gets what there
    is), or `auto`: cap on a single server with an embedded store, where tools that ask for 3 by default could never start.
    `leave_answer_ms`: the delay of a LeaveGroup response. librdkafka, closed during its rebalance callback, hangs for ever if the
    response arrives before the callback returns.
    `lookup_ms`: how long an offset is looked up by time before its partition gets REQUEST_TIMED_OUT, if its request does not ask
    for less. `lookups_max`: concurrent lookups of a request, without those that have taken longer than `lookup_slow_ms`.
    `fetch_bytes_max`: the limit of one fetch, whatever the client allows. `fetch_wait_max_ms`: the longest long poll.
    `fetch_partitions_max`: partitions that fetches of more than 16 KiB name, all together; others wait, and those that wait for
    records end early.
    `fetch_read_ms`: how long a fetch that has nothing else to answer waits for object storage at least, if its own wait is shorter.
    `fetch_reads_max`: reads of object storage for fetches, under way or waiting for the next fetch; `fetch_read_kept_ms`: how long
    one is kept that no fetch waits for.
    `fetch_sessions_max`: fetch sessions, and `fetch_session_partitions_max` the partitions that they remember; clients beyond go on
    without one. `fetch_session_idle_ms`: from then on a session gives way to another.
    `tls_cert` and `tls_key`: PEM files with which the listener has TLS; read again within `tls_reload_ms` after they have changed.
    `tls_ca`: authorities with which nodes check each other's certificates (by default `client_ca`, else the certificate itself).
    `client_ca`: authorities of the certificates that clients must have. `principal_rules`: Kafka's `ssl.principal.mapping.rules`.
    `sasl`: the mechanisms of logins, separated by commas; with them a client's principal is the user's, whatever its certificate.
    `sasl_session_ms`: how long a login lasts (KIP-368); 0: as long as its connection. `login_ms`: how long a client may take to log
    in, and `login_bytes_max` the size of its requests until then. `failed_login_delay_ms`: the pause before a login is refused.
    `handshake_ms`: how long that of TLS may take.
    """

    request_bytes_max: int = 100 * MIB
    control_bytes_max: int = 8 * MIB
    request_entries_max: int = ENTRIES_MAX
    produce_entries_max: int = 20_000
    large_requests_max: int = 4
    connections_max: int = 10_000
    requests_in_flight_max: int = 64
    in_flight_bytes_max: int = 32 * MIB
    queued_bytes_max: int = MIB
    idle_ms: int = 600_000
    frame_ms: int = 60_000
    write_ms: int = 120_000
    buffered_bytes_max: int = 4 * MIB
    responses_bytes_max: int = 256 * MIB
    unread_ms: int = 2_000
    requests_bytes_max: int = 256 * MIB
    stalled_ms: int = 2_000
    slabs_bytes_max: int = 512 * MIB
    auto_create_topics: bool = True
    auto_create_partitions: int = 1
    default_replication_factor: int = 1
    replication_factor: str = "auto"
    produce_timeout_max_ms: int = 600_000
    leave_answer_ms: int = 10
    lookup_ms: int = 10_000
    lookups_max: int = 32
    lookup_slow_ms: int = 500
    fetch_partitions_max: int = 500_000
    fetch_bytes_max: int = 8 * MIB  # measured: clients read several responses of this size faster than one of 32 MiB
    fetch_wait_max_ms: int = 300_000
    fetch_read_ms: int = 500
    fetch_reads_max: int = 256
    fetch_read_kept_ms: int = 5_000
    fetch_sessions_max: int = 10_000
    fetch_session_partitions_max: int = 1_000_000
    fetch_session_idle_ms: int = 120_000
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    tls_reload_ms: int = 5_000
    client_ca: str = ""
    principal_rules: str = "DEFAULT"
    sasl: str = ""
    sasl_session_ms: int = 0
    login_ms: int = 30_000
    handshake_ms: int = 10_000
    login_bytes_max: int = 64 * KIB
    failed_login_delay_ms: int = 100

    def __post_init__(self) -> None:
        check_between("request_bytes_max", self.request_bytes_max, 64 * KIB, 1 << 30)
        check_between("control_bytes_max", self.control_bytes_max, 64 * KIB, self.request_bytes_max)
        check_between("auto_create_partitions", self.auto_create_partitions, 1, PARTITIONS_MAX)
        check_between("default_replication_factor", self.default_replication_factor, 1, REPLICAS_MAX)
        check_one_of("replication_factor", self.replication_factor, ("auto", "cap", "refuse"))
        check_at_least("fetch_bytes_max", self.fetch_bytes_max, KIB)
        check_at_least("slabs_bytes_max", self.slabs_bytes_max, 16 * MIB)
        check_at_least("fetch_sessions_max", self.fetch_sessions_max, 0)
        check_at_least("fetch_session_partitions_max", self.fetch_session_partitions_max, 0)
        check_between("leave_answer_ms", self.leave_answer_ms, 0, 1_000)
        for name in (
            "request_entries_max",
            "produce_entries_max",
            "large_requests_max",
            "connections_max",
            "requests_in_flight_max",
            "in_flight_bytes_max",
            "queued_bytes_max",
            "idle_ms",
            "frame_ms",
            "write_ms",
            "buffered_bytes_max",
            "responses_bytes_max",
            "unread_ms",
            "requests_bytes_max",
            "stalled_ms",
            "produce_timeout_max_ms",
            "lookup_ms",
            "lookups_max",
            "lookup_slow_ms",
            "fetch_partitions_max",
            "fetch_wait_max_ms",
            "fetch_read_ms",
            "fetch_reads_max",
            "fetch_read_kept_ms",
            "fetch_session_idle_ms",
            "tls_reload_ms",
            "login_ms",
            "handshake_ms",
        ):
            check_at_least(name, getattr(self, name), 1)
        self._check_security()

    def _check_security(self) -> None:
        check_pair(self.tls_cert, self.tls_key)
        if self.client_ca and not self.tls_cert:
            raise InvalidError("client_ca", self.client_ca, "empty without tls_cert")
        for mechanism in self.sasl_mechanisms:
            check_one_of("sasl", mechanism, MECHANISMS)
        PrincipalMapping("principal_rules", self.principal_rules)
        check_at_least("sasl_session_ms", self.sasl_session_ms, 0)
        check_between("login_bytes_max", self.login_bytes_max, KIB, self.control_bytes_max)
        check_between("failed_login_delay_ms", self.failed_login_delay_ms, 0, 10_000)

    @property
    def sasl_mechanisms(self) -> tuple[str, ...]:
        """The mechanisms of logins."""
        return tuple(dict.fromkeys(each.strip().upper() for each in self.sasl.split(",") if each.strip()))

    @property
    def tls(self) -> TlsFiles | None:
        """The listener's certificates; None: it has no TLS."""
        if not self.tls_cert:
            return None
        return TlsFiles(certificate=self.tls_cert, key=self.tls_key, client_authorities=self.client_ca)

    @property
    def authenticates(self) -> bool:
        """Whether clients have to prove who they are."""
        return bool(self.sasl_mechanisms or self.client_ca)

    @property
    def is_secured(self) -> bool:
        """Whether clients need a login or TLS."""
        return self.authenticates or self.tls is not None

    @property
    def sends_passwords(self) -> bool:
        """Whether passwords or tokens may go over the network as they are."""
        return bool({PLAIN, OAUTHBEARER} & {*self.sasl_mechanisms}) and not self.tls_cert
