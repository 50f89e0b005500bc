"""The gateways of a node, given what they serve."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from holdfast.agent.administration import ClusterAdministration
from holdfast.agent.client_quotas import ClientQuotas
from holdfast.app.advertised_urls import advertised_url
from holdfast.app.components import Components
from holdfast.app.config import ServeSettings
from holdfast.app.embedded_etcd.place import opened_store_url
from holdfast.app.http_gateway import HttpServices
from holdfast.app.listeners import Listener
from holdfast.app.node import Node
from holdfast.app.node_security import NodeSecurity
from holdfast.app.worker_role import secret_references
from holdfast.contracts.store import Store
from holdfast.gateways.kafka.backend import Broker, KafkaBackend
from holdfast.gateways.kafka.login import ListenerSecurity
from holdfast.gateways.kafka.server import KafkaServer, serving_kafka
from holdfast.gateways.text.backend import TextBackend
from holdfast.gateways.text.server import TextServer, serving_text
from holdfast.log.producer_ids import ProducerIds
from holdfast.security.confirmations import Confirmations


@asynccontextmanager
async def kafka_gateway(
    parts: Components, node: Node, security: ListenerSecurity | None, quotas: ClientQuotas
) -> AsyncIterator[KafkaServer]:
    """The Kafka port."""
    settings, clock, random, advertised = parts.settings, parts.clock, parts.random, parts.advertised
    broker = Broker(node=node.number, host=advertised.host, port=advertised.port, rack=settings.zone or None)
    backend = KafkaBackend(
        cluster_id=node.cluster_id,
        cluster=node.services.cluster,
        log=node.services.service,
        groups=node.services.groups,
        producer_ids=ProducerIds(parts.client_store, clock=clock, random=random),
        administration=ClusterAdministration(parts.client_store, clock=clock, random=random),
        me=lambda: broker,
        clock=clock,
        random=random,
        settings=replace(settings.kafka, replication_factor=_replication_factor(settings)),
        topic_settings=settings.topics,
        store_url=advertised_url(opened_store_url(settings)),
        objects_url=advertised_url(settings.objects),
        security=security,
        quotas=quotas,
        tracer=parts.tracer,
        heaps=node.heaps,
        confirmations=_confirmations(parts),
    )
    async with serving_kafka(backend, list(parts.kafka.sockets)) as kafka:
        yield kafka


@asynccontextmanager
async def text_gateway(
    parts: Components, listener: Listener, node: Node, security: NodeSecurity | None
) -> AsyncIterator[TextServer]:
    """The port of the text protocol."""
    backend = TextBackend(
        cluster_id=node.cluster_id,
        agent=node.name,
        node=node.number,
        cluster=node.services.cluster,
        log=node.services.service,
        cursors=node.services.cursors,
        store=parts.client_store,
        clock=parts.clock,
        random=parts.random,
        security=security.text if security is not None else None,
        tracer=parts.tracer,
        settings=parts.settings.text,
    )
    async with serving_text(backend, list(listener.sockets)) as text:
        yield text


def http_services(
    parts: Components,
    node: Node,
    kafka: KafkaServer,
    text: TextServer | None,
    pipelines: Store,
) -> HttpServices:
    """What HTTP and gRPC serve."""
    security = node.security
    return HttpServices(
        store=parts.client_store,
        pipelines=pipelines,
        objects=parts.objects,
        requests=parts.requests,
        store_calls=parts.store_calls,
        metrics_settings=parts.settings.metrics,
        cluster=node.services.cluster,
        log=node.services.service,
        administration=ClusterAdministration(parts.client_store, clock=parts.clock, random=parts.random),
        groups=node.services.groups,
        heaps=node.heaps,
        agent=node.agent,
        kafka=kafka,
        cursors=node.services.cursors,
        text=text,
        grpc=parts.grpc.counters if parts.grpc.address is not None else None,
        bootstrap=str(parts.advertised),
        security=security.http if security is not None else None,
        login=node.login,
        confirmations=_confirmations(parts),
        secrets=secret_references(parts.settings),
        clickhouse=parts.clickhouse.url,
        etcd=parts.etcd.figures if parts.etcd is not None else None,
        tracer=parts.tracer,
        spans=parts.traces.queue if parts.traces is not None else None,
        clock=parts.clock,
        random=parts.random,
    )


def _replication_factor(settings: ServeSettings) -> str:
    if settings.kafka.replication_factor != "auto":
        return settings.kafka.replication_factor
    alone = settings.leads and settings.agents == 1 and settings.store.startswith(("sqlite:", "memory:"))
    return "cap" if alone else "refuse"


def _confirmations(parts: Components) -> Confirmations:
    return Confirmations(
        parts.client_store, clock=parts.clock, random=parts.random, settings=parts.settings.confirmations
    )
