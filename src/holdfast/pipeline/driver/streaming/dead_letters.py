"""Dead letters of a batch: the records that its sources left out, read once more.

The one rule: what the batch has left out is what is kept. Spark counts the bad records of a batch while it computes it; reading
them again must find the same ones. If not (a schema was registered meanwhile, or a lost task was counted twice), the batch is
computed again: nobody has seen a row of it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.client.cluster_address import ClusterAddress
from holdfast.pipeline.driver.streaming.source_view import (
    decoded,
    fingerprint_of,
    metric_name,
    rejected,
)
from holdfast.pipeline.driver.streaming.stream_record import TopicRange, source_ranges
from holdfast.pipeline.model.query import StreamSource
from holdfast.spark.cluster_options import address_options
from holdfast.vocabulary.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Fingerprint = tuple[int, int]
"""Number of bad records, and which they are."""
Observed = Callable[[str], Fingerprint | None]
"""What Spark has counted in the running batch, by the metric's name; None: it cannot be told."""


@dataclass(frozen=True, slots=True)
class BadRecords:
    """The sources of a query that have dead letters."""

    sources: tuple[StreamSource, ...]
    address: ClusterAddress
    starts: Mapping[str, Mapping[str, int]]
    """Where the generation begins, by the source's name and partition."""
    observed: Observed
    reads_all: bool
    """Whether the query reads every record of its batches: not so behind a `LIMIT`."""

    def of_batch(
        self, session: "SparkSession", before: str, offsets: str, stage: Callable[["DataFrame"], None]
    ) -> None:
        """Give the frames of a batch's bad records to `stage`, which runs them. `UnavailableError`: they are not those left out.

        `before`: the offsets of the batch before it. Of a source that the query reads at several places, those of the first are
        kept. Spark tells the count of one of them, which may have read up to another offset.
        """
        for source in self.sources:
            places = source_ranges(before, offsets, source.name, source.topic, self.starts.get(source.name, {}))
            if not places or not places[0]:
                continue
            seen = self.observed(metric_name(source)) if self.reads_all else None
            if seen is None or seen[0] or any(each != places[0] for each in places):
                self._stage(session, source, places, seen, stage)

    def _stage(
        self,
        session: "SparkSession",
        source: StreamSource,
        places: list[list[TopicRange]],
        seen: Fingerprint | None,
        stage: Callable[["DataFrame"], None],
    ) -> None:
        from pyspark.sql import Observation

        frame, observation = decoded(_records(session, source, self.address, places[0]), source), Observation()
        frame = frame.observe(observation, *fingerprint_of(frame))
        stage(rejected(frame, source).coalesce(1).sortWithinPartitions("partition", "offset"))
        found = observation.get
        again = int(found["records"]), int(found["which"] or 0)
        others = (each for each in places[1:] if each != places[0])
        if seen not in (None, again) and all(self._fingerprint(session, source, each) != seen for each in others):
            assert seen is not None
            reason = f"{seen[0]} records of {source.topic} were left out, {again[0]} are found bad: another decision"
            raise UnavailableError("batch", reason)

    def _fingerprint(self, session: "SparkSession", source: StreamSource, ranges: list[TopicRange]) -> Fingerprint:
        if not ranges:
            return 0, 0
        frame = decoded(_records(session, source, self.address, ranges), source)
        records, which = frame.agg(*fingerprint_of(frame)).collect()[0]
        return int(records), int(which or 0)


def _records(
    session: "SparkSession", source: StreamSource, address: ClusterAddress, ranges: list[TopicRange]
) -> "DataFrame":
    """The records of these ranges."""
    reader = session.read.format("holdfast").options(**address_options(address)).option("topics", source.topic)
    numbers = json.dumps({source.topic: [each.partition for each in ranges]})
    starts = json.dumps({source.topic: {str(each.partition): each.start for each in ranges}})
    ends = json.dumps({source.topic: {str(each.partition): each.end for each in ranges}})
    return reader.option("partitions", numbers).option("startingOffsets", starts).option("endingOffsets", ends).load()


def observed_by(session: "SparkSession", query_id: str) -> Observed:
    """What a running query has counted in its batch. Spark has no public way to ask that before the batch ends."""

    def observed(name: str) -> Fingerprint | None:
        query: Any = session._jsparkSession.streams().get(query_id)
        if query is None:
            return None
        found = query.streamingQuery().lastExecution().observedMetrics().get(name)
        if found.isEmpty():
            return None
        row = found.get()
        return int(row.getLong(0)), 0 if row.isNullAt(1) else int(row.getLong(1))

    return observed
