"""The options `bootstrap`, `store` and `objects`, which source and sink share."""

from collections.abc import Mapping
from typing import Final

from holdfast.client.cluster_address import ClusterAddress
from holdfast.objects.urls import parse_objects_url
from holdfast.stores.urls import parse_store_url

ADDRESS_OPTIONS: Final = ("bootstrap", "store", "objects")


def parse_cluster_address(options: Mapping[str, str]) -> ClusterAddress:
    """The address that options by lower-case name give. `InvalidError` also for a URL scheme without an engine."""
    address = ClusterAddress(**{name: options[name] for name in ADDRESS_OPTIONS if options.get(name)})
    if address.store:
        parse_store_url(address.store)
        parse_objects_url(address.objects)
    return address
