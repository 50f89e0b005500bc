"""Heap operations as messages between clients and nodes, and from node to node: docs/formats/heap-protocol.md.

They travel as the bodies of two requests of our own on the Kafka port (`kafka.api_keys`): frames, pipelining, limits, TLS and
logins are those of the port. Bodies are MessagePack; a message is an array whose first element is its number. A response is one
byte, 0 with the result or 1 with the failure.

The one rule: a request names one heap, and carries everything. `partition` is set by who knows where it goes; a request that was
`forwarded` is never forwarded again. Fields are added at the end of a message, with a default.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias
from zlib import crc32

import msgspec

from holdfast.heap.administration import HeapDescription
from holdfast.heap.dead_letters import DeadLetterProgress, DeadLetterReport
from holdfast.heap.errors import (
    BatchAbortedError,
    LeaseLostError,
    MessageNotFoundError,
    NotAHeapError,
    PartitionsGrownError,
    ProducerFencedError,
    ResourceExhaustedError,
    SequenceForgottenError,
)
from holdfast.heap.model import (
    ENTRIES_MAX,
    MESSAGES_MAX,
    Enqueued,
    NewMessage,
    PartitionStats,
    PeekedMessage,
    PoppedMessage,
)
from holdfast.log.errors import NotEnoughReplicasError, NotLeaderError
from holdfast.log.topics import PartitionCountError, TopicExistsError, UnknownTopicError
from holdfast.security.confirmations import UnconfirmedError
from holdfast.vocabulary.errors import (
    ClosedError,
    ExpiredError,
    FencedError,
    HoldfastError,
    InvalidError,
    OutcomeUnknownError,
    UnavailableError,
)
from holdfast.vocabulary.settings import KIB, MIB

_RESULT: Final = b"\0"
_FAILURE: Final = b"\1"

_Messages: TypeAlias = Annotated[Sequence[NewMessage], msgspec.Meta(max_length=MESSAGES_MAX)]
_Tokens: TypeAlias = Annotated[Sequence[bytes], msgspec.Meta(max_length=ENTRIES_MAX)]


class HeapRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What every request has."""

    topic: str
    partition: int | None = None
    forwarded: bool = False


class EnqueueRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=1):
    """Messages of one partition, all or none."""

    messages: _Messages


class EnqueueBatchRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=48):
    """Messages of several partitions, all or none: `places` has the partition of each, `partition` is the lowest of them."""

    messages: _Messages
    places: Annotated[Sequence[int], msgspec.Meta(max_length=MESSAGES_MAX)]


class PopRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=2):
    """Lease up to `max_messages`; waits for the first one. `whole`: the partition is the only one, as far as the sender knows."""

    consumer: str
    max_messages: int = 1
    visibility_timeout_ms: int | None = None
    wait_ms: float = 0
    whole: bool = False


class AckRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=3):
    """Messages that are done."""

    tokens: _Tokens


class NackRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=4):
    """Messages that failed."""

    tokens: _Tokens
    backoff_ms: int | None = None
    reason: str = ""


class ReleaseRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=5):
    """Messages that were not worked on."""

    tokens: _Tokens


class ExtendRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=6):
    """Leases that are still needed."""

    tokens: _Tokens
    extension_ms: int


class PeekRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=7):
    """What would be popped next."""

    limit: int = 10


class StatsRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=8):
    """What is in the partitions."""


class CancelRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=9):
    """Withdraw a message."""

    message_id: str


class ReprioritiseRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=10):
    """Give a message another priority."""

    message_id: str
    priority: int


class MoveRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=11):
    """Send a message to the dead letters."""

    message_id: str
    reason: str = ""


class PurgeRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=12):
    """Withdraw every message. It takes `force` and a token, unless a node forwards it."""

    force: bool = False
    confirmation_token: str = ""


class DeadLettersRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=13):
    """Dead letters that match, listed, replayed or deleted (`action`). To delete takes `force` and a token. Offsets: of one
    partition. `topic_id`: of the heap of dead letters, if another one of its name will not do."""

    action: str
    message_ids: Annotated[Sequence[str], msgspec.Meta(max_length=ENTRIES_MAX)] | None = None
    reason_contains: str = ""
    attempts_min: int = 0
    moved_before_ms: int | None = None
    limit: int | None = None
    dry_run: bool = False
    rate_per_s: float | None = None
    force: bool = False
    confirmation_token: str = ""
    from_offset: int = 0
    before_offset: int | None = None
    topic_id: str = ""


class PlacesRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=14):
    """Where each partition is led."""


class SpineRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=19):
    """Where the spine is, which pops of several partitions pass."""


class DeliverRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=30):
    """Messages that were moved here from a partition of another heap; from node to node alone."""

    messages: _Messages


class CreateRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=15):
    """Create a heap. `config`: its settings; `log`: those of the topic below."""

    partitions: int = 1
    config: dict[str, Any] = {}
    log: dict[str, Any] = {}


class DeleteRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=16):
    """Delete a heap and its dead letters. It takes `force` and a token."""

    force: bool = False
    confirmation_token: str = ""


class DescribeRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=17):
    """How a heap is configured."""


class UpdateRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=18):
    """Change a heap: settings, None for the default; more partitions."""

    config: dict[str, Any] = {}
    partitions: int | None = None


class ConfirmRequest(HeapRequest, frozen=True, kw_only=True, array_like=True, tag=40):
    """A token for one destructive request (`security.confirmations.Action`), good once."""

    action: str


Request: TypeAlias = (
    EnqueueRequest
    | EnqueueBatchRequest
    | PopRequest
    | AckRequest
    | NackRequest
    | ReleaseRequest
    | ExtendRequest
    | PeekRequest
    | StatsRequest
    | CancelRequest
    | ReprioritiseRequest
    | MoveRequest
    | PurgeRequest
    | DeadLettersRequest
    | PlacesRequest
    | SpineRequest
    | DeliverRequest
    | CreateRequest
    | DeleteRequest
    | DescribeRequest
    | UpdateRequest
    | ConfirmRequest
)


_LANES: Final = 16

_MAKES_READY: Final = (
    EnqueueRequest,
    EnqueueBatchRequest,
    DeliverRequest,
    NackRequest,
    ReleaseRequest,
    ReprioritiseRequest,
)
_OF_ANY_NODE: Final = (
    PlacesRequest,
    SpineRequest,
    CreateRequest,
    DescribeRequest,
    UpdateRequest,
    DeleteRequest,
    ConfirmRequest,
)


def lane_of(request: HeapRequest) -> int:
    """Which of the connections to a node takes a request: 0 if any node answers it at once, another one if it may wait.

    Responses of a connection have an order, and a request waits while its partition has no leader, and if it makes messages ready
    for a spine, too. So acks and renewals, which wait for no spine, have lanes of their own, and heaps are spread over a few: one
    that waits holds up some heaps at most, and a client of thousands has no more connections for it.
    """
    if isinstance(request, _OF_ANY_NODE):
        return 0
    lane = 1 + crc32(request.topic.encode()) % _LANES
    return lane if isinstance(request, _MAKES_READY) else _LANES + lane


def entries_of(request: HeapRequest) -> int:
    """How many messages or tokens a request has."""
    match request:
        case EnqueueRequest() | EnqueueBatchRequest() | DeliverRequest():
            return len(request.messages)
        case AckRequest() | NackRequest() | ReleaseRequest() | ExtendRequest():
            return len(request.tokens)
    return 0


class LostLease(msgspec.Struct, frozen=True, array_like=True):
    """Why a token is not the current lease of its message. `epochs`, `now_ms`: as in `LeaseLostError`."""

    message_id: str
    reason: str
    epochs: int = 0
    now_ms: int | None = None

    def error(self, topic: str) -> LeaseLostError:
        """The same as an error."""
        return LeaseLostError(topic, self.message_id, self.reason)


Settled: TypeAlias = list[LostLease | None]
"""For each token of an ack, nack or release: None, or why it had no effect."""

