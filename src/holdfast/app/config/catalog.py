"""Every setting: its dotted name (as in a TOML file), its environment variables, its flag, its type and its default.

The everyday ones are listed here; the tuning values are the fields of the settings classes, so that a new field of a class is a
setting without another line. The one rule: `[section] name` in TOML is `HOLDFAST_SECTION_NAME` in the environment.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final, get_type_hints

from holdfast.agent.peers.settings import PeerSettings
from holdfast.agent.settings import AgentSettings
from holdfast.app.config.etcd_member import EtcdMemberSettings
from holdfast.app.config.settings import LOG_FORMATS, LOG_LEVELS, ROLES, EmbeddedSettings
from holdfast.app.tracing.settings import TraceSettings
from holdfast.cursors.settings import CursorSettings
from holdfast.gateways.grpc.settings import GrpcSettings
from holdfast.gateways.http.metrics.settings import MetricsSettings
from holdfast.gateways.http.settings import HttpSettings
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.gateways.text.settings import TextSettings
from holdfast.groups.settings import GroupSettings
from holdfast.heap.settings import HeapSettings
from holdfast.kernel.early_takeover import EarlyTakeoverSettings
from holdfast.kernel.membership import MembershipSettings
from holdfast.kernel.plan_executor import PlanExecutorSettings
from holdfast.kernel.planner import PlannerSettings
from holdfast.kernel.session import SessionSettings
from holdfast.log.maintenance import MaintenanceSettings
from holdfast.log.replication.settings import ReplicaSettings
from holdfast.log.settings import LogSettings, TopicSettings
from holdfast.log.wal import WalSettings
from holdfast.objects.cache import CacheSettings
from holdfast.pipeline.model.secret_references import SecretReferenceSettings
from holdfast.pipeline.workers.settings import WorkerSettings
from holdfast.security.confirmations import ConfirmationSettings
from holdfast.security.oauth_settings import OAuthSettings
from holdfast.security.settings import SecuritySettings
from holdfast.spark.settings import SparkSettings

PREFIX: Final = "HOLDFAST_"
SECTIONS: Final[Mapping[str, type]] = {
    "agent": AgentSettings,
    "peers": PeerSettings,
    "replica": ReplicaSettings,
    "session": SessionSettings,
    "membership": MembershipSettings,
    "planner": PlannerSettings,
    "early_takeover": EarlyTakeoverSettings,
    "follower": PlanExecutorSettings,
    "log": LogSettings,
    "wal": WalSettings,
    "upkeep": MaintenanceSettings,
    "kafka": KafkaSettings,
    "security": SecuritySettings,
    "oauth": OAuthSettings,
    "confirmations": ConfirmationSettings,
    "topics": TopicSettings,
    "http": HttpSettings,
    "grpc": GrpcSettings,
    "metrics": MetricsSettings,
    "traces": TraceSettings,
    "text": TextSettings,
    "groups": GroupSettings,
    "cursors": CursorSettings,
    "heaps": HeapSettings,
    "cache": CacheSettings,
    "pipelines": SecretReferenceSettings,
    "worker": WorkerSettings,
    "spark": SparkSettings,
    "embedded": EmbeddedSettings,
    "etcd": EtcdMemberSettings,
}
_SCALARS: Final = (bool, int, float, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. `everyday`: shown without `--all`. `url`: its secrets are hidden wherever it is shown; `hidden`: all of it is.

    `repeated`: its flag may be given several times; in one text the values stand one after another, as in a shell.
    """

    name: str
    kind: Any
    default: object
    flag: str = ""
    metavar: str = ""
    help: str = ""
    choices: tuple[str, ...] = ()
    everyday: bool = False
    url: bool = False
    hidden: bool = False
    repeated: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """Its environment variables, the one to show first."""
        by_flag = PREFIX + self.flag.removeprefix("--").replace("-", "_").upper() if self.flag else ""
        by_name = PREFIX + self.name.replace(".", "_").upper()
        return (by_flag, by_name) if by_flag and by_flag != by_name else (by_name,)


