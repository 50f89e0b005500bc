"""Where a generation begins to read a partition nobody has read yet, decided once.

The one rule: `latest` and a time mean what they meant when the first owner looked. The answer is kept beside the registry's
record before the first range is begun, so that a takeover does not skip what came in between.
"""

import msgspec

from holdfast.contracts.store import Absent, Committed, Put, Store
from holdfast.contracts.surely import commit_surely
from holdfast.kernel.registry import keys
from holdfast.pipeline.driver.sources import Ends, Source
from holdfast.pipeline.instants import iso_ns
from holdfast.pipeline.nouns import EARLIEST, LATEST, Generation, KafkaConfig, registry_of
from holdfast.spark.reading.loop import run
from holdfast.vocabulary.clock import Chance, Clock
from holdfast.vocabulary.errors import InvalidError


class _Start(msgspec.Struct, frozen=True):
    offset: int


class Starts:
    """The beginnings of one generation."""

    def __init__(self, store: Store, *, clock: Clock, chance: Chance, pipeline_id: str, generation: Generation) -> None:
        self._store, self._clock, self._chance = store, clock, chance
        self._root = keys.root(registry_of(pipeline_id, generation.number))
        self._generation = generation

    def of(self, partition: int, config: KafkaConfig, source: Source, ends: Ends) -> int:
        """The first offset to read."""
        stated = self._generation.starts.get(str(partition))
        if stated is not None:
            return stated
        if config.start == EARLIEST:
            return ends.starts[partition]
        found = ends.ends[partition] if config.start == LATEST else _at_time(config.start, partition, source)
        return run(self._pinned(partition, found))

    async def _pinned(self, partition: int, found: int) -> int:
        key = f"{self._root}starts/{partition:05d}"
        outcome = await commit_surely(
            self._store,
            clock=self._clock,
            chance=self._chance,
            require=[Absent(key)],
            apply=[Put(key, msgspec.json.encode(_Start(found)))],
        )
        if isinstance(outcome, Committed):
            return found
        entry = outcome.found[key]
        return found if entry is None else msgspec.json.decode(entry.value, type=_Start).offset


def _at_time(text: str, partition: int, source: Source) -> int:
    instant_ns = iso_ns(text)
    if instant_ns is None:
        raise InvalidError("start", text, "earliest, latest, or an ISO 8601 time")
    return source.offset_at(partition, instant_ns // 1_000_000)
