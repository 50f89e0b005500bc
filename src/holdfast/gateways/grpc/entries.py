"""Counts what a request repeats before it is parsed: an empty message of two bytes becomes an object of a hundred and more.

The rules: never fewer are counted than parsing would make, and counting ends at the limit. What cannot be followed is refused.
Pure.
"""

from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from holdfast.vocabulary.errors import InvalidError

_FIXED64, _LENGTH, _FIXED32 = 1, 2, 5
_MORE: Final = 0x80  # of a varint's byte: another one follows
_VARINT_BYTES_MAX: Final = 10
_TAG_MAX: Final = (1 << 32) - 1
SETTINGS_MAX: Final = 1_000  # of a topic, or a heap
_FIXED_BYTES: Final[Mapping[int, int]] = {_FIXED64: 8, _FIXED32: 4}


@dataclass(frozen=True, slots=True)
class Repeats:
    """Where a kind of message repeats something: its repeated fields, and those with such fields inside, by number.

    `packed`: repeated numbers, which may share one tag.
    """

    repeated: frozenset[int]
    packed: frozenset[int]
    inside: "Mapping[int, Repeats]"

    @property
    def nothing(self) -> bool:
        """Whether no message of this kind has an entry."""
        return not self.repeated and not self.inside

    @classmethod
    def of(cls, kind: Descriptor) -> "Repeats":
        """Those of a kind of message. No kind of ours contains itself."""
        repeated = [field for field in kind.fields if field.is_repeated]
        inside = {field.number: cls.of(field.message_type) for field in kind.fields if field.message_type is not None}
        return cls(
            repeated=frozenset(field.number for field in repeated),
            packed=frozenset(field.number for field in repeated if _may_be_packed(field)),
            inside={number: found for number, found in inside.items() if not found.nothing},
        )

    def check(self, raw: bytes, entries_max: int) -> None:
        """Refuse a message with more entries, those inside others included. `InvalidError`."""
        if not self.nothing and (self._has_packed() or self._at_most(raw) > entries_max):
            _walk(self, raw, entries_max)

    def _has_packed(self) -> bool:
        return bool(self.packed) or any(each._has_packed() for each in self.inside.values())

    def _at_most(self, raw: bytes) -> int:
        """No fewer than there are: every entry begins with the first byte of its tag. Found a hundred times as fast."""
        return sum(map(raw.count, set(self._first_bytes())))

    def _first_bytes(self) -> Iterable[int]:
        for number in self.repeated:
            tag = number << 3 | _LENGTH
            yield tag & (_MORE - 1) | _MORE  # also of a short tag that is written with more bytes than it needs
            if tag < _MORE:
                yield tag
        for each in self.inside.values():
            yield from each._first_bytes()


def check_count(what: str, given: Sized, most: int) -> None:
    """Refuse more of something than anybody needs, before each is looked at. `InvalidError`."""
    if len(given) > most:
        raise InvalidError(what, f"{len(given)} entries", f"at most {most}")


def _may_be_packed(field: FieldDescriptor) -> bool:
    return field.message_type is None and field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def _walk(repeats: Repeats, raw: bytes, entries_max: int) -> None:
    left = entries_max
    waiting = [(repeats, 0, len(raw))]
    while waiting:
        found, at, end = waiting.pop()
        while at < end:
            tag, at = _varint(raw, at)
            number, wire_type = tag >> 3, tag & 7
            begins = at
            if tag > _TAG_MAX:
                raise _malformed()
            if wire_type == _LENGTH:
                size, begins = _varint(raw, at)
                at = begins + size
            elif wire_type in _FIXED_BYTES:
                at += _FIXED_BYTES[wire_type]
            elif wire_type == 0:
                _, at = _varint(raw, at)
            else:
                raise _malformed()
            if at > end:
                raise _malformed()
            if number in found.repeated:
                left -= at - begins if number in found.packed and wire_type == _LENGTH else 1
                if left < 0:
                    raise InvalidError("entries of a request", f"more than {entries_max}", f"at most {entries_max}")
            if wire_type == _LENGTH and number in found.inside:
                waiting.append((found.inside[number], begins, at))


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    found = 0
    for place, byte in enumerate(raw[at : at + _VARINT_BYTES_MAX]):
        found |= (byte & (_MORE - 1)) << 7 * place
        if byte < _MORE:
            return found, at + place + 1
    raise _malformed()


def _malformed() -> InvalidError:
    return InvalidError("request", "bytes", "a message of this rpc")
