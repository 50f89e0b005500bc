"""What the parts of a slot's processor share: components, the partitions it owns, retries and counters.

The one rule: a partition that something went wrong with is dropped here, so that it is taken over again before anything is planned.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.client.cluster_address import ClusterAddress
from holdfast.contracts.store import Store
from holdfast.pipeline.driver.owned_partitions import SlotCounters, TakenPartition
from holdfast.pipeline.driver.retry_state import RetryState
from holdfast.pipeline.driver.settings import DriverSettings
from holdfast.pipeline.driver.slot_revisions import SlotRevisions
from holdfast.pipeline.driver.slot_store import SlotStore
from holdfast.pipeline.driver.source_topic import GenerationTopic
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.model.driver_protocol import RunSlot, slot_title
from holdfast.pipeline.model.secret_references import SecretReferences
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverResources:
    """What all slots of a driver share."""

    jobs: SparkJobs
    store: Store
    cluster_address: ClusterAddress
    embedded: str
    """The URL of the embedded ClickHouse."""
    settings: DriverSettings
    clock: Clock
    random: Random
    sink_roots: tuple[str, ...] = ()
    """Below which sinks may write files; none: anywhere."""
    checkpoints: str = ""
    """Below which streaming queries keep checkpoints and state; empty: where the cluster's objects are."""
    python_queries: bool = False
    """Whether a query may be a Python file, whose code runs in the driver."""
    secrets: SecretReferences = field(default_factory=SecretReferences)
    """What pipelines may refer to, as this process has it."""


class SlotContext:
    """One slot of one generation. For the slot's thread alone."""

    def __init__(self, run: RunSlot, resources: DriverResources, may_write: Callable[[], bool]) -> None:
        settings = resources.settings
        self.run, self.resources, self.may_write = run, resources, may_write
        self.title = slot_title(run)
        self.store = SlotStore(
            resources.store,
            clock=resources.clock,
            random=resources.random,
            pipeline_id=run.pipeline_id,
            generation=run.generation,
            consumer=run.slot,
            timeout_ms=settings.store_timeout_ms,
            secrets=resources.secrets,
        )
        self.revisions = SlotRevisions(
            run,
            self.store,
            jobs=resources.jobs,
            cluster_address=resources.cluster_address,
            embedded=resources.embedded,
            sink_roots=resources.sink_roots,
            settings=settings,
        )
        self.topic = GenerationTopic(self.store)
        self.retries = RetryState(settings, clock=resources.clock, random=resources.random)
        self.owned: dict[int, TakenPartition] = {}
        self.counters = SlotCounters()

    def retry_later(self, numbers: Sequence[int], reason: str) -> None:
        """Drop these partitions; they are taken over again after a pause."""
        for number in numbers:
            self.owned.pop(number, None)
        self.retries.retry_later(numbers, reason)

    def fenced_out(self, number: int, epoch: int, reason: str) -> None:
        """A newer epoch owns the partition: nothing more is done under this one."""
        _log.info("%s lost partition %d: %s", self.title, number, reason)
        self.owned.pop(number, None)
        self.retries.fenced(number, epoch)
