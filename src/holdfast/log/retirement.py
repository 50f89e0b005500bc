"""The end of a session that ends well: everything is published, and every lease released.

The one rule: nobody waits for a neighbour. Partitions are published in groups; a group in which one fails for good goes on one by
one, and what waits for replicas that may never answer is in no group with others.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from holdfast.kernel.lease import Lease, release
from holdfast.log.partition.drain import close_together
from holdfast.log.partition.due_partitions import publication_groups
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.publisher import SegmentPublisher
from holdfast.log.partition.replicated_partition import ReplicatedPartition
from holdfast.log.partition.resources import PartitionResources
from holdfast.log.settings import LeadershipSettings
from holdfast.vocabulary.errors import (
    ClosedError,
    ExpiredError,
    FencedError,
    HoldfastError,
    OutcomeUnknownError,
    UnavailableError,
)
from holdfast.vocabulary.tasks import gather_limited, gather_or_cancel

_log: Final = logging.getLogger(__name__)

_RELEASES_MAX: Final = 256


class Retirement:
    """Publishes partitions of one session and releases their leases."""

    def __init__(
        self, resources: PartitionResources, *, publisher: SegmentPublisher, settings: LeadershipSettings
    ) -> None:
        self._resources, self._publisher, self._settings = resources, publisher, settings

    async def run(self, partitions: Collection[LeadingPartition]) -> None:
        """Publish them and release their leases; as long as it takes, or the session lasts."""
        # Those that need no upload last: they end with the session as well.
        served = sorted(partitions, key=lambda each: each.is_quiescent)
        awaiting = [each for each in served if isinstance(each, ReplicatedPartition) and not each.is_durable]
        groups = list(publication_groups((each for each in served if each not in awaiting), self._settings))
        groups += [[each] for each in awaiting]
        await gather_limited(self._retire, groups, self._settings.publications_max)

    async def release(self, leases: Iterable[Lease]) -> None:
        """Release the leases; those that were lost are not ours to release."""
        store, clock, random = self._resources.store, self._resources.clock, self._resources.random
        await gather_limited(lambda lease: release(store, lease, clock=clock, random=random), leases, _RELEASES_MAX)

    async def _retire(self, partitions: Sequence[LeadingPartition]) -> None:
        logged = False
        while True:
            self._resources.session.check()
            self._resources.session.report_progress()
            try:
                await self._publisher.publish(partitions)  # while they accept appends
                await close_together(partitions, self._publisher)
                await self.release([each.lease for each in partitions])
                return
            except (ExpiredError, ClosedError):
                raise
            except HoldfastError as error:
                if isinstance(error, FencedError) and len(partitions) == 1:
                    return
                if not logged:
                    _log.info("releasing %d partitions failed, retrying: %s", len(partitions), error)
                logged = True
                passing = isinstance(error, (UnavailableError, OutcomeUnknownError))
            if not passing and len(partitions) > 1:  # one of them cannot be published: the others can
                await gather_or_cancel(*(self._retire([each]) for each in partitions))
                return
            await self._resources.clock.sleep_ms(self._resources.settings.publish_retry_ms)
