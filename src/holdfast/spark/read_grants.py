"""Grants of reads: made by a driver that has the cluster's URLs, used by executors that have only the address of its brokers.

The one rule: where reads can be signed, executors get neither the store's URL nor credentials of object storage. A grant names the
segments of a range, with a URL for each that is valid for `LIFETIME_S`; a task that runs later reads through the brokers.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.loop_thread import run
from holdfast.client.read_grants import GrantedCluster, ReadGrant
from holdfast.client.splits import find_segments
from holdfast.client.types import PartitionRange
from holdfast.log.published_log import PublishedLog
from holdfast.objects.retry import RetryingObjects, RetrySettings
from holdfast.objects.signed import SignedObjects, can_sign, sign_reads
from holdfast.objects.urls import parse_objects_url
from holdfast.spark.clusters import open_cluster
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

LIFETIME_S: Final = 12 * 3_600


def executor_address(cluster_address: ClusterAddress) -> ClusterAddress | None:
    """The address that executors get with grants; None: grants cannot be used, and they get the whole address."""
    if not cluster_address.bootstrap or not cluster_address.store or not can_sign(cluster_address.objects):
        return None
    return ClusterAddress(bootstrap=cluster_address.bootstrap, login=cluster_address.login)


def grant_reads(cluster_address: ClusterAddress, ranges: Sequence[PartitionRange]) -> list[ReadGrant]:
    """A grant for each range."""
    return run(_grant_reads(cluster_address, ranges))


async def _grant_reads(cluster_address: ClusterAddress, ranges: Sequence[PartitionRange]) -> list[ReadGrant]:
    access = await open_cluster(cluster_address)
    listed: dict[tuple[str, int], PublishedLog | None] = {}
    found: list[ReadGrant] = []
    for each in ranges:
        where = each.topic, each.partition
        if where not in listed:
            listed[where] = await access.published(await access.topic(each.topic), each.partition)
        log = listed[where]
        assert log is not None
        segments = await find_segments(log, access.objects, each.start, min(each.end, log.high_watermark))
        found.append(
            ReadGrant(
                topic_id=log.partition_id.topic_id,
                start_offset=log.start_offset,
                published=log.high_watermark,
                segments=tuple(segments),
            )
        )
    return await asyncio.to_thread(_signed, cluster_address.objects, found)


def _signed(objects: str, grants: Sequence[ReadGrant]) -> list[ReadGrant]:
    keys = sorted({segment.object for grant in grants for segment in grant.segments})
    urls = sign_reads(objects, keys, lifetime_s=LIFETIME_S)
    ca_file = parse_objects_url(objects).options.get("ca_file", "")
    return [
        ReadGrant(
            topic_id=each.topic_id,
            start_offset=each.start_offset,
            published=each.published,
            segments=each.segments,
            urls={segment.object: urls[segment.object] for segment in each.segments},
            ca_file=ca_file,
        )
        for each in grants
    ]


async def open_granted(cluster_address: ClusterAddress, grant: ReadGrant) -> GrantedCluster:
    """The cluster as an executor has it. On the loop's thread."""
    access = await open_cluster(cluster_address)
    assert access.brokers is not None
    signed = SignedObjects(grant.urls, ca_file=grant.ca_file)
    objects = RetryingObjects(signed, clock=RealClock(), random=SystemRandom(), settings=RetrySettings())
    return GrantedCluster(grant, objects, access.brokers)
