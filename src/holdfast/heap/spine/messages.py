"""What a spine and the leaders of its partitions send each other. Values, and their bytes.

A rank orders messages of one topic: the lower one is handed out first. Every message names the epochs it was sent under, so that
whoever gets it late can refuse it.
"""

from typing import Final

import msgspec


class SpineHello(msgspec.Struct, frozen=True, tag="hello"):
    """Spine to leader: obey this spine alone, by these rules. The leader answers with an advert.

    `round` is a number of its own, from the same counter as those of pops: whatever has a lower one is void. What was granted
    to this spine after pop `settled` was never delivered, and is to be released. `partitions`: how many it knows of; 0: an older
    release, which knows of none that were added.
    """

    spine_epoch: int
    round: int
    budget: int
    fan_out: int
    settled: int
    partitions: int = 0


class Advert(msgspec.Struct, frozen=True, tag="advert"):
    """Leader to spine: the least ranks that are ready, as of a log offset. `complete`: there are no others.

    The adverts of a round are numbered. Answered by an `AdvertAck`, on which acknowledgements may wait.
    """

    partition: int
    epoch: int
    spine_epoch: int
    round: int
    number: int
    offset: int
    ranks: tuple[int, ...]
    complete: bool

    @property
    def tail(self) -> int | None:
        """What is not better than this needs no advert; None: whatever becomes ready does."""
        return None if self.complete else self.ranks[-1]


class AdvertAck(msgspec.Struct, frozen=True, tag="ack"):
    """Spine to leader: no pop that does not know of this advert will be granted elsewhere."""

    spine_epoch: int
    round: int
    epoch: int
    number: int


class Refill(msgspec.Struct, frozen=True, tag="refill"):
    """Spine to leader: a newer advert than `number` is wanted, now or as soon as there is something to tell."""

    spine_epoch: int
    round: int
    epoch: int
    number: int


class Pop(msgspec.Struct, frozen=True, tag="pop"):
    """Spine to leader: grant your root, up to `count` times, while its rank is not above `limit` (None: whatever it is).

    `basis` is the offset of every partition's advert that was known, `bound` the rank bound; both go into the grant's record.
    """

    spine_epoch: int
    epoch: int
    sequence: int
    count: int
    limit: int | None
    bound: int
    basis: tuple[int, ...]


class Granted(msgspec.Struct, frozen=True, tag="granted"):
    """Leader to spine: what a pop got, by the record at `offset`. `advert`: the next one, if it is worth sending."""

    partition: int
    epoch: int
    spine_epoch: int
    sequence: int
    offset: int
    ranks: tuple[int, ...]
    advert: Advert | None = None


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Leader to spine: not obeyed, for another spine or another leader is newer, or there are more partitions."""

    partition: int
    epoch: int
    spine_epoch: int


ToLeader = SpineHello | AdvertAck | Refill | Pop
ToSpine = Advert | Granted | Refused

_ENCODER: Final = msgspec.msgpack.Encoder()
_TO_LEADER: Final[msgspec.msgpack.Decoder[ToLeader]] = msgspec.msgpack.Decoder(ToLeader)
_TO_SPINE: Final[msgspec.msgpack.Decoder[ToSpine]] = msgspec.msgpack.Decoder(ToSpine)


def encode(message: ToLeader | ToSpine) -> bytes:
    """The bytes of a message."""
    return _ENCODER.encode(message)


def decode_to_leader(data: bytes) -> ToLeader:
    """A message of a spine. `msgspec.DecodeError`: it is none."""
    return _TO_LEADER.decode(data)


def decode_to_spine(data: bytes) -> ToSpine:
    """A message of a leader. `msgspec.DecodeError`: it is none."""
    return _TO_SPINE.decode(data)
