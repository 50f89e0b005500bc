"""What callers of heaps may ask for; every gateway refuses the same in the same words. Pure."""

from collections.abc import Sequence
from typing import Final

from holdfast.heap.config import FAIRNESS_KEY_CHARS_MAX, PRIORITY_MAX, PRIORITY_MIN, HeapConfig
from holdfast.heap.dedup import INTERNAL
from holdfast.heap.model import ENTRIES_MAX, NewMessage
from holdfast.heap.settings import HeapSettings
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import KIB, check_between

NAME_CHARS_MAX: Final = 255
KEY_CHARS_MAX: Final = 1_024
HEADERS_BYTES_MAX: Final = 64 * KIB
_HEADER_BYTES: Final = 8  # that one takes beside its name and value
DELAY_MS_MAX: Final = 366 * 86_400_000
WAIT_MS_MAX: Final = 86_400_000  # of a pop
_LONG_MAX: Final = (1 << 63) - 1


def check_count(messages: Sequence[NewMessage], settings: HeapSettings) -> None:
    """Refuse a batch of no messages, or of too many. `InvalidError`."""
    if not messages:
        raise InvalidError("number of messages", 0, "at least 1")
    if len(messages) > settings.enqueue_messages_max:
        raise InvalidError("messages of a batch", len(messages), f"at most {settings.enqueue_messages_max}")
    headers = sum([len(message.headers) for message in messages])
    if headers > ENTRIES_MAX:
        raise InvalidError("headers of a batch", headers, f"at most {ENTRIES_MAX}")


def check_messages(messages: Sequence[NewMessage], config: HeapConfig, settings: HeapSettings) -> None:
    """Refuse messages that the heap does not take. `InvalidError`."""
    check_count(messages, settings)
    payload_max, producer = config.payload_bytes_max, None
    size_bytes = 0
    for message in messages:
        own = message.producer
        if (
            message.delay_ms
            or message.headers
            or message.origin is not None
            or message.max_retries is not None
            or message.partition_key is not None
            or message.fairness_key is not None
            or not PRIORITY_MIN <= message.priority <= PRIORITY_MAX
            or len(message.payload) > payload_max
            or (own is not None and (own[:2] != producer or not 0 <= own[2] <= _LONG_MAX))
        ):
            _check_message(message, config)
            producer = None if own is None else own[:2]  # that of the next ones, very likely
        size_bytes += len(message.payload)
    if size_bytes > settings.enqueue_bytes_max:
        raise InvalidError("payload bytes of a batch", size_bytes, f"at most {settings.enqueue_bytes_max}")


def _check_message(message: NewMessage, config: HeapConfig) -> None:
    size_bytes = len(message.payload)
    if size_bytes > config.payload_bytes_max:
        raise InvalidError("payload bytes", size_bytes, f"at most {config.payload_bytes_max}")
    check_between("priority", message.priority, PRIORITY_MIN, PRIORITY_MAX)
    check_between("delay_ms", message.delay_ms, 0, DELAY_MS_MAX)
    if message.origin is not None:
        raise InvalidError("origin", message.origin.topic[:60], "none: it is set when a message is moved")
    if message.max_retries is not None:
        check_between("max_retries", message.max_retries, 0, 1_000_000)
    if message.partition_key is not None:
        check_between("characters of partition_key", len(message.partition_key), 0, KEY_CHARS_MAX)
        check_text("partition_key", message.partition_key)
    if message.fairness_key is not None:
        check_fairness_key(message.fairness_key)
    if message.headers:
        for name, _ in message.headers:
            check_text("name of a header", name)
        size_bytes = sum(_HEADER_BYTES + len(name.encode()) + len(value or b"") for name, value in message.headers)
        check_between("bytes of headers", size_bytes, 0, HEADERS_BYTES_MAX)
    if message.producer is not None:
        producer, epoch, sequence = message.producer
        check_name("producer_id", producer)
        if producer.startswith(INTERNAL):
            raise InvalidError("producer_id", producer, f"a name that does not begin with {INTERNAL}")
        check_between("epoch", epoch, 0, _LONG_MAX)
        check_between("sequence", sequence, 0, _LONG_MAX)


def check_fairness_key(key: str) -> None:
    """Refuse a fairness key that is empty, too long, or reserved."""
    if not 1 <= len(key) <= FAIRNESS_KEY_CHARS_MAX or key.startswith("\0"):
        raise InvalidError(
            "fairness_key", ascii(key[:60]), f"1 to {FAIRNESS_KEY_CHARS_MAX} characters, the first not NUL"
        )
    check_text("fairness_key", key)


def check_name(what: str, name: str) -> None:
    """Refuse a name of a producer or consumer that is empty or too long."""
    if not 1 <= len(name) <= NAME_CHARS_MAX:
        raise InvalidError(what, name[:60], f"1 to {NAME_CHARS_MAX} characters")
    check_text(what, name)


def check_text(what: str, text: str) -> None:
    """Refuse a text that has no UTF-8: half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidError(what, ascii(text[:60]), "text that can be written as UTF-8") from None


def check_visibility(visibility_ms: int, config: HeapConfig) -> None:
    """Refuse a lease that is too short to be of use, or longer than the heap allows."""
    check_between("visibility_timeout_ms", visibility_ms, 100, config.lease_ms_max)
