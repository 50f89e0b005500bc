"""Kafka's primitive types, for messages that are read and written by hand: headers, ApiVersions, Metadata, Produce and Fetch.

`WireReader` reads from a position in a buffer and never beyond its end; the functions encode. Everything else goes through `codec`.
"""

from struct import Struct, error
from typing import Final
from uuid import UUID

from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.varint import VarintError, put_uvarint, read_uvarint

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")
NO_TAGS: Final = b"\0"

_VARINT_BITS: Final = 32
_STRING_BYTES_MAX: Final = (1 << 15) - 1  # in every encoding, as Kafka's own readers have it
ENTRIES_MAX: Final = 100_000


class MalformedRequestError(InvalidError):
    """A request that does not match its header. The connection is closed: where the next request begins is unknown."""

    def __init__(self, what: str, given: object, allowed: str) -> None:
        super().__init__(what, given, allowed)


class WireReader:
    """Reads a message field by field. `flexible`: compact lengths and tagged fields.

    `entries_max`: elements of all its arrays together; also tagged fields. Each takes time, and some only a byte of the message.
    """

    __slots__ = ("_entries_max", "at", "end", "entries", "flexible", "tagged", "view")

    def __init__(self, view: memoryview, *, flexible: bool, at: int = 0, entries_max: int = ENTRIES_MAX) -> None:
        self.view, self.flexible, self.at, self.end = view, flexible, at, len(view)
        self.entries = self.tagged = 0
        self._entries_max = entries_max

    def int8(self) -> int:
        value = self.take(1)[0]
        return value - 256 if value > 127 else value

    def int16(self) -> int:
        return self._number(INT16)

    def int32(self) -> int:
        return self._number(INT32)

    def int64(self) -> int:
        return self._number(INT64)

    def _number(self, struct: Struct) -> int:
        try:
            (value,) = struct.unpack_from(self.view, self.at)
        except error:
            raise self._truncated(struct.size) from None
        self.at += struct.size
        return int(value)

    def uvarint(self) -> int:
        try:
            value, self.at = read_uvarint(self.view, self.at, self.end, _VARINT_BITS)
        except VarintError as error:
            if error.overflow:
                given = bytes(self.view[self.at : error.at]).hex()
                raise MalformedRequestError("varint", given, f"at most {_VARINT_BITS} bits") from None
            raise self._truncated(self.end - self.at + 1) from None
        return value

    def take(self, size: int) -> memoryview:
        """The next `size` bytes, not copied."""
        end = self.at + size
        if size < 0 or end > self.end:
            raise self._truncated(size)
        taken = self.view[self.at : end]
        self.at = end
        return taken

    def length(self, struct: Struct = INT32) -> int:
        """The length of an array or of bytes; -1 is null."""
        value = self.uvarint() - 1 if self.flexible else self._number(struct)
        if value > self.end - self.at:
            raise self._truncated(value)
        return value

    def nullable_array(self) -> int:
        """The length of an array; -1 is null."""
        length = self.length()
        if length > 0:
            self.entries += length
            self._check_count("number of entries", self.entries)
        return length

    def array(self) -> int:
        """The length of an array; null counts as empty."""
        return max(0, self.nullable_array())

    def _check_count(self, what: str, count: int) -> None:
        if count > self._entries_max:
            raise MalformedRequestError(what, count, f"at most {self._entries_max}")

    def string(self) -> str | None:
        length = self.length(INT16)
        if length < 0:
            return None
        self.check_string(length)
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError:
            raise MalformedRequestError("string", bytes(self.view[self.at - length : self.at])[:80], "UTF-8") from None

    def check_string(self, length: int) -> None:
        """Refuse what no client sends as a string: names are hashed, compared and logged."""
        if length > _STRING_BYTES_MAX:
            raise MalformedRequestError("string length", length, f"at most {_STRING_BYTES_MAX}")

    def text(self) -> str:
        """A string that may not be null."""
        value = self.string()
        if value is None:
            raise MalformedRequestError("string", None, "non-null")
        return value

    def bytes(self) -> memoryview | None:
        length = self.length()
        return None if length < 0 else self.take(length)

    def uuid(self) -> UUID:
        return UUID(bytes=bytes(self.take(16)))

    def tags(self) -> None:
        """Skip tagged fields: none of a supported version changes the meaning of a request."""
        if self.flexible and (count := self.uvarint()):
            self.tagged += count
            self._check_count("number of tagged fields", self.tagged)
            for _ in range(count):
                self.uvarint()
                self.take(self.uvarint())

    def _truncated(self, needed: int) -> MalformedRequestError:
        return MalformedRequestError("remaining length", self.end - self.at, f"at least {needed}")


def encode_uvarint(value: int) -> bytes:
    """An unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    put_uvarint(out, value)
    return bytes(out)


def encode_length(count: int, *, flexible: bool) -> bytes:
    """The length of an array, or of bytes."""
    return encode_uvarint(count + 1) if flexible else INT32.pack(count)


def encode_string(value: str | None, *, flexible: bool) -> bytes:
    """A nullable string."""
    if value is None:
        return b"\0" if flexible else INT16.pack(-1)
    data = value.encode()
    return (encode_uvarint(len(data) + 1) if flexible else INT16.pack(len(data))) + data


def encode_tags(fields: dict[int, bytes]) -> bytes:
    """Tagged fields, in the order of their tags."""
    out = bytearray(encode_uvarint(len(fields)))
    for tag in sorted(fields):
        out += encode_uvarint(tag) + encode_uvarint(len(fields[tag])) + fields[tag]
    return bytes(out)


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))