_RESULTS: Final[dict[type[HeapRequest], Any]] = {
    EnqueueRequest: list[Enqueued],
    EnqueueBatchRequest: list[Enqueued],
    DeliverRequest: list[Enqueued],
    PopRequest: list[PoppedMessage],
    AckRequest: Settled,
    NackRequest: Settled,
    ReleaseRequest: Settled,
    ExtendRequest: list[int | LostLease],
    PeekRequest: list[PeekedMessage],
    StatsRequest: list[PartitionStats],
    CancelRequest: None,
    ReprioritiseRequest: None,
    MoveRequest: None,
    PurgeRequest: int,
    DeadLettersRequest: list[PeekedMessage] | DeadLetterReport | DeadLetterProgress,
    PlacesRequest: list[str],  # host:port each; empty where no leader is known
    SpineRequest: str,  # host:port; empty while it is nowhere
    CreateRequest: HeapDescription,
    DeleteRequest: None,
    DescribeRequest: HeapDescription,
    UpdateRequest: HeapDescription,
    ConfirmRequest: tuple[str, int],  # the token, and until when it is good
}
_DECODERS: Final = {
    kind: msgspec.msgpack.Decoder(result) for kind, result in _RESULTS.items() if kind is not DeadLettersRequest
}
_LETTERS: Final = msgspec.msgpack.Decoder(list[PeekedMessage])
_REPORT: Final = msgspec.msgpack.Decoder(DeadLetterReport)
_PROGRESS: Final = msgspec.msgpack.Decoder(DeadLetterProgress)
_REQUEST: Final = msgspec.msgpack.Decoder(Request)
_ENCODER: Final = msgspec.msgpack.Encoder()


class Denied(HoldfastError):  # noqa: N818 - a refusal
    """The caller may not do this."""

    def __init__(self, topic: str, operation: str) -> None:
        super().__init__(topic, operation)
        self.topic, self.operation = topic, operation

    def __str__(self) -> str:
        return f"this principal may not {self.operation} heap {self.topic}"


_ERRORS: Final[tuple[type[HoldfastError], ...]] = (
    *(Denied, UnknownTopicError, TopicExistsError, NotAHeapError, NotLeaderError, NotEnoughReplicasError),
    PartitionCountError,
    *(LeaseLostError, MessageNotFoundError, ResourceExhaustedError, ProducerFencedError, SequenceForgottenError),
    *(BatchAbortedError, UnconfirmedError, InvalidError, PartitionsGrownError, UnavailableError, OutcomeUnknownError),
    *(FencedError, ExpiredError, ClosedError),
)
REQUEST_BYTES_MAX: Final = 8 * MIB - KIB
"""Nodes close the connection of a larger one (`kafka.control_bytes_max`, with its header)."""
_BY_NAME: Final = {kind.__name__: kind for kind in _ERRORS}
_FAILED: Final = msgspec.msgpack.Decoder(tuple[str, list[Any], str])


def encode_request(request: HeapRequest) -> bytes:
    """The body of a request. `InvalidError`: something in it is of no kind that a request has, or it is too large."""
    try:
        body = _ENCODER.encode(request)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidError(
            "heap request", str(error), "of the types and ranges of docs/formats/heap-protocol.md"
        ) from None
    if len(body) > REQUEST_BYTES_MAX:
        raise InvalidError("bytes of a heap request", len(body), f"at most {REQUEST_BYTES_MAX}")
    return body


def decode_request(body: memoryview | bytes) -> Request:
    """The request. `InvalidError`: it is none, or one of a newer release."""
    try:
        found: Request = _REQUEST.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidError("heap request", str(error), "one of this protocol: docs/formats/heap-protocol.md") from None
    return found


def encode_result(result: object) -> bytes:
    """The body of a response to a request that was served."""
    return _RESULT + _ENCODER.encode(result)


def encode_failure(error: HoldfastError) -> bytes:
    """The body of a response to a request that failed."""
    kind = next((kind for kind in _ERRORS if type(error) is kind), None)
    plain = [value for value in error.args if isinstance(value, str | int | float | None)]
    known = kind is not None and len(plain) == len(error.args)
    return _FAILURE + _ENCODER.encode((kind.__name__ if known and kind else "", plain if known else [], str(error)))


def decode_response(request: HeapRequest, body: bytes) -> Any:
    """The result of a request. Raises the failure it got; `UnavailableError` for one that this release does not know."""
    try:
        if body[:1] == _RESULT:
            if isinstance(request, DeadLettersRequest):
                report = _REPORT if request.partition is None else _PROGRESS
                return (_LETTERS if request.action == "list" else report).decode(body[1:])
            return _DECODERS[type(request)].decode(body[1:])
        failure = decode_failure(body, request.topic)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OutcomeUnknownError(f"{type(request).__name__} of {request.topic}", str(error)) from None
    raise failure


def decode_failure(body: bytes, topic: str) -> HoldfastError:
    """The failure in a response. Raises what MessagePack raises."""
    name, args, text = _FAILED.decode(body[1:])
    kind = _BY_NAME.get(name)
    return UnavailableError(f"heap {topic}", text) if kind is None else kind(*args)
