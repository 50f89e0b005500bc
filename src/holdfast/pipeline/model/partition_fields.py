"""Partition fields of an Iceberg table as text: `country`, `day(at)`, `truncate(4, name)`. No I/O.

The one rule: only transforms that keep the order. The value of a partition is derived from the least and greatest value in a file,
which `bucket` does not allow.
"""

import re
from dataclasses import dataclass
from typing import Final

from holdfast.vocabulary.errors import InvalidError

TIME_TRANSFORMS: Final = ("year", "month", "day", "hour")
ALLOWED: Final = "a column, year(c), month(c), day(c), hour(c) or truncate(width, c)"

_FIELD: Final = re.compile(r"(?:(year|month|day|hour)\((.+)\)|truncate\((\d{1,6}), *(.+)\)|([^()]+))", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A column and how its values are grouped: `identity`, one of `TIME_TRANSFORMS`, or `truncate` to `width`."""

    column: str
    transform: str = "identity"
    width: int = 0

    @property
    def name(self) -> str:
        """The name of the field in the table's spec."""
        return self.column if self.transform == "identity" else f"{self.column}_{self.transform}"

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        return f"truncate({self.width}, {self.column})" if self.width else f"{self.transform}({self.column})"


def parse_partition_field(text: str) -> PartitionField:
    """`InvalidError` if it is none."""
    found = _FIELD.fullmatch(text.strip())
    if found is None or (found[3] is not None and int(found[3]) == 0):
        raise InvalidError("sink.partitionBy", text[:100], ALLOWED)
    if found[1]:
        return PartitionField(found[2].strip(), found[1])
    if found[3]:
        return PartitionField(found[4].strip(), "truncate", int(found[3]))
    return PartitionField(found[5].strip())
