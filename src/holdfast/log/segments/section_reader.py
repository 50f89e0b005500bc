"""Reading numbers and bytes one after another, as the index and STRM v1 hold them.

The one rule: never past the end; a number of more than 64 bits or cut off is a `CorruptError`.
"""

from holdfast.log.batches import Buffer
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.varint import VarintError, read_uvarint, unzigzag


class SectionReader:
    """Reads numbers and bytes one after another; `what` names the bytes in errors."""

    def __init__(self, data: Buffer, what: str) -> None:
        self.data, self._what = memoryview(data), what
        self.at = 0

    @property
    def left(self) -> int:
        """How many bytes are not read yet."""
        return len(self.data) - self.at

    def uvarint(self) -> int:
        try:
            value, self.at = read_uvarint(self.data, self.at, len(self.data))
        except VarintError as error:
            found = "has more than 64 bits" if error.overflow else "is cut off"
            raise CorruptError(self._what, f"a number before byte {error.at} {found}") from None
        return value

    def varint(self) -> int:
        return unzigzag(self.uvarint())

    def take(self, size_bytes: int) -> memoryview:
        """The next bytes, all of them or an error."""
        if size_bytes > self.left:
            raise CorruptError(self._what, f"{size_bytes} bytes announced at byte {self.at}, {self.left} are left")
        taken = self.data[self.at : self.at + size_bytes]
        self.at += size_bytes
        return taken
