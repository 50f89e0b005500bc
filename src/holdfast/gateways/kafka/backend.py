"""The services behind the Kafka gateway, passed by the composition root. An API-only node has the same and leads nothing."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.agent.administration import ClusterAdministration
from holdfast.agent.client_quotas import ClientQuotas
from holdfast.agent.cluster import Cluster
from holdfast.gateways.heap.calls import HeapCalls
from holdfast.gateways.kafka.fetch_room import FetchRoom
from holdfast.gateways.kafka.fetch_sessions import FetchSessions
from holdfast.gateways.kafka.large_requests import LargeRequests
from holdfast.gateways.kafka.login import ListenerSecurity
from holdfast.gateways.kafka.quota_meters import QuotaMeters
from holdfast.gateways.kafka.remote_reads import RemoteReads
from holdfast.gateways.kafka.response_budget import ResponseBudget
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.groups.service import GroupService
from holdfast.log.producer_ids import ProducerIds
from holdfast.log.service import LogService
from holdfast.log.settings import TopicSettings
from holdfast.security.confirmations import Confirmations
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tracing import Tracer

if TYPE_CHECKING:
    from holdfast.gateways.kafka.fetch_reader import PartitionFetch


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A node as Kafka's metadata names it."""

    node: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaBackend:
    """The services behind the gateway, and this node. `me` returns None until the node has its id.

    `store_url` and `objects_url` are for readers that bypass the brokers; None: the URL contains a secret.
    `heaps`: None: heap operations are not served at this port.
    `security`: how clients log in; None: there is no authentication, and everybody may do everything.
    `confirmations`: tokens for what destroys messages of heaps.
    `quotas`: what clients may take.
    `tracer`: None if traces are off.
    """

    cluster_id: str
    cluster: Cluster
    log: LogService
    groups: GroupService
    producer_ids: ProducerIds
    administration: ClusterAdministration
    quotas: ClientQuotas
    me: Callable[[], Broker | None]
    clock: Clock
    random: Random
    settings: KafkaSettings = field(default_factory=KafkaSettings)
    topic_settings: TopicSettings = field(default_factory=TopicSettings)
    store_url: str | None = None
    objects_url: str | None = None
    security: ListenerSecurity | None = None
    meters: QuotaMeters = field(init=False)
    tracer: Tracer | None = None
    heaps: HeapCalls | None = None
    confirmations: Confirmations
    fetch_sessions: FetchSessions = field(init=False)
    responses: ResponseBudget = field(init=False)
    remote_reads: "RemoteReads[PartitionFetch]" = field(init=False)
    large_requests: LargeRequests = field(init=False)
    fetch_room: FetchRoom = field(init=False)
    session_room: FetchRoom = field(init=False)

    def __post_init__(self) -> None:
        sessions = FetchSessions(
            lambda: int(self.random.token()[:7], 16),
            count_max=self.settings.fetch_sessions_max,
            idle_ms=self.settings.fetch_session_idle_ms,
            partitions_max=self.settings.fetch_session_partitions_max,
        )
        object.__setattr__(self, "fetch_sessions", sessions)
        object.__setattr__(self, "meters", QuotaMeters(self.quotas, self.clock))
        responses = ResponseBudget(bytes_max=self.settings.responses_bytes_max, unread_ms=self.settings.unread_ms)
        object.__setattr__(self, "responses", responses)
        reads: RemoteReads[PartitionFetch] = RemoteReads(
            count_max=self.settings.fetch_reads_max, kept_ms=self.settings.fetch_read_kept_ms, budget=responses
        )
        object.__setattr__(self, "remote_reads", reads)
        large = LargeRequests(
            entries_max=self.settings.request_entries_max, concurrency_max=self.settings.large_requests_max
        )
        object.__setattr__(self, "large_requests", large)
        object.__setattr__(self, "fetch_room", FetchRoom(self.settings.fetch_partitions_max))
        # All sessions have room at a time, each for one fetch; clients send no two.
        object.__setattr__(self, "session_room", FetchRoom(self.settings.fetch_session_partitions_max))
