"""What a caller of shared cursors has to do something about."""

from holdfast.vocabulary.errors import HoldfastError


class NotCursorOwnerError(HoldfastError):
    """This process does not own the topic's cursor. Ask the holder of the shard's lease, or try again."""

    def __init__(self, topic: str, shard: int) -> None:
        super().__init__(topic, shard)
        self.topic, self.shard = topic, shard

    def __str__(self) -> str:
        return f"the cursor of topic {self.topic} (shard {self.shard}) is not served here"
