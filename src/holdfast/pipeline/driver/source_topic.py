"""The topic a generation reads: decided by its first owner, compared by every owner in every turn.

The one rule: a checkpoint is an offset of one topic id. A topic that was deleted and recreated has the same name and offsets that
mean other records, so its id is recorded beside the checkpoints before the first range is begun, and nothing is begun or written
again under another.
"""

from holdfast.pipeline.driver.slot_store import SlotStore
from holdfast.pipeline.driver.sources import TopicBounds
from holdfast.pipeline.model.definition import Generation
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.registry.model import SourceTopic


class GenerationTopic:
    """The topic of one slot's generation. `id` is known once `check` has returned."""

    def __init__(self, store: SlotStore) -> None:
        self._store = store
        self._fixed: SourceTopic | None = None

    @property
    def id(self) -> str:
        """The topic's id; empty: the source has none."""
        return "" if self._fixed is None else self._fixed.topic_id

    def check(self, generation: Generation, topic: str, bounds: TopicBounds) -> None:
        """`BlockedError`: the topic is another one now."""
        if self._fixed is None:
            self._fixed = self._store.fix_source(SourceTopic(topic, generation.topic_id or bounds.topic_id))
        if wrong := recreated(self._fixed, bounds.topic_id):
            raise BlockedError(wrong)
        if self._fixed.topic_id and not bounds.topic_id:
            raise BlockedError(
                f"topic {topic!r} has no id any more (it was {self._fixed.topic_id}): its brokers may be of another Kafka; "
                "rewind the pipeline, with an offset for every partition"
            )


def recreated(fixed: SourceTopic, topic_id: str) -> str:
    """Why checkpoints of one topic do not apply to another; empty: it is the same, or one of them has no id."""
    if not fixed.topic_id or not topic_id or fixed.topic_id == topic_id:
        return ""
    return (
        f"topic {fixed.topic!r} was deleted and recreated (id {fixed.topic_id}, now {topic_id}): checkpoints and open ranges are "
        "offsets of the old one; rewind the pipeline, with an offset for every partition, to read the new one"
    )
