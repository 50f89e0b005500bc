"""What a slot reads and writes in the store, from its own thread: the pipeline, its revisions, and its partitions' records.

The one rule: every write carries the epoch of the claim it was made under. A lost compare-and-swap is an answer: the partition has
another owner now.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.client.loop_thread import loop_thread
from holdfast.contracts.store import Store
from holdfast.pipeline.catalog.secret_references import resolved
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.model.definition import Pipeline, RangeIntent, Revision, registry_namespace
from holdfast.pipeline.model.errors import EditConflictError, UnknownPipelineError
from holdfast.pipeline.model.secret_references import SecretReferences
from holdfast.pipeline.sinks.contract import FencedRange
from holdfast.registry import PARTITIONS_MAX, PartitionState, RegistrySettings, RegistryStore
from holdfast.registry.model import SourceTopic
from holdfast.registry.queries import fix_source
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.types import OffsetRange

T = TypeVar("T")


class SlotStore:
    """The records of one slot of one generation."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        random: Random,
        pipeline_id: str,
        generation: int,
        consumer: str,
        timeout_ms: int,
        secrets: SecretReferences | None = None,
    ) -> None:
        """`secrets`: how references of revisions are resolved."""
        self._catalog = PipelineStore(store, clock=clock, random=random)
        self._store, self._clock, self._random = store, clock, random
        self._namespace = registry_namespace(pipeline_id, generation)
        settings = RegistrySettings(namespace=self._namespace, partitions=PARTITIONS_MAX)
        self._registry = RegistryStore(store, clock=clock, random=random, settings=settings)
        self._pipeline_id, self._generation, self._consumer = pipeline_id, generation, consumer
        self._timeout_s = timeout_ms / 1_000
        self._secrets = secrets or SecretReferences()
        self._revisions: dict[int, Revision] = {}

    def pipeline(self) -> Pipeline:
        """The pipeline as it is now."""
        return self._wait(self._catalog.get(self._pipeline_id))

    def exists(self, pipeline_id: str) -> bool:
        """Whether there is another pipeline."""
        try:
            self._wait(self._catalog.get(pipeline_id))
        except UnknownPipelineError:
            return False
        return True

    def revision(self, version: int) -> Revision:
        """A revision with the secrets it refers to; it never changes, so it is read once."""
        if version not in self._revisions:
            stored = self._wait(self._catalog.revision(self._pipeline_id, version))
            self._revisions[version] = resolved("revision", stored, self._secrets)
        return self._revisions[version]

    def save_mapping(self, mapping: Mapping[str, Any]) -> Pipeline:
        """Save the next mapping, as an edit would: it makes the next revision.

        If another slot or an edit has saved one meanwhile, that one stays; fields still unknown are found by the next survey.
        """
        seen = int(mapping["version"]) - 1
        try:
            saving = self._catalog.put_part(self._pipeline_id, "mapping", dict(mapping), expected=seen)
            pipeline, _ = self._wait(saving)
        except EditConflictError:
            return self.pipeline()
        return pipeline

    def partition(self, number: int) -> PartitionState | None:
        """A partition's record, if there is one."""
        return self._wait(self._registry.partition(number))

    def fix_source(self, source: SourceTopic) -> SourceTopic:
        """The topic that the generation's checkpoints are offsets of: this one, unless it was decided before."""
        store, namespace = self._store, self._namespace
        return self._wait(fix_source(store, namespace, source, clock=self._clock, random=self._random))

    def begin(self, fenced_ranges: Sequence[FencedRange], version: int) -> list[FencedRange]:
        """Record ranges as begun; those whose partition is still ours."""
        source = self.revision(version).source
        topic = "" if source.brokers else source.topic
        return self._ours(fenced_ranges, [self._begun(each, version, topic) for each in fenced_ranges])

    def record_digests(self, fenced_ranges: Sequence[FencedRange]) -> list[FencedRange]:
        """Record what begun ranges are to be written as; those whose partition is still ours."""
        return self._ours(fenced_ranges, [self._digest_recorded(each) for each in fenced_ranges])

    def finish(self, fenced_ranges: Sequence[FencedRange]) -> list[FencedRange]:
        """Move checkpoints to the ends of written ranges; those whose partition is still ours."""
        return self._ours(fenced_ranges, [self._finished(each) for each in fenced_ranges])

    def _ours(
        self, fenced_ranges: Sequence[FencedRange], commits: list[Coroutine[Any, Any, bool]]
    ) -> list[FencedRange]:
        answers = self._wait(_all(commits))
        return [fenced_range for fenced_range, ours in zip(fenced_ranges, answers, strict=True) if ours]

    async def _begun(self, fenced_range: FencedRange, version: int, topic: str) -> bool:
        intent = RangeIntent(
            start=fenced_range.start,
            end=fenced_range.end,
            revision=version,
            topic=topic,
            pipeline=self._pipeline_id,
            generation=self._generation,
            topic_id=fenced_range.topic_id,
        )
        text = msgspec.json.encode(intent).decode()
        return await self._registry.begin_range(fenced_range.partition, self._consumer, fenced_range.epoch, text)

    async def _digest_recorded(self, fenced_range: FencedRange) -> bool:
        offsets = OffsetRange(fenced_range.start, fenced_range.end)
        fields = {"digest": fenced_range.digest}
        return await self._registry.amend_range(
            fenced_range.partition, self._consumer, fenced_range.epoch, offsets, fields
        )

    async def _finished(self, fenced_range: FencedRange) -> bool:
        return await self._registry.update_checkpoint(
            fenced_range.partition, self._consumer, fenced_range.end, fenced_range.epoch
        )

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = loop_thread().submit(work)
        try:
            return future.result(self._timeout_s)
        except TimeoutError:
            future.cancel()
            raise UnavailableError("store", f"no response within {self._timeout_s:.0f} s") from None


async def _all(work: list[Coroutine[Any, Any, bool]]) -> list[bool]:
    return list(await asyncio.gather(*work))


def intent_of(state: PartitionState, *, pipeline_id: str, generation: int) -> RangeIntent | None:
    """The open range of a partition of a generation."""
    if state.intent is None:
        return None
    place = f"intent of partition {state.id}"
    try:
        intent = msgspec.json.decode(state.intent, type=RangeIntent)
    except msgspec.MsgspecError as error:
        raise CorruptError(place, str(error)) from None
    if intent.pipeline and (intent.pipeline, intent.generation) != (pipeline_id, generation):
        raise CorruptError(place, f"it is of generation {intent.generation} of pipeline {intent.pipeline}")
    return intent
