"""The identity of a range: one value behind its intent, token, fence, provenance, file names and dead letters.

The one rule: what looks for the rows of a range looks for this identity. Two pipelines may read one topic into one table or
folder, with equal generations, partitions and offsets: without the pipeline, one would find the other's rows and believe them its
own. The writer and its epoch are not part of it, so that a zombie and its successor write the same range.
"""

from dataclasses import dataclass


def partition_key(pipeline_id: str, generation: int, topic: str, partition: int) -> str:
    """A partition of a generation: what epochs and ends are compared by. A generation reads one topic, of one id."""
    return f"{pipeline_id}:{generation}:{topic}:{partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeIdentity:
    """Offsets [start, end) of one partition of one topic, as one generation of one pipeline writes them."""

    pipeline_id: str
    generation: int
    topic: str
    topic_id: str = ""
    """Empty if the source has none: a Kafka before 2.8."""
    partition: int
    start: int
    end: int
    legacy: bool = False
    """Begun by a release whose intents named neither pipeline nor topic id: it is finished under the names it had there."""

    @property
    def partition_key(self) -> str:
        """The partition it is of."""
        return partition_key(self.pipeline_id, self.generation, self.topic, self.partition)

    @property
    def token(self) -> str:
        """The deduplication token of its insert."""
        topic = self.topic if self.legacy else self.topic_id or self.topic
        return f"{partition_key(self.pipeline_id, self.generation, topic, self.partition)}:{self.start}-{self.end}"

    @property
    def offsets_name(self) -> str:
        """A file name within the folder of its partition, which it may share with other pipelines; names sort by offset."""
        offsets = f"{self.start:020d}-{self.end:020d}"
        return offsets if self.legacy else "-".join(filter(None, (offsets, self.pipeline_id, self.topic_id)))

    @property
    def full_name(self) -> str:
        """A file name of its own anywhere; names of one partition sort by offset."""
        partition = f"{self.pipeline_id}-{self.generation}-{self.topic}-{self.partition:05d}"
        name = f"{partition}-{self.start:020d}-{self.end:020d}"
        return name if self.legacy or not self.topic_id else f"{name}-{self.topic_id}"