def everyday_setting(name: str, default: object, flag: str, metavar: str, help_: str, **more: Any) -> Setting:
    """An everyday setting."""
    kind = more.pop("kind", str)
    return Setting(name=name, kind=kind, default=default, flag=flag, metavar=metavar, help=help_, everyday=True, **more)


def _worker_settings() -> Iterator[Setting]:
    default = WorkerSettings()
    yield everyday_setting("worker.id", "", "--worker-id", "ID", "this worker's id (default: the agent's)")
    yield everyday_setting(
        "worker.interval_ms",
        default.interval_ms,
        "--worker-interval",
        "MS",
        "how often a worker checks pipelines and slots; changes wake it at once",
        kind=int,
    )
    yield everyday_setting(
        "worker.lease_ttl_ms",
        default.lease_ttl_ms,
        "--worker-lease-ttl",
        "MS",
        "how long a worker keeps its slots after its last heartbeat; at least twice the interval",
        kind=int,
    )
    yield everyday_setting(
        "worker.slots_per_pipeline_max",
        default.slots_per_pipeline_max,
        "--max-slots-per-pipeline",
        "N",
        "slots of one pipeline on this worker at most",
        kind=int,
    )
    yield everyday_setting(
        "worker.no_leases",
        False,
        "--no-leases",
        "",
        "run one instance of every started pipeline here, whatever its replicas",
        kind=bool,
    )
    yield everyday_setting("spark.master", SparkSettings().master, "--spark-master", "URL", "Spark master of pipelines")
    yield everyday_setting(
        "spark.remote", "", "--spark-remote", "URL", "a Spark Connect server (sc://host:port) instead", url=True
    )
    yield everyday_setting(
        "spark.conf",
        "",
        "--spark-conf",
        "NAME=VALUE",
        "a setting of Spark's own; may be repeated",
        hidden=True,
        repeated=True,
    )


def _security_settings() -> Iterator[Setting]:
    yield everyday_setting(
        "kafka.sasl",
        "",
        "--sasl",
        "MECHANISMS",
        "how Kafka's clients log in, of SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,OAUTHBEARER; then ACLs say what they may do",
    )
    yield everyday_setting(
        "kafka.tls_cert",
        "",
        "--kafka-tls-cert",
        "FILE",
        "certificate of the Kafka listener, with its chain (PEM); read again when it changes",
    )
    yield everyday_setting("kafka.tls_key", "", "--kafka-tls-key", "FILE", "its private key (PEM)")
    yield everyday_setting(
        "kafka.client_ca",
        "",
        "--kafka-client-ca",
        "FILE",
        "authorities (PEM) of the certificates that Kafka's clients must have; without --sasl, their names are the principals",
    )
    yield from _tls_settings()
    yield everyday_setting(
        "oauth.jwks",
        "",
        "--oauth-jwks",
        "URL",
        "the keys that OAuth tokens are signed with: a URL, a file or the JSON; needs --oauth-issuer and --oauth-audience",
    )
    yield everyday_setting(
        "oauth.issuer", "", "--oauth-issuer", "NAME", "what tokens must name as their issuer; *: any"
    )
    yield everyday_setting(
        "oauth.audience", "", "--oauth-audience", "NAMES", "what tokens must be for, one of NAME,NAME; *: anything"
    )
    yield everyday_setting(
        "master_key_file",
        "",
        "--master-key-file",
        "FILE",
        "keys that seal secrets in the store, the first one in use (default: generated in the data directory, "
        "if the store is sqlite); or the keys themselves in HOLDFAST_MASTER_KEY",
    )
    yield Setting(name="master_key", kind=str, default="", hidden=True, everyday=True, help="the keys themselves")
    yield everyday_setting(
        "security.super_users",
        "",
        "--super-users",
        "PRINCIPALS",
        "who needs no ACL: User:NAME, separated by semicolons",
    )
    yield everyday_setting(
        "security.bootstrap_token_file",
        "",
        "--bootstrap-token-file",
        "FILE",
        "has the token with which the first administrator is made (default: one is made up and printed, once)",
    )
    yield everyday_setting("security.audit", "stderr", "--audit", "FILE", "where audit lines go: a file, stderr or off")


