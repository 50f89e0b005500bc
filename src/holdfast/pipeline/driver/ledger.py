"""What a slot reads and writes in the store, from its own thread: the pipeline, its recipes, and its partitions' records.

The one rule: every write carries the epoch of the claim it was made under. A lost compare-and-swap is an answer: the partition is
somebody else's now.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.contracts.store import Store
from holdfast.kernel.registry import PartitionState, RegistrySettings, RegistryStore
from holdfast.kernel.registry.keys import PARTITIONS_MAX
from holdfast.pipeline.catalog import PipelineStore
from holdfast.pipeline.errors import EditConflictError
from holdfast.pipeline.nouns import Intent, Pipeline, Recipe, registry_of
from holdfast.pipeline.sinks.contract import Portion
from holdfast.spark.reading.loop import loop_thread
from holdfast.vocabulary.clock import Chance, Clock
from holdfast.vocabulary.errors import CorruptError, UnavailableError

T = TypeVar("T")


class Ledger:
    """The records of one slot of one generation."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        chance: Chance,
        pipeline_id: str,
        generation: int,
        consumer: str,
        timeout_ms: int,
    ) -> None:
        self._catalog = PipelineStore(store, clock=clock, chance=chance)
        settings = RegistrySettings(namespace=registry_of(pipeline_id, generation), partitions=PARTITIONS_MAX)
        self._registry = RegistryStore(store, clock=clock, chance=chance, settings=settings)
        self._pipeline_id, self._consumer, self._timeout_s = pipeline_id, consumer, timeout_ms / 1_000
        self._recipes: dict[int, Recipe] = {}

    def pipeline(self) -> Pipeline:
        """The pipeline as it is now."""
        return self._wait(self._catalog.get(self._pipeline_id))

    def recipe(self, version: int) -> Recipe:
        """A recipe; it never changes, so it is read once."""
        if version not in self._recipes:
            self._recipes[version] = self._wait(self._catalog.recipe(self._pipeline_id, version))
        return self._recipes[version]

    def save_mapping(self, mapping: Mapping[str, Any]) -> Pipeline:
        """Save the next mapping, as a person would: it makes the next recipe.

        If somebody else (another slot, a person) has saved one meanwhile, theirs stays, and what is still unknown is found again.
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

    def begin(self, portions: Sequence[Portion], recipe: int) -> list[Portion]:
        """Record what is about to be written; those that are still ours."""
        source = self.recipe(recipe).source
        topic = "" if source.brokers else source.topic
        return self._ours(portions, [self._begun(each, recipe, topic) for each in portions])

    def finish(self, portions: Sequence[Portion]) -> list[Portion]:
        """Move checkpoints to the ends of what was written; those that are still ours."""
        return self._ours(portions, [self._finished(each) for each in portions])

    def _ours(self, portions: Sequence[Portion], asked: list[Coroutine[Any, Any, bool]]) -> list[Portion]:
        answers = self._wait(_all(asked))
        return [portion for portion, ours in zip(portions, answers, strict=True) if ours]

    async def _begun(self, portion: Portion, recipe: int, topic: str) -> bool:
        intent = msgspec.json.encode(Intent(start=portion.start, end=portion.end, recipe=recipe, topic=topic)).decode()
        return await self._registry.begin(portion.partition, self._consumer, portion.epoch, intent)

    async def _finished(self, portion: Portion) -> bool:
        return await self._registry.update_checkpoint(portion.partition, self._consumer, portion.end, portion.epoch)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = loop_thread().submit(work)
        try:
            return future.result(self._timeout_s)
        except TimeoutError:
            future.cancel()
            raise UnavailableError("store", f"no answer within {self._timeout_s:.0f} s") from None


async def _all(work: list[Coroutine[Any, Any, bool]]) -> list[bool]:
    return list(await asyncio.gather(*work))


def intent_of(state: PartitionState) -> Intent | None:
    """The range somebody has begun."""
    if state.intent is None:
        return None
    try:
        return msgspec.json.decode(state.intent, type=Intent)
    except msgspec.MsgspecError as error:
        raise CorruptError(f"intent of partition {state.id}", str(error)) from None
