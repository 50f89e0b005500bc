"""Where a partition without a checkpoint begins: as its generation says, as the source is configured, or at its beginning."""

import pytest

from holdfast.client.loop_thread import run
from holdfast.contracts.validation import StoreLimits
from holdfast.pipeline.driver.range_plan import PlannedRange
from holdfast.pipeline.driver.sources import TopicBounds
from holdfast.pipeline.driver.start_offsets import StartOffsets
from holdfast.pipeline.model.definition import Generation, KafkaConfig, registry_namespace
from holdfast.registry.growth import ensure_partitions
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

CLOCK, CHANCE = RealClock(), SystemRandom()
BOUNDS = TopicBounds((0, 0, 3), (10, 20, 30))


class TimedSource:
    """Every record of it is as old as its offset says."""

    def bounds(self) -> TopicBounds:
        return BOUNDS

    def offset_at(self, partition: int, timestamp_ms: int) -> int:
        return timestamp_ms

    def narrowed(self, planned: PlannedRange, bytes_max: int) -> PlannedRange:
        return planned

    def close(self) -> None:
        pass


def started(generation: Generation, start: str, *, grown_from: int = 0) -> list[int]:
    """The starts of three partitions, in a registry that had `grown_from` at first."""
    store = MemoryStore(clock=CLOCK, random=CHANCE, limits=StoreLimits())
    for count in (grown_from or 3, 3):
        namespace = registry_namespace("p", generation.number)
        run(ensure_partitions(store, namespace, count, clock=CLOCK, random=CHANCE))
    starts = StartOffsets(store, clock=CLOCK, random=CHANCE, pipeline_id="p", generation=generation)
    config = KafkaConfig(topic="orders", start=start)
    return [starts.of(number, config, TimedSource(), BOUNDS) for number in range(3)]


@pytest.mark.parametrize(
    ("start", "found"),
    [("earliest", [0, 0, 3]), ("latest", [10, 20, 30]), ("1970-01-01T00:00:00.007Z", [7, 7, 7])],
)
def test_partitions_begin_as_the_source_is_configured(start: str, found: list[int]) -> None:
    assert started(Generation(number=1), start) == found


def test_a_rewind_decides_for_the_partitions_it_names() -> None:
    assert started(Generation(number=2, starts={"0": 4}, partitions=3), "latest") == [4, 20, 30]


@pytest.mark.parametrize("start", ["latest", "1970-01-01T00:00:00.007Z"])
def test_what_was_added_after_the_first_start_begins_at_offset_0(start: str) -> None:
    assert started(Generation(number=1), start, grown_from=2)[2] == 0


def test_what_was_added_after_a_rewind_and_before_its_first_start_begins_at_its_beginning() -> None:
    rewound = Generation(number=2, starts={"0": 4, "1": 0}, partitions=2)
    assert started(rewound, "latest") == [4, 0, 3]
