"""In which shards spines are, for a process that runs none of them.

The number of shards is read once it is needed, and kept: it never changes.
"""

from holdfast.contracts.store import Store
from holdfast.heap.spine.keys import SPINE_SHARD, spine_resource, spine_shard_of
from holdfast.kernel.shard_count import shard_count
from holdfast.log.topics import Topic
from holdfast.vocabulary.errors import UnavailableError


class SpineShards:
    """The shards of spines of a store."""

    def __init__(self, store: Store) -> None:
        self._store, self._shards = store, 0

    async def resource(self, topic: Topic) -> str | None:
        """The lease of the shard in which a heap's spine is; None: that is not known yet."""
        if not self._shards:
            try:
                self._shards = await shard_count(self._store, SPINE_SHARD)
            except UnavailableError:
                return None
        return spine_resource(spine_shard_of(topic.name, self._shards))
