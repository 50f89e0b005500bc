"""Kombu's messages as messages of heaps: names, priorities, delays. Decisions without I/O.

The one rule: what Kombu gave comes back as it was, but for the ETA: the broker has kept the message until then, so a worker runs it
at once. The ETA is kept in the header `holdfast_eta`.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kombu.utils.json import dumps, loads

from holdfast.heaps.message import Message

PRIORITY_MAX: Final = 255
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9._-]")
_NAME_CHARS_MAX: Final = 200


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


def encode(message: Mapping[str, Any]) -> bytes:
    """The payload."""
    return str(dumps(message)).encode()


def decode(payload: bytes) -> dict[str, Any]:
    """Kombu's message."""
    found: dict[str, Any] = loads(payload.decode())
    return found


def delivered(message: Message) -> dict[str, Any]:
    """Kombu's message as it is handed to a consumer. A task sees `holdfast_…` in its request."""
    raw = decode(message.payload)
    headers = raw.setdefault("headers", {})
    if headers.get("eta"):
        headers["holdfast_eta"], headers["eta"] = headers["eta"], None
    headers["holdfast_message_id"] = message.id
    headers["holdfast_lease"] = delivery_tag(message)
    headers["holdfast_attempts"] = message.attempts
    raw["properties"]["delivery_tag"] = delivery_tag(message)
    info = raw["properties"].setdefault("delivery_info", {})
    info["priority"] = raw["properties"].get("priority", 0)
    info["redelivered"] = message.attempts > 0
    return raw


def delivery_tag(message: Message) -> str:
    """Of one lease: another delivery of the message has another one."""
    return message.lease_token.hex()
