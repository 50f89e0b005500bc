"""What everything of a server is built on: addresses, data directory, store and objects, opened in the order of their dependencies.

Addresses are bound first, so that one in use leaves nothing behind.
"""

import asyncio
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.agent.peers.peers import PeerEndpoint
from holdfast.app.addresses import Address
from holdfast.app.config import ServeSettings
from holdfast.app.data_directory import DataDirectory, locked_data_directory, require_unlocked
from holdfast.app.embedded_clickhouse import ClickHouseEndpoint, clickhouse_endpoint
from holdfast.app.embedded_etcd.place import member_place, opened_store_url
from holdfast.app.grpc_gateway import GrpcGateway, bound_grpc
from holdfast.app.http_gateway import HttpGateway
from holdfast.app.listeners import Listener, bound_listener
from holdfast.app.starting_store import StartingStore
from holdfast.app.store_wait import waited_for_store
from holdfast.app.tracing.lifecycle import running_traces
from holdfast.contracts.measured_store import MeasuredStore, StoreCounters
from holdfast.contracts.store import Store
from holdfast.kernel.unmoved_store import UnmovedStore
from holdfast.objects.cache import CachingObjects, cached
from holdfast.objects.counters import ObjectCounters
from holdfast.objects.urls import counters_for, open_objects
from holdfast.security.tls import CurrentContext, TlsFiles
from holdfast.stores.urls import is_embedded_etcd
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.installation import NotInstalledError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.redaction import redacted
from holdfast.vocabulary.tasks import background_tasks
from holdfast.vocabulary.tracing import Tracer

if TYPE_CHECKING:
    from holdfast.app.embedded_etcd.member import EtcdMember
    from holdfast.app.tracing.otel import Exporting