def _trace_settings() -> Iterator[Setting]:
    default = TraceSettings()
    yield everyday_setting(
        "traces.export",
        default.export,
        "--traces",
        "URL",
        "OpenTelemetry collector for traces: otlp:http://host:4318; or off",
        url=True,
    )
    yield everyday_setting(
        "traces.ratio",
        default.ratio,
        "--trace-ratio",
        "SHARE",
        "share of requests that begin a trace, from 0 to 1; those that carry one follow it",
        kind=float,
    )


def _tls_settings() -> Iterator[Setting]:
    yield everyday_setting(
        "tls.cert",
        "",
        "--tls-cert",
        "FILE",
        "certificate of every port that has none of its own, with its chain (PEM); read again when it changes",
    )
    yield everyday_setting("tls.key", "", "--tls-key", "FILE", "its private key (PEM)")
    yield everyday_setting(
        "tls.ca",
        "",
        "--tls-ca",
        "FILE",
        "authorities (PEM) of the certificates of this cluster's nodes; with it, agents ask each other for theirs",
    )
    for section, flag, port in (
        ("http", "http", "HTTP"),
        ("text", "text", "the text protocol"),
        ("peers", "peer", "other agents"),
    ):
        cert_help = (
            f"certificate of the port for {port} (PEM), or off"
            if flag == "peer"
            else f"certificate of {port} (PEM), or off"
        )
        yield everyday_setting(f"{section}.tls_cert", "", f"--{flag}-tls-cert", "FILE", cert_help)
        yield everyday_setting(f"{section}.tls_key", "", f"--{flag}-tls-key", "FILE", "its private key (PEM)")
    yield everyday_setting(
        "peers.tls_ca",
        "",
        "--peer-tls-ca",
        "FILE",
        "authorities (PEM) of agents' certificates; agents need one of theirs",
    )
    yield everyday_setting(
        "text.tls_ca", "", "--text-tls-ca", "FILE", "authorities (PEM) of the text ports that requests are forwarded to"
    )


def _etcd_settings() -> Iterator[Setting]:
    default = EtcdMemberSettings()
    yield everyday_setting(
        "etcd.name", "", "--name", "NAME", "with etcd:embedded: this node's name (default: its agent's id)"
    )
    yield everyday_setting(
        "etcd.join",
        "",
        "--join",
        "HOST:PORT",
        "with etcd:embedded: peer addresses of nodes to join, separated by commas; without it a new cluster begins",
    )
    yield everyday_setting(
        "etcd.replace",
        False,
        "--replace",
        "",
        "with etcd:embedded: if this node has lost its data, remove its old member and join as a new one",
        kind=bool,
    )
    yield everyday_setting(
        "etcd.peer_listen",
        default.peer_listen,
        "--etcd-peer",
        "HOST:PORT",
        "where the embedded etcd listens for its peers",
    )
    yield everyday_setting(
        "etcd.client_listen",
        default.client_listen,
        "--etcd-client",
        "HOST:PORT",
        "where the embedded etcd listens for clients: the other nodes",
    )


