"""What happens in the world of heaps, as events; `at_ms` counts steps. What the oracle needs is among them."""

import msgspec


class MessageCounted(msgspec.Struct, frozen=True):
    """A message became ready, and that was acknowledged: from here on pops are measured against it."""

    at_ms: float
    partition: int
    message: int
    rank: int


class MessagesGranted(msgspec.Struct, frozen=True):
    """A grant is in a partition's log: what a pop got, the bound it was given, and the adverts it was decided on."""

    at_ms: float
    partition: int
    offset: int
    messages: tuple[int, ...]
    ranks: tuple[int, ...]
    spine_epoch: int
    sequence: int
    bound: int
    basis: tuple[int, ...]


class PopDelivered(msgspec.Struct, frozen=True):
    """What a pop got was handed to a consumer."""

    at_ms: float
    partition: int
    spine_epoch: int
    sequence: int


class MessageGone(msgspec.Struct, frozen=True):
    """A message that waited was cancelled."""

    at_ms: float
    partition: int
    message: int


class LeaderChanged(msgspec.Struct, frozen=True):
    """A partition has another leader, or its first."""

    at_ms: float
    partition: int
    epoch: int


class SpineChanged(msgspec.Struct, frozen=True):
    """The spine's lease has another holder."""

    at_ms: float
    epoch: int


class LinkLost(msgspec.Struct, frozen=True):
    """What a spine and a leader had sent each other and not received is lost."""

    at_ms: float
    spine_epoch: int
    partition: int


class PartitionsAdded(msgspec.Struct, frozen=True):
    """The topic has more partitions."""

    at_ms: float
    partitions: int


class FaultsEnded(msgspec.Struct, frozen=True):
    """Nothing fails from here on. `left`: messages that were still not handed out at the end."""

    at_ms: float
    left: int


class HeapNote(msgspec.Struct, frozen=True):
    """A line of a transcript."""

    at_ms: float
    who: str
    text: str


HeapEvent = (
    MessageCounted
    | MessagesGranted
    | PopDelivered
    | MessageGone
    | LeaderChanged
    | SpineChanged
    | LinkLost
    | PartitionsAdded
    | FaultsEnded
    | HeapNote
)


def describe_heap(event: HeapEvent) -> tuple[str, str]:
    """Who did it, and what."""
    match event:
        case MessageCounted(partition=partition, message=message, rank=rank):
            return f"p{partition}", f"message {message} of rank {rank} is ready"
        case MessagesGranted(partition=partition, ranks=ranks, spine_epoch=epoch, sequence=sequence, bound=bound):
            return f"p{partition}", f"grants {ranks} to pop {epoch}.{sequence}, bound {bound}"
        case PopDelivered(partition=partition, spine_epoch=epoch, sequence=sequence):
            return f"spine {epoch}", f"delivers pop {sequence} of p{partition}"
        case MessageGone(partition=partition, message=message):
            return f"p{partition}", f"message {message} is cancelled"
        case LeaderChanged(partition=partition, epoch=epoch):
            return f"p{partition}", f"has a leader at epoch {epoch}"
        case SpineChanged(epoch=epoch):
            return "world", f"has a spine at epoch {epoch}"
        case LinkLost(spine_epoch=epoch, partition=partition):
            return "world", f"cuts spine {epoch} from p{partition}"
        case PartitionsAdded(partitions=partitions):
            return "world", f"has {partitions} partitions"
        case FaultsEnded(left=left):
            return "world", f"heals; {left} messages were never handed out"
        case HeapNote(who=who, text=text):
            return who, text
