"""The error table of the text gateway: what went wrong → the answer, and an answer of another node → what went wrong there.

The one rule: an answer says whether the request may be sent again. `NotLeaderForPartition` and `unavailable`: nothing has happened.
`outcome unknown`: it may have.
"""

from typing import Final

from holdfast.cursors.errors import NotCursorOwnerError
from holdfast.gateways.text.requests import RequestError
from holdfast.log.errors import NotLeaderError, OffsetOutOfRangeError
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.errors import (
    ClosedError,
    ExpiredError,
    FencedError,
    HoldfastError,
    InvalidError,
    OutcomeUnknownError,
    UnavailableError,
)

ERROR: Final = b"ERR "
OK: Final = b"OK"
EMPTY: Final = b"EMPTY"

_NOT_LEADER: Final = "NotLeaderForPartition: "
_UNAVAILABLE: Final = "unavailable: "
_UNKNOWN: Final = "outcome unknown: "
_FAILED: Final = "failed: "
_UNKNOWN_TOPIC: Final = "unknown topic "
FORWARD_FAILED: Final = "forward append failed: "

RETRIABLE: Final = (NotLeaderError, NotCursorOwnerError, UnavailableError)
"""Nothing has happened: ask again, perhaps somebody else."""


class RemoteRefusal(HoldfastError):  # noqa: N818 (an answer that is passed on)
    """Another node refused the request for good; its text is the answer."""


class LostAnswerError(OutcomeUnknownError):
    """Another node was asked, and what became of the request is not known."""

    def __init__(self, reason: str) -> None:
        super().__init__("", reason)
        self.args = (reason,)

    def __str__(self) -> str:
        return self.reason


def error_reply(error: HoldfastError, *, put: bool = False) -> bytes:
    """The answer about an error. `put`: a PUT that no leader has taken, in the words of Walrus."""
    match error:
        case RequestError() | RemoteRefusal():
            text = str(error)
        case UnknownTopicError():
            text = _UNKNOWN_TOPIC + error.topic
        case NotLeaderError() | NotCursorOwnerError():
            text = (FORWARD_FAILED if put else "") + _NOT_LEADER + str(error)
        case UnavailableError():
            text = _UNAVAILABLE + str(error)
        case OutcomeUnknownError() | FencedError() | ExpiredError() | ClosedError():
            text = _UNKNOWN + str(error)
        case OffsetOutOfRangeError():
            text = f"offset out of range: {error.offset} is not between {error.start} and {error.end}"
        case InvalidError():
            text = str(error)
        case _:
            text = f"{_FAILED}{error}"
    return ERROR + text.encode(errors="replace")


def raise_remote(reply: bytes, topic: str, partition: int) -> None:
    """Raise what the answer of another node means, if it is an error."""
    if not reply.startswith(ERROR):
        return
    text = reply[len(ERROR) :].decode(errors="replace")
    if text.startswith(_NOT_LEADER):
        raise NotLeaderError(topic, partition, reason=text.removeprefix(_NOT_LEADER))
    if text.startswith(_UNAVAILABLE):
        raise UnavailableError("leader", text.removeprefix(_UNAVAILABLE))
    if text.startswith(_UNKNOWN_TOPIC):
        raise UnknownTopicError(topic)
    if text.startswith((_UNKNOWN, _FAILED)):
        raise LostAnswerError(text.removeprefix(_UNKNOWN))
    raise RemoteRefusal(text)
