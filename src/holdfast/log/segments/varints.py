"""Variable-length numbers, seven bits a byte, lowest first: how the index and STRM v1 write deltas.

The one rule: `Cursor` never reads past its end and never takes more than 64 bits; anything else is a `CorruptError`.
"""

from typing import Final

from holdfast.log.batches import Buffer
from holdfast.vocabulary.errors import CorruptError

_BITS_MAX: Final = 64
_MASK: Final = 2**64 - 1


def put_uvarint(out: bytearray, value: int) -> None:
    """Append a number of 0 to 2^64 - 1."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def put_varint(out: bytearray, value: int) -> None:
    """Append a signed number, zigzag: 0, -1, 1, -2 … become 0, 1, 2, 3 …, modulo 2^64."""
    value = (value + 2**63 & _MASK) - 2**63
    put_uvarint(out, (value << 1 ^ value >> 63) & _MASK)


class Cursor:
    """Reads numbers and bytes one after another; `what` names the bytes in errors."""

    def __init__(self, data: Buffer, what: str) -> None:
        self._data, self._what = memoryview(data), what
        self.at = 0

    @property
    def left(self) -> int:
        """How many bytes are not read yet."""
        return len(self._data) - self.at

    def uvarint(self) -> int:
        total = shift = 0
        while True:
            if not self.left:
                raise CorruptError(self._what, f"a number is cut at byte {self.at}")
            byte = self._data[self.at]
            self.at += 1
            total |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= _BITS_MAX:
                break
        if byte > 0x7F or total > _MASK:
            raise CorruptError(self._what, f"a number before byte {self.at} has more than 64 bits")
        return total

    def varint(self) -> int:
        value = self.uvarint()
        return value >> 1 ^ -(value & 1)

    def take(self, size_bytes: int) -> memoryview:
        """The next bytes, all of them or an error."""
        if size_bytes > self.left:
            raise CorruptError(self._what, f"{size_bytes} bytes announced at byte {self.at}, {self.left} are left")
        taken = self._data[self.at : self.at + size_bytes]
        self.at += size_bytes
        return taken
