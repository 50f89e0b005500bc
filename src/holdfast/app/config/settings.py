"""Everything an operator may set, as one frozen value. Origins are `effective`'s business."""

from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Final

from holdfast.agent.settings import AgentSettings
from holdfast.app.addresses import Address, AdvertisedAddress
from holdfast.app.config.etcd_member import EtcdMemberSettings
from holdfast.app.tracing.settings import TraceSettings
from holdfast.gateways.grpc.settings import GrpcSettings
from holdfast.gateways.http.metrics.settings import MetricsSettings
from holdfast.gateways.http.settings import HttpSettings
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.gateways.text.settings import TextSettings
from holdfast.log.settings import TopicSettings
from holdfast.objects.cache import CacheSettings
from holdfast.pipeline.model.secret_references import SecretReferenceSettings
from holdfast.pipeline.workers.settings import WorkerSettings
from holdfast.security.confirmations import ConfirmationSettings
from holdfast.security.oauth_settings import OAuthSettings
from holdfast.security.oauthbearer import OAUTHBEARER
from holdfast.security.settings import SecuritySettings
from holdfast.spark.settings import SparkSettings
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.redaction import redacted
from holdfast.vocabulary.settings import check_at_least, check_between, check_one_of

API: Final = "api"
AGENT: Final = "agent"
WORKER: Final = "worker"
ROLES: Final = (API, AGENT, WORKER)
AGENTS_MAX: Final = 256
_PORT_MAX: Final = 65_535
LOG_FORMATS: Final = ("text", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSettings:
    """How the embedded ClickHouse is supervised.

    It is pinged every `ping_ms`, and killed and restarted after `hung_ms` without a response. `stop_ms` bounds its graceful stop.
    """

    ping_ms: int = 5_000
    hung_ms: int = 60_000
    stop_ms: int = 15_000

    def __post_init__(self) -> None:
        check_at_least("ping_ms", self.ping_ms, 100)
        check_at_least("hung_ms", self.hung_ms, self.ping_ms)
        check_at_least("stop_ms", self.stop_ms, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """What `holdfast serve` does.

    `agent_id` is empty if it is generated once and kept in `data`. `stop_ms` bounds a graceful stop: what is not published by then
    stays in the WAL. `store_wait_ms` is how long a start waits for a store that is not available.
    `print_addresses` is empty or a file. `http_listen`, `grpc_listen`, `text_listen`: None if
    HTTP, gRPC or the text protocol is off. `grpc_default`: nobody asked for gRPC, which is served if it can be.
    `agents`: how many agents of this host, this process included.
    `master_key_file`, `master_key`: what secrets in the store are sealed with (`app.master_keys`).
    `peer_listen` is None for a free port of the host where Kafka is served.
    `clickhouse` is `embedded`, `off`, or the URL of another for sinks that name none.
    `agent` has no name and no address of its own yet: see `as_agent`.
    """

    data: Path
    store: str
    objects: str
    roles: tuple[str, ...] = ROLES
    insecure: bool = False
    print_addresses: str = ""
    stop_ms: int = 45_000
    store_wait_ms: int = 15_000
    agents: int = 1
    log_format: str = "text"
    log_level: str = "info"
    listen: Address = field(default_factory=lambda: Address("127.0.0.1", 9092))
    advertise: AdvertisedAddress = field(default_factory=AdvertisedAddress)
    peer_listen: Address | None = None
    peer_advertise: AdvertisedAddress = field(default_factory=AdvertisedAddress)
    http_listen: Address | None = None
    grpc_listen: Address | None = None
    grpc_default: bool = False
    text_listen: Address | None = None
    text_advertise: AdvertisedAddress = field(default_factory=AdvertisedAddress)
    clickhouse: str = "embedded"
    agent_id: str = ""
    master_key_file: str = ""
    master_key: str = field(default="", repr=False)
    zone: str = ""
    group: str = "default"
    agent: AgentSettings = field(default_factory=lambda: AgentSettings(id="unnamed"))
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    oauth: OAuthSettings = field(default_factory=OAuthSettings)
    confirmations: ConfirmationSettings = field(default_factory=ConfirmationSettings)
    topics: TopicSettings = field(default_factory=TopicSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    grpc: GrpcSettings = field(default_factory=GrpcSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    traces: TraceSettings = field(default_factory=TraceSettings)
    text: TextSettings = field(default_factory=TextSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    pipelines: SecretReferenceSettings = field(default_factory=SecretReferenceSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    embedded: EmbeddedSettings = field(default_factory=EmbeddedSettings)
    etcd: EtcdMemberSettings = field(default_factory=EtcdMemberSettings)

    def __post_init__(self) -> None:
        if OAUTHBEARER in self.kafka.sasl_mechanisms and not self.oauth.is_configured:
            raise InvalidError(
                "oauth.jwks", "", f"the issuer's keys (--oauth-jwks): Kafka's clients log in with {OAUTHBEARER}"
            )
        if not self.roles:
            raise InvalidError("roles", "", "one or more of " + ", ".join(ROLES))
        for role in self.roles:
            check_one_of("roles", role, ROLES)
        check_one_of("log_format", self.log_format, LOG_FORMATS)
        check_one_of("log_level", self.log_level, LOG_LEVELS)
        check_at_least("stop_ms", self.stop_ms, 0)
        check_at_least("store_wait_ms", self.store_wait_ms, 0)
        check_between("agents", self.agents, 1, AGENTS_MAX if self.leads else 1)
        self._check_ports_of_agents()
        if self.clickhouse not in ("embedded", "off") and not self.clickhouse.startswith(("http://", "https://")):
            raise InvalidError(
                "clickhouse", redacted(self.clickhouse), "embedded, off, or http[s]://user:password@host:port"
            )
        if self.agent_id:
            self.as_agent(self.agent_id, "")  # refuse an invalid id before anything starts

    def _check_ports_of_agents(self) -> None:
        """Ports count up from agent to agent: refuse ranges that meet before the agents of a host fail one after the other."""
        given = {
            "--kafka": self.listen,
            "--http": self.http_listen,
            "--grpc": None if self.grpc_default else self.grpc_listen,
            "--peer": self.peer_listen,
            "--text": self.text_listen,
        }
        fixed = [(flag, each) for flag, each in given.items() if each is not None and each.port]
        for flag, each in fixed:
            if each.port + self.agents - 1 > _PORT_MAX:
                raise InvalidError("agents", self.agents, f"at most {_PORT_MAX + 1 - each.port} with {flag} {each}")
        for (flag, each), (other, beside) in combinations(fixed, 2):
            apart = abs(each.port - beside.port)
            if self.agents > 1 and each.host == beside.host and apart < self.agents:
                raise InvalidError("agents", self.agents, f"at most {apart} with {flag} {each} and {other} {beside}")

    @property
    def leads(self) -> bool:
        """Whether this process may own partitions."""
        return AGENT in self.roles

    @property
    def peer_address(self) -> Address:
        """Where to listen for other agents."""
        return self.peer_listen or Address(self.listen.host, 0)

    def advertised_peer(self, bound: Address, *, host_name: str) -> Address:
        """Where other agents connect to; the host is Kafka's advertised one unless they have their own."""
        return self._advertised(self.peer_advertise, bound, host_name)

    def advertised_text(self, bound: Address, *, host_name: str) -> Address:
        """Where clients and other nodes reach the text protocol; the same rule."""
        return self._advertised(self.text_advertise, bound, host_name)

    def _advertised(self, given: AdvertisedAddress, bound: Address, host_name: str) -> Address:
        return AdvertisedAddress(given.host or self.advertise.host, given.port).resolve(bound, host_name=host_name)

    def as_agent(self, agent_id: str, address: str, text_address: str = "") -> AgentSettings:
        """The settings of this process's agent, once its id and addresses are known."""
        return replace(
            self.agent, id=agent_id, address=address, text_address=text_address, zone=self.zone, group=self.group
        )
