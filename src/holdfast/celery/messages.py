"""Kombu's messages as messages of heaps: names, priorities, delays. Decisions without I/O.

The one rule: what Kombu gave comes back as it was, but for the ETA: the broker has kept the message until then, so a worker runs it
at once. The ETA is kept in the header `holdfast_eta`. What is not Kombu's is refused here, before anything of it reaches Kombu.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kombu.transport import virtual
from kombu.utils.json import dumps, loads

from holdfast.heaps.message import Message
from holdfast.vocabulary.errors import UsageError

PRIORITY_MAX: Final = 255
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9._-]")
_NAME_CHARS_MAX: Final = 200
_OF_DELIVERY: Final = ("holdfast_eta", "holdfast_message_id", "holdfast_lease", "holdfast_attempts")
_REQUEUED_S: Final = 0.1
_REQUEUED_S_MAX: Final = 60.0


def safe_name(prefix: str, name: str) -> str:
    """The heap or topic of a queue or exchange: its own name, or one like it if there are characters that topics cannot have."""
    full = prefix + name
    safe = _UNSAFE.sub("_", full)[:_NAME_CHARS_MAX]
    if safe == full and safe not in (".", ".."):
        return safe
    return f"{safe}-{hashlib.sha256(full.encode()).hexdigest()[:12]}"


def priority_of(message: Mapping[str, Any]) -> int:
    """0 to 255, higher first."""
    try:
        return max(0, min(int(message["properties"]["priority"]), PRIORITY_MAX))
    except (KeyError, TypeError, ValueError):
        return 0


def delay_of(message: Mapping[str, Any], now_ms: int) -> float:
    """Seconds until the task's ETA; 0 without one."""
    eta = (message.get("headers") or {}).get("eta")
    if not eta:
        return 0.0
    try:
        at = datetime.fromisoformat(eta)
    except (TypeError, ValueError):
        return 0.0  # Celery's own way to deal with it is to reject the message
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, at.timestamp() - now_ms / 1000)


def requeue_pause(attempts: int) -> float:
    """Seconds until a message that is requeued is delivered again: none at first, then longer each time it failed before."""
    return min(_REQUEUED_S * 2 ** min(attempts - 1, 20), _REQUEUED_S_MAX) if attempts else 0.0


def encode(message: Mapping[str, Any]) -> bytes:
    """The payload. What an earlier delivery said of itself is left out: a task that is retried sends its headers again."""
    headers = message.get("headers") or {}
    sent = {name: value for name, value in headers.items() if name not in _OF_DELIVERY}
    return str(dumps({**message, "headers": sent})).encode()


def decode(payload: bytes) -> dict[str, Any]:
    """Kombu's message. `InvalidError`: it is not one, and would stop the worker that Kombu gives it to."""
    try:
        found: dict[str, Any] = loads(payload.decode())
        properties, body = found["properties"], found["body"]
        found["headers"] = dict(found.get("headers") or {})
        properties["delivery_info"] = dict(properties.get("delivery_info") or {})
        properties.setdefault("delivery_tag", "")
        encoding = properties.get("body_encoding") or "utf-8"
        if encoding.lower() != "utf-8":
            body = virtual.Channel.codecs[encoding].decode(body)
        len(body)  # as Celery does of one that it does not know
    except Exception as error:  # what is registered with Kombu to decode JSON may raise anything
        raise UsageError(f"not a message of Kombu: {type(error).__name__}: {error}") from error
    return found


def delivered(message: Message) -> dict[str, Any]:
    """Kombu's message as it is handed to a consumer. A task sees `holdfast_…` in its request. `InvalidError`: see `decode`."""
    raw = decode(message.payload)
    headers = raw["headers"]
    if headers.get("eta"):
        headers["holdfast_eta"], headers["eta"] = headers["eta"], None
    headers["holdfast_message_id"] = message.id
    headers["holdfast_lease"] = delivery_tag(message)
    headers["holdfast_attempts"] = message.attempts
    raw["properties"]["delivery_tag"] = delivery_tag(message)
    info = raw["properties"]["delivery_info"]
    info["priority"] = raw["properties"].get("priority", 0)
    info["redelivered"] = message.attempts > 0
    return raw


def delivery_tag(message: Message) -> str:
    """Of one lease: another delivery of the message has another one."""
    return message.lease_token.hex()