_KAFKA_REMEDY: Final = (
    "Let clients log in (--sasl SCRAM-SHA-512, or --kafka-client-ca for certificates), listen on 127.0.0.1"
)
_PLAIN_REMEDY: Final = (
    "With --sasl PLAIN or OAUTHBEARER, tokens and passwords need TLS: "
    "give --kafka-tls-cert and --kafka-tls-key, listen on 127.0.0.1"
)
_LOGIN_REMEDY: Final = (
    "Let clients log in (--sasl SCRAM-SHA-512) and give it TLS (--{0}-tls-cert, --{0}-tls-key, or --tls-cert and "
    "--tls-key for every port), listen on 127.0.0.1"
)
_PEER_REMEDY: Final = (
    "This is the port for other agents: give them certificates (--peer-tls-cert, --peer-tls-key, --peer-tls-ca), or, "
    "if there are none on other machines, pass --peer 127.0.0.1:0"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """What everything of a server is built on."""

    settings: ServeSettings
    directory: DataDirectory
    store: StartingStore
    client_store: Store  # for what clients ask to be written
    objects: CachingObjects
    requests: ObjectCounters
    store_calls: StoreCounters
    kafka: Listener
    advertised: Address
    peers: PeerEndpoint | None
    http: HttpGateway | None
    grpc: GrpcGateway
    text: Listener | None
    advertised_text: str
    clickhouse: ClickHouseEndpoint
    etcd: "EtcdMember | None"
    traces: "Exporting | None"
    clock: Clock
    random: Random

    @property
    def tracer(self) -> Tracer | None:
        """None: traces are off."""
        return self.traces.tracer if self.traces is not None else None


async def open_components(
    stack: AsyncExitStack, settings: ServeSettings, *, clock: Clock, random: Random
) -> Components:
    """Open all of it; `stack` closes it in reverse."""
    # Before the addresses: a second server on the same directory is to hear about the directory, not about a port.
    await asyncio.to_thread(require_unlocked, settings.data)
    kafka = await stack.enter_async_context(
        bound_listener(
            "--kafka",
            settings.listen,
            insecure=settings.insecure,
            authenticates=settings.kafka.authenticates
            and not settings.kafka.sends_passwords
            and not settings.oauth.unsecured,
            remedy=_KAFKA_REMEDY if not settings.kafka.sends_passwords else _PLAIN_REMEDY,
        )
    )
    peers = await _peer_endpoint(stack, settings) if settings.leads else None
    http: HttpGateway | None = None
    if settings.http_listen is not None:
        listener = bound_listener(
            "--http",
            settings.http_listen,
            insecure=settings.insecure,
            # Keys and passwords beyond this machine need TLS, also on the text port.
            authenticates=settings.kafka.authenticates and settings.http.tls is not None,
            remedy=_LOGIN_REMEDY.format("http"),
        )
        own_names = (socket.gethostname(), settings.advertise.host)
        http = HttpGateway(settings.http, await stack.enter_async_context(listener), own_names)
    grpc = await stack.enter_async_context(bound_grpc(settings))
    await stack.enter_async_context(background_tasks(grpc.load()))
    text: Listener | None = None
    if settings.text_listen is not None:
        bound = bound_listener(
            "--text",
            settings.text_listen,
            insecure=settings.insecure,
            authenticates=settings.kafka.authenticates and settings.text.tls is not None,
            remedy=_LOGIN_REMEDY.format("text"),
        )
        text = await stack.enter_async_context(bound)
    directory = stack.enter_context(locked_data_directory(settings.data))
    clickhouse = await stack.enter_async_context(clickhouse_endpoint(settings, clock=clock, random=random))
    requests = counters_for(settings.objects)
    etcd = await _etcd_member(stack, settings, directory, clock=clock, random=random)
    store_calls = StoreCounters()
    opening = waited_for_store(opened_store_url(settings), clock=clock, random=random, wait_ms=settings.store_wait_ms)
    engine = await stack.enter_async_context(opening)
    measured = MeasuredStore(engine, store_calls)
    store = StartingStore(measured, clock=clock, random=random, wait_ms=settings.store_wait_ms)
    opened = await stack.enter_async_context(
        open_objects(settings.objects, clock=clock, random=random, counters=requests)
    )
    return Components(
        settings=settings,
        directory=directory,
        store=store,
        client_store=UnmovedStore(store),
        objects=await stack.enter_async_context(cached(opened, settings=settings.cache)),
        requests=requests,
        store_calls=store_calls,
        kafka=kafka,
        advertised=settings.advertise.resolve(kafka.address, host_name=socket.gethostname()),
        peers=peers,
        http=http,
        grpc=grpc,
        text=text,
        advertised_text=(
            "" if text is None else str(settings.advertised_text(text.address, host_name=socket.gethostname()))
        ),
        clickhouse=clickhouse,
        etcd=etcd,
        traces=await stack.enter_async_context(
            running_traces(settings.traces, instance=settings.agent_id or str(kafka.address))
        ),
        clock=clock,
        random=random,
    )


async def _etcd_member(
    stack: AsyncExitStack, settings: ServeSettings, directory: DataDirectory, *, clock: Clock, random: Random
) -> "EtcdMember | None":
    """The member beside this server, if the store is `etcd:embedded`. It outlives everything that uses the store."""
    if not is_embedded_etcd(settings.store):
        return None
    try:
        from holdfast.app.embedded_etcd.member import running_member
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("holdfast"):
            raise
        raise NotInstalledError(f"store {redacted(settings.store)}", missing.name or "grpc", "etcd") from None
    name = settings.agent_id or await asyncio.to_thread(directory.agent_id, random)
    return await stack.enter_async_context(running_member(member_place(settings, name), clock=clock, random=random))


async def _peer_endpoint(stack: AsyncExitStack, settings: ServeSettings) -> PeerEndpoint:
    tls = settings.agent.peers.tls
    listener = await stack.enter_async_context(
        bound_listener(
            "--peer",
            settings.peer_address,
            insecure=settings.insecure,
            authenticates=tls is not None,
            remedy=_PEER_REMEDY,
        )
    )
    return PeerEndpoint(
        sockets=listener.sockets,
        address=str(settings.advertised_peer(listener.address, host_name=socket.gethostname())),
        client_tls=None if tls is None else await asyncio.to_thread(CurrentContext, tls, TlsFiles.client_context),
        server_tls=None if tls is None else await asyncio.to_thread(CurrentContext, tls),
    )
