"""Heaps as JSON: what a client sends. Pure.

The one rule: bytes come back as they went in. A payload is text, any other JSON as it was sent, or bytes as `payload_base64`; lease
tokens are base64url. Names are those of `docs/heaps.md`, in snake case; an unknown one is an error.
"""

import re
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, Final

import msgspec

from holdfast.gateways.http.log.records import json_bytes
from holdfast.gateways.http.routes.bodies import count_entry, decoded_entries
from holdfast.heap.administration import LOG_SETTINGS
from holdfast.heap.config import NAMES, HeapConfig
from holdfast.heap.model import ENTRIES_MAX, MESSAGES_MAX, NewMessage
from holdfast.heap.records import ProducerSequence
from holdfast.heap.validation import HEADERS_BYTES_MAX
from holdfast.vocabulary.errors import InvalidError

_TOKENS_MAX: Final = 10_000


_Headers = Annotated[
    msgspec.Raw,
    msgspec.Meta(extra_json_schema={"type": "object", "additionalProperties": {"type": "string"}}),
]
"""Texts by name, which are counted before they are decoded."""
_NAME: Final = re.compile(r"[\w-]+")
_CHECKED: Final[Mapping[str, tuple[str, Callable[[NewMessage], object]]]] = {
    "priority": ("priority", lambda message: message.priority),
    "delay_ms": ("delay_ms", lambda message: message.delay_ms),
    "max_retries": ("max_retries", lambda message: message.max_retries),
    "fairness_key": (
        "fairness_key",
        lambda message: None if message.fairness_key is None else ascii(message.fairness_key[:60]),
    ),
    "payload bytes": ("payload", lambda message: len(message.payload)),
    "characters of partition_key": ("partition_key", lambda message: len(message.partition_key or "")),
    "producer_id": ("producer_id", lambda message: None if message.producer is None else message.producer[0][:60]),
    "epoch": ("epoch", lambda message: None if message.producer is None else message.producer[1]),
    "sequence": ("sequence", lambda message: None if message.producer is None else message.producer[2]),
}
"""What the checks of a message name: its field, and what they give of it."""
_TEXTS: Final = msgspec.json.Decoder(dict[str, str])


class HeapBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request body: an unknown field is an error."""


class MessageBody(HeapBody, frozen=True, kw_only=True, gc=False):
    """A message. `producer_id`, `epoch` and `sequence` make the same one again a duplicate.

    The collector of cycles does not look at it (`gc=False`): what it holds can refer to nothing.
    """

    priority: int = 0
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload_base64: str | None = None
    partition_key: str | None = None
    delay_ms: int = 0
    max_retries: int | None = None
    producer_id: str | None = None
    epoch: int = 0
    sequence: int | None = None
    headers: _Headers | msgspec.UnsetType = msgspec.UNSET
    headers_base64: _Headers | msgspec.UnsetType = msgspec.UNSET
    fairness_key: str | None = None

    def message(self, where: str = "") -> NewMessage:
        """The message; errors name its fields, below `where`."""
        if self.payload is msgspec.UNSET and self.payload_base64 is None:
            raise InvalidError(f"{where}payload", "nothing", "text or other JSON, or bytes as payload_base64")
        payload = json_bytes(f"{where}payload", self.payload, self.payload_base64, suffix="_base64")
        headers = [(name, text.encode()) for name, text in _texts(f"{where}headers", self.headers).items()]
        headers += [
            (name, _decoded(f"{where}headers_base64{_step(name)}", text))
            for name, text in _texts(f"{where}headers_base64", self.headers_base64).items()
        ]
        return NewMessage(
            payload=b"null" if payload is None else payload,
            priority=self.priority,
            delay_ms=self.delay_ms,
            max_retries=self.max_retries,
            partition_key=self.partition_key,
            producer=self._producer(where),
            headers=tuple(headers),
            fairness_key=self.fairness_key,
        )

    def _producer(self, where: str) -> ProducerSequence | None:
        if self.producer_id is None:
            if self.sequence is not None:
                raise InvalidError(f"{where}producer_id", "nothing", "given with a sequence")
            return None
        if self.sequence is None:
            raise InvalidError(f"{where}sequence", "nothing", "given with a producer_id")
        return ProducerSequence(self.producer_id, self.epoch, self.sequence)


class BatchedMessageBody(MessageBody, frozen=True, kw_only=True, gc=False):
    """A message of a batch."""

    def __post_init__(self) -> None:
        count_entry()


class EnqueueBody(MessageBody, frozen=True, kw_only=True, gc=False):
    """A message and its heap."""

    topic: str


class EnqueueBatchBody(HeapBody, frozen=True, kw_only=True):
    """Messages of one heap. Those of one partition are enqueued as a whole or not at all."""

    topic: str
    messages: Sequence[BatchedMessageBody]

    def read(self) -> list[NewMessage]:
        """The messages; errors name their places."""
        return [each.message(f"messages[{at}].") for at, each in enumerate(self.messages)]


_BATCH: Final = msgspec.json.Decoder(EnqueueBatchBody)


def decoded_batch(body: bytes) -> EnqueueBatchBody:
    """A batch. `InvalidError`: it has too many messages; they are decoded no further."""
    return decoded_entries(_BATCH, body, "messages", MESSAGES_MAX)


class PopBody(HeapBody, frozen=True, kw_only=True):
    """How many messages, for how long, and how long to wait for the first one. `consumer`: by default who calls."""

    topic: str
    max: int = 1
    visibility_timeout_ms: int | None = None
    wait_ms: int = 0
    partition: int | None = None
    consumer: str = ""


class LeasesBody(HeapBody, frozen=True, kw_only=True):
    """Leases, one or many. The token names the message; `message_id` is for the reader of a log."""

    topic: str
    lease_token: str = ""
    lease_tokens: Sequence[str] = ()
    message_id: str = ""

    def tokens(self) -> list[bytes]:
        """The tokens."""
        if bool(self.lease_token) == bool(self.lease_tokens):
            raise InvalidError("lease_token", "nothing or both", "given, or several as lease_tokens")
        if len(self.lease_tokens) > _TOKENS_MAX:
            raise InvalidError("lease_tokens", f"{len(self.lease_tokens)} tokens", f"at most {_TOKENS_MAX}")
        return [read_token(each) for each in self.lease_tokens or (self.lease_token,)]


class NackBody(LeasesBody, frozen=True, kw_only=True):
    """Leases of messages that failed."""

    backoff_ms: int | None = None
    reason: str = ""


class ExtendBody(LeasesBody, frozen=True, kw_only=True):
    """Leases that are still needed, for so long from now."""

    extension_ms: int


class MessageIdBody(HeapBody, frozen=True, kw_only=True):
    """A message of a heap."""

    topic: str
    message_id: str


class ReprioritiseBody(MessageIdBody, frozen=True, kw_only=True):
    """A message and its new priority."""

    priority: int


class MoveBody(MessageIdBody, frozen=True, kw_only=True):
    """A message that becomes a dead letter, and why."""

    reason: str = ""


class PurgeBody(HeapBody, frozen=True, kw_only=True):
    """A heap to empty; the token is that of `POST /v1/confirmations` for `heap.purge`."""

    topic: str
    force: bool = False
    confirmation_token: str = ""


class DeadLettersBody(HeapBody, frozen=True, kw_only=True):
    """Which dead letters: those that match everything that is given."""

    topic: str
    message_ids: Annotated[Sequence[str], msgspec.Meta(max_length=ENTRIES_MAX)] | None = None
    reason_contains: str = ""
    attempts_min: int = 0
    moved_before_ms: int | None = None
    limit: int | None = None
    dry_run: bool = False


class DeleteLettersBody(DeadLettersBody, frozen=True, kw_only=True):
    """Dead letters to delete; the token is that of `POST /v1/confirmations` for `heap.dlq.delete`."""

    force: bool = False
    confirmation_token: str = ""


class ReplayBody(DeadLettersBody, frozen=True, kw_only=True):
    """Dead letters to send back, at most so many a second."""

    rate_per_s: float | None = None


def _settings_body(name: str, *own: tuple[Any, ...], nullable: bool) -> type[msgspec.Struct]:
    """A body with every setting of a heap."""
    nothing = type(None) if nullable else msgspec.UnsetType
    settings = [(each.name, each.type | msgspec.UnsetType | nothing, msgspec.UNSET) for each in fields(HeapConfig)]
    return msgspec.defstruct(name, [*own, *settings], kw_only=True, frozen=True, forbid_unknown_fields=True)


_LOG_FIELDS: Final = tuple((name, str | int | msgspec.UnsetType, msgspec.UNSET) for name in LOG_SETTINGS)
NewHeap: Final = _settings_body("NewHeap", ("topic", str), ("partitions", int, 1), *_LOG_FIELDS, nullable=False)
HeapChange: Final = _settings_body("HeapChange", ("partitions", int | None, None), nullable=True)


def settings_of(given: msgspec.Struct, names: Sequence[str] = NAMES) -> dict[str, object]:
    """The settings that were given."""
    found = {name: getattr(given, name) for name in names}
    return {name: value for name, value in found.items() if value is not msgspec.UNSET}


def placed(error: InvalidError, messages: Sequence[NewMessage]) -> InvalidError:
    """An error of one message of a batch, with its place. What checks them says only what is wrong: the first that has it."""
    field, of = _CHECKED.get(error.what, ("", None))
    if of is not None:
        for at, message in enumerate(messages):
            if str(of(message)) == str(error.given):
                return InvalidError(f"messages[{at}].{field}", error.given, error.allowed)
    return error


def read_token(text: str) -> bytes:
    """A lease token."""
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise InvalidError("lease_token", text[:40], "a token that a pop returned") from None


def show_token(token: bytes) -> str:
    """A lease token as text."""
    return urlsafe_b64encode(token).rstrip(b"=").decode()


def _step(name: str) -> str:
    """The step to a member, as errors name it."""
    return f".{name}" if _NAME.fullmatch(name) else f"[{msgspec.json.encode(name).decode()}]"


def _texts(where: str, given: msgspec.Raw | msgspec.UnsetType) -> dict[str, str]:
    """The headers. Each has a colon, and those that a heap takes have no more in all their names and values than bytes."""
    if isinstance(given, msgspec.UnsetType):
        return {}
    json = bytes(given)
    if json.count(b":") > ENTRIES_MAX:
        raise InvalidError(where, f"more than {ENTRIES_MAX}", f"at most {HEADERS_BYTES_MAX} bytes")
    try:
        return _TEXTS.decode(json)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidError(where, str(error), "texts by name") from None


def _decoded(where: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise InvalidError(where, text[:40], "base64") from None