def _everyday() -> Iterator[Setting]:
    yield everyday_setting(
        "data", "holdfast-data", "--data", "DIR", "the data directory: WAL, ids, and by default store and objects"
    )
    yield everyday_setting(
        "store", "", "--store", "URL", "the coordination store (default: sqlite, in the data directory)", url=True
    )
    yield everyday_setting(
        "objects", "", "--objects", "URL", "object storage (default: a folder in the data directory)", url=True
    )
    yield everyday_setting(
        "kafka.listen", "127.0.0.1:9092", "--kafka", "HOST:PORT", "Kafka listen address; port 0 picks a free one"
    )
    yield everyday_setting(
        "kafka.advertise",
        "",
        "--advertise",
        "HOST:PORT",
        "advertised address (default: the listen address)",
    )
    yield everyday_setting(
        "peers.listen",
        "",
        "--peer",
        "HOST:PORT",
        "listen address for other agents (default: Kafka's host and a free port)",
    )
    yield everyday_setting(
        "peers.advertise",
        "",
        "--advertise-peer",
        "HOST:PORT",
        "address that other agents connect to (default: the advertised host, the port listened on)",
    )
    yield everyday_setting(
        "http.listen",
        "127.0.0.1:8080",
        "--http",
        "HOST:PORT",
        "HTTP listen address: administration, health, metrics; port 0 picks a free one; or off",
    )
    yield everyday_setting(
        "grpc.listen",
        "auto",
        "--grpc",
        "HOST:PORT",
        "gRPC listen address; port 0 picks a free one; or off; auto is 127.0.0.1:50051, if that can be served",
    )
    yield everyday_setting(
        "text.listen",
        "off",
        "--text",
        "HOST:PORT",
        "text protocol listen address (9095 is the usual port); port 0 picks a free one; or off",
    )
    yield everyday_setting(
        "text.advertise",
        "",
        "--advertise-text",
        "HOST:PORT",
        "address that other nodes forward text requests to (default: the advertised host, the port listened on)",
    )
    yield everyday_setting(
        "roles", ",".join(ROLES), "--roles", "ROLES", f"the roles of this process, of {','.join(ROLES)}"
    )
    yield everyday_setting(
        "agent.id", "", "--agent-id", "ID", "this agent's id (default: generated once, kept in the data directory)"
    )
    yield everyday_setting(
        "agents",
        1,
        "--agents",
        "N",
        "agents on this host, each a process with its WAL and addresses: ports count up from --kafka, --http, --grpc and --text",
        kind=int,
    )
    yield everyday_setting("agent.zone", "", "--zone", "ZONE", "availability zone: Kafka's rack")
    yield everyday_setting("agent.group", "default", "--group", "GROUP", "agent group")
    yield everyday_setting(
        "session.ttl_ms",
        SessionSettings().ttl_ms,
        "--lease-ttl",
        "MS",
        "how long leases of an agent outlive its last keep-alive; how often one is sent follows from it",
        kind=int,
    )
    yield everyday_setting(
        "membership.shown_ms",
        MembershipSettings().shown_ms,
        "--liveness-ttl",
        "MS",
        "how long an agent is listed after its last heartbeat; how often one is sent follows from it",
        kind=int,
    )
    yield everyday_setting(
        "clickhouse",
        "embedded",
        "--clickhouse",
        "URL",
        "ClickHouse of sinks that name none: embedded (in the data directory, with the worker role), off, or a URL",
        url=True,
    )
    yield from _etcd_settings()
    yield from _worker_settings()
    yield from _security_settings()
    yield from _trace_settings()
    yield everyday_setting(
        "insecure",
        False,
        "--insecure",
        "",
        "allow addresses beyond loopback although they have no authentication",
        kind=bool,
    )
    yield everyday_setting(
        "print_addresses", "", "--print-addresses", "FILE", "write the addresses as JSON once everything listens"
    )
    yield everyday_setting("logging.format", "text", "--log", "FORMAT", "log format", choices=LOG_FORMATS)
    yield everyday_setting("logging.level", "info", "--log-level", "LEVEL", "log level", choices=LOG_LEVELS)
    yield everyday_setting("stop_ms", 45_000, "--stop-ms", "MS", "how long a graceful stop may take", kind=int)
    yield everyday_setting(
        "store_wait_ms", 15_000, "--store-wait-ms", "MS", "how long a start waits for a store that is away", kind=int
    )


def _tuning(taken: set[str]) -> Iterator[Setting]:
    for section, kind in SECTIONS.items():
        kinds = get_type_hints(kind)
        for field in fields(kind):
            name = f"{section}.{field.name}"
            if kinds[field.name] in _SCALARS and field.default is not MISSING and name not in taken | _DERIVED:
                yield Setting(name=name, kind=kinds[field.name], default=field.default)


_DERIVED: Final = {"agent.address", "agent.text_address"}  # from the listen address


def _catalogue() -> dict[str, Setting]:
    listed = list(_everyday())
    listed += _tuning({setting.name for setting in listed})
    return {setting.name: setting for setting in listed}


CATALOGUE: Final[Mapping[str, Setting]] = _catalogue()
