"""Tokens of leases. A token is valid while it names the current lease of its message, whatever any clock says.

It names the heap, the partition, the message, and the GRANT record that leased it out, with the epoch of the leader that wrote it.
To everybody else it is opaque bytes.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final, NamedTuple

from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.native import native

_TOKEN: Final = struct.Struct(">BHIQQI")
_VERSION: Final = 1


class LeaseToken(NamedTuple):
    """What a token says."""

    partition: int
    epoch: int
    offset: int
    granted_at: int
    heap: int = 0  # see `heap_mark`

    def encode(self) -> bytes:
        """The token as its holder gets it."""
        return _TOKEN.pack(_VERSION, *self)


def heap_mark(topic_id: bytes) -> int:
    """What tokens of a heap have, and those of another one very likely not: offsets and epochs of two heaps may be the same."""
    return zlib.crc32(topic_id)


def encode_tokens(partition: int, epoch: int, granted_at: int, offsets: Iterable[int], heap: int) -> list[bytes]:
    """The tokens of the messages of one GRANT."""
    rest = (repeat(granted_at), repeat(heap))
    return list(map(_TOKEN.pack, repeat(_VERSION), repeat(partition), repeat(epoch), offsets, *rest))


def parse_token(token: bytes) -> LeaseToken:
    """What a token says. `InvalidError`: it is none."""
    if len(token) != _TOKEN.size or token[0] != _VERSION:
        raise InvalidError("lease_token", token[:40].hex(), "a token that a pop returned")
    return LeaseToken(*_TOKEN.unpack(token)[1:])


def parse_tokens(tokens: Sequence[bytes]) -> list[LeaseToken]:
    """`parse_token` of many."""
    parsed = None if native is None else native.parse_tokens(tokens, LeaseToken)
    return list(map(parse_token, tokens)) if parsed is None else parsed
