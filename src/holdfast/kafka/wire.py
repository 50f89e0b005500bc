"""Kafka's primitive types, for the messages that are read and written by hand: request headers, ApiVersions, Produce and Fetch.

`Reader` reads from a position in a buffer and never beyond its end. Everything else here makes bytes.
"""

from struct import Struct, error
from typing import Final
from uuid import UUID

from holdfast.vocabulary.errors import InvalidError

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")
NO_TAGS: Final = b"\0"

_VARINT_BYTES_MAX: Final = 5


class MalformedRequestError(InvalidError):
    """A request that is not what its header says. The connection is closed: there is no telling what follows."""

    def __init__(self, what: str, given: object, allowed: str) -> None:
        super().__init__(what, given, allowed)


class WireReader:
    """Reads a message field by field. `flexible`: compact lengths and tagged fields."""

    __slots__ = ("at", "end", "flexible", "view")

    def __init__(self, view: memoryview, *, flexible: bool, at: int = 0) -> None:
        self.view, self.flexible, self.at, self.end = view, flexible, at, len(view)

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
            raise self._cut(struct.size) from None
        self.at += struct.size
        return int(value)

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedRequestError("varint", f"more than {_VARINT_BYTES_MAX} bytes", f"at most {_VARINT_BYTES_MAX}")

    def take(self, size: int) -> memoryview:
        """The next `size` bytes, where they are."""
        end = self.at + size
        if size < 0 or end > self.end:
            raise self._cut(size)
        taken = self.view[self.at : end]
        self.at = end
        return taken

    def length(self, struct: Struct = INT32) -> int:
        """The length of an array or of bytes; -1 is null."""
        value = self.uvarint() - 1 if self.flexible else self._number(struct)
        if value > self.end - self.at:
            raise self._cut(value)
        return value

    def array(self) -> int:
        """The length of an array; null counts as empty."""
        return max(0, self.length())

    def string(self) -> str | None:
        length = self.length(INT16)
        if length < 0:
            return None
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError:
            raise MalformedRequestError("string", bytes(self.view[self.at - length : self.at])[:80], "UTF-8") from None

    def text(self) -> str:
        """A string that may not be null."""
        value = self.string()
        if value is None:
            raise MalformedRequestError("string", None, "not null")
        return value

    def bytes(self) -> memoryview | None:
        length = self.length()
        return None if length < 0 else self.take(length)

    def uuid(self) -> UUID:
        return UUID(bytes=bytes(self.take(16)))

    def tags(self) -> None:
        """Skip tagged fields: none that is offered here changes what a request means."""
        if self.flexible:
            for _ in range(self.uvarint()):
                self.uvarint()
                self.take(self.uvarint())

    def _cut(self, wanted: int) -> MalformedRequestError:
        return MalformedRequestError("bytes left in the request", self.end - self.at, f"the {wanted} its fields need")


def uvarint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def array_length(count: int, *, flexible: bool) -> bytes:
    """The length of an array, or of bytes."""
    return uvarint(count + 1) if flexible else INT32.pack(count)


def string(value: str | None, *, flexible: bool) -> bytes:
    """A nullable string."""
    if value is None:
        return b"\0" if flexible else INT16.pack(-1)
    data = value.encode()
    return (uvarint(len(data) + 1) if flexible else INT16.pack(len(data))) + data


def tagged(fields: dict[int, bytes]) -> bytes:
    """Tagged fields, in the order of their tags."""
    out = bytearray(uvarint(len(fields)))
    for tag in sorted(fields):
        out += uvarint(tag) + uvarint(len(fields[tag])) + fields[tag]
    return bytes(out)
