"""Every API of the gateway by its key. An API that is not here is not advertised, and a request for it closes the connection."""

from typing import Final

from holdfast.gateways.kafka import (
    acls,
    client_quotas,
    configs,
    consumer_groups,
    elections,
    fetch,
    groups,
    heaps,
    list_offsets,
    log_dirs,
    metadata,
    offsets,
    partitions,
    produce,
    producers,
    reassignments,
    sasl,
    scram_credentials,
    topics,
    transactions,
)
from holdfast.gateways.kafka.api import Api
from holdfast.gateways.kafka.api_versions import api_versions_api

_FAMILIES: Final = (
    acls.APIS,
    client_quotas.APIS,
    configs.APIS,
    consumer_groups.APIS,
    elections.APIS,
    fetch.APIS,
    groups.APIS,
    list_offsets.APIS,
    log_dirs.APIS,
    metadata.APIS,
    offsets.APIS,
    partitions.APIS,
    produce.APIS,
    producers.APIS,
    reassignments.APIS,
    sasl.APIS,
    scram_credentials.APIS,
    topics.APIS,
    transactions.APIS,
)

_ALL: Final = [api for family in _FAMILIES for api in family]

KAFKA_APIS: Final[dict[int, Api]] = {int(api.key): api for api in (*_ALL, api_versions_api(_ALL))}
"""Those that ApiVersions lists."""

APIS: Final[dict[int, Api]] = {**KAFKA_APIS, **{int(api.key): api for api in heaps.APIS}}
