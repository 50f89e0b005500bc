"""Where a generation starts to read a partition that has no checkpoint, decided once.

The one rule: `latest` and a time are resolved by the first owner alone. The offset is stored before the first range is begun, so
that a takeover does not skip records written since.
"""

from holdfast.client.loop_thread import run
from holdfast.contracts.store import Store
from holdfast.pipeline.driver.sources import PipelineSource, TopicBounds
from holdfast.pipeline.model.definition import EARLIEST, LATEST, Generation, KafkaConfig, registry_namespace
from holdfast.pipeline.model.timestamps import parse_iso_ns
from holdfast.registry.queries import fix_start
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random


class StartOffsets:
    """The start offsets of one generation."""

    def __init__(self, store: Store, *, clock: Clock, random: Random, pipeline_id: str, generation: Generation) -> None:
        self._store, self._clock, self._random = store, clock, random
        self._namespace = registry_namespace(pipeline_id, generation.number)
        self._generation = generation

    def of(self, partition: int, config: KafkaConfig, source: PipelineSource, bounds: TopicBounds) -> int:
        """The first offset to read."""
        configured = self._generation.starts.get(str(partition))
        if configured is not None:
            return configured
        added = 0 < self._generation.partitions <= partition  # since the rewind
        if config.start == EARLIEST or added:
            return bounds.starts[partition]
        found = bounds.ends[partition] if config.start == LATEST else _at_time(config.start, partition, source)
        fixed = fix_start(self._store, self._namespace, partition, found, clock=self._clock, random=self._random)
        return run(fixed)


def _at_time(text: str, partition: int, source: PipelineSource) -> int:
    instant_ns = parse_iso_ns(text)
    if instant_ns is None:
        raise InvalidError("start", text, "earliest, latest, or an ISO 8601 time")
    return source.offset_at(partition, instant_ns // 1_000_000)
