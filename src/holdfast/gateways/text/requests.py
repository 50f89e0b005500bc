"""Requests of the text protocol, parsed. Pure.

Verbs are case sensitive; words are separated by single spaces; a payload is everything after the second one, whatever bytes it has.
A request that another node forwards begins with `VIA {node}`, and is never forwarded again; only such requests may use the verbs
PUTS, READ, TAKE and SETTLE.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from holdfast.vocabulary.errors import HoldfastError


class Verb(StrEnum):
    """What is asked for."""

    REGISTER = "REGISTER"
    PUT = "PUT"
    GET = "GET"
    FETCH = "FETCH"
    STATE = "STATE"
    METRICS = "METRICS"
    AUTH = "AUTH"
    PUTS = "PUTS"  # several payloads at once, all or none
    READ = "READ"  # records of the leader, for a cursor or a FETCH
    TAKE = "TAKE"  # records of a cursor, until they are settled
    SETTLE = "SETTLE"  # how many of the records taken before were delivered, how many after them were not, and so on


FORWARDED: Final = "VIA"
NO_SECURITY: Final = "security is not configured: connections need no AUTH"
_INTERNAL: Final = frozenset({Verb.PUTS, Verb.READ, Verb.TAKE, Verb.SETTLE})
_WITHOUT_TOPIC: Final = frozenset({Verb.METRICS, Verb.AUTH, Verb.SETTLE})
# FETCH and READ: partition, offset, and how many records or bytes; TAKE: how many; SETTLE: how many were delivered, were not, …
_NUMBERS: Final = {Verb.FETCH: (2, 3), Verb.READ: (3, 3), Verb.TAKE: (1, 1), Verb.SETTLE: (1, 1_024)}
_NUMBER_DIGITS_MAX: Final = 18


class RequestError(HoldfastError):
    """The request is invalid; its text is the answer, after `ERR `."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `numbers`: what follows the topic, in its order. `size`: its bytes."""

    verb: Verb
    topic: str = ""
    payload: bytes = field(default=b"", repr=False)  # of AUTH, a secret
    numbers: tuple[int, ...] = ()
    forwarded: bool = False
    size: int = 0


def is_forwarded(frame: bytes) -> bool:
    """Whether another node has sent it."""
    return frame.startswith(b"VIA ")


def parse_request(frame: bytes) -> Request:
    """The request in a frame. `RequestError`."""
    size, forwarded = len(frame), False
    if is_forwarded(frame):
        words = frame.split(b" ", 2)
        if len(words) < 3:
            raise RequestError("VIA requires a node and a request")
        frame, forwarded = words[2], True
    parts = frame.split(b" ", 2)
    verb = _verb(_text(parts[0]), forwarded)
    if verb is Verb.AUTH:
        return Request(verb, payload=b" ".join(parts[1:]), forwarded=forwarded, size=size)
    if verb in _WITHOUT_TOPIC:
        numbers = _numbers(verb, b" ".join(parts[1:]))
        return Request(verb, numbers=numbers, forwarded=forwarded, size=size)
    topic = _text(parts[1]) if len(parts) > 1 else ""
    if not topic:
        raise RequestError(f"{verb} requires a topic")
    rest = parts[2] if len(parts) > 2 else None
    if verb in (Verb.PUT, Verb.PUTS):
        if rest is None:
            raise RequestError(f"{verb} requires a payload")
        return Request(verb, topic, rest, forwarded=forwarded, size=size)
    return Request(verb, topic, numbers=_numbers(verb, rest or b""), forwarded=forwarded, size=size)


def _verb(word: str, forwarded: bool) -> Verb:
    if word not in Verb.__members__ or (Verb(word) in _INTERNAL and not forwarded):
        raise RequestError("unknown command")
    return Verb(word)


def _text(word: bytes) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise RequestError("invalid utf-8") from None


def _numbers(verb: Verb, rest: bytes) -> tuple[int, ...]:
    """The numbers of a verb that has some; others ignore what follows, as Walrus does."""
    if verb not in _NUMBERS:
        return ()
    least, most = _NUMBERS[verb]
    words = rest.split(b" ") if rest else []
    if not least <= len(words) <= most or not all(word.isdigit() and len(word) <= _NUMBER_DIGITS_MAX for word in words):
        what = "a partition, an offset and optionally a number of records" if verb is Verb.FETCH else "its numbers"
        raise RequestError(f"{verb} requires {what}")
    return tuple(map(int, words))
