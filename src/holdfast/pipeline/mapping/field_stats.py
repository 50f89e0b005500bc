"""Statistics of a sample, field by field: presence, kinds, ranges, examples.

The one rule: only facts, and the same for the same records in the same order; `type_inference` draws the conclusions.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.pipeline.mapping.scalars import DATE32_DAYS, DATE_DAYS_MAX, DATETIME64_S
from holdfast.pipeline.mapping.text_scalars import ConversionError, ipv4_text, ipv6_text
from holdfast.pipeline.model.timestamps import NS_PER_S, S_PER_DAY, fraction_digits, parse_date_days, parse_iso_ns

EXAMPLES_MAX: Final = 3
DISTINCT_MAX: Final = 1_000
KEYS_MAX: Final = 2_000
DEPTH_MAX: Final = 16

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_ADDRESS: Final = re.compile(r"[0-9a-fA-F.:]{2,45}")
_FIXED: Final = re.compile(r"-?(0|[1-9][0-9]{0,30})\.([0-9]{1,18})")


@dataclass(slots=True)
class FieldStats:
    """Statistics of one field, of the root, or of the elements of an array."""

    times: int = 0
    """Occurrences, null included."""
    nulls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Of values: bool, int, float, array, object; of texts: datetime, date, date32, uuid, decimal, ipv4, ipv6, text."""
    least: int | None = None
    most: int | None = None
    digits_before: int = 0
    scales: set[int] = field(default_factory=set)
    fractions: int = 0
    """The most fractional digits of a time."""
    latest_s: int = 0
    """The latest time."""
    distinct: set[Any] = field(default_factory=set)
    """Texts and whole numbers, up to `DISTINCT_MAX`."""
    examples: list[Any] = field(default_factory=list)
    first: dict[str, Any] = field(default_factory=dict)
    """The first value of each kind."""
    fields: "dict[str, FieldStats]" = field(default_factory=dict)
    elements: "FieldStats | None" = None

    @property
    def values(self) -> int:
        """Occurrences that are not null."""
        return self.times - self.nulls

    def add(self, value: Any, depth: int = 0) -> None:
        """Add a value."""
        self.times += 1
        if value is None:
            self.nulls += 1
            return
        if len(self.examples) < EXAMPLES_MAX and value not in self.examples:
            self.examples.append(value)
        kind = self._kind(value)
        self.kinds[kind] += 1
        self.first.setdefault(kind, value)
        match value:
            case bool():
                pass
            case int():
                self._count(value)
                self.least = value if self.least is None else min(self.least, value)
                self.most = value if self.most is None else max(self.most, value)
            case str():
                self._count(value)
            case dict():
                self._object(value, depth)
            case list():
                self._array(value, depth)

    def _kind(self, value: Any) -> str:
        match value:
            case bool():
                return "bool"
            case int():
                return "int"
            case float():
                return "float"
            case str():
                return self._text(value)
        return "object" if isinstance(value, dict) else "array"

    def _count(self, value: str | int) -> None:
        if len(self.distinct) <= DISTINCT_MAX:
            self.distinct.add(value)

    def _text(self, text: str) -> str:
        if len(text) == 36 and _UUID.fullmatch(text):
            return "uuid"
        if (days := parse_date_days(text)) is not None:
            self.latest_s = max(self.latest_s, days * S_PER_DAY)
            if 0 <= days <= DATE_DAYS_MAX:
                return "date"
            return "date32" if DATE32_DAYS[0] <= days <= DATE32_DAYS[1] else "text"
        if (ns := parse_iso_ns(text)) is not None:
            self.fractions = max(self.fractions, fraction_digits(text))
            self.latest_s = max(self.latest_s, ns // NS_PER_S)
            return "datetime" if DATETIME64_S[0] <= ns // NS_PER_S <= DATETIME64_S[1] else "text"
        if fixed := _FIXED.fullmatch(text):
            self.digits_before = max(self.digits_before, len(fixed[1]))
            self.scales.add(len(fixed[2]))
            return "decimal"
        return _address(text)

    def _object(self, value: dict[str, Any], depth: int) -> None:
        if depth >= DEPTH_MAX:
            return
        for key, inner in value.items():
            seen = self.fields.get(key)
            if seen is None:
                if len(self.fields) >= KEYS_MAX:
                    continue
                seen = self.fields[key] = FieldStats()
            seen.add(inner, depth + 1)

    def _array(self, value: list[Any], depth: int) -> None:
        if self.elements is None:
            self.elements = FieldStats()
        if depth < DEPTH_MAX:
            for element in value:
                self.elements.add(element, depth + 1)


def _address(text: str) -> str:
    kind, convert = ("ipv6", ipv6_text) if ":" in text else ("ipv4", ipv4_text)
    if not _ADDRESS.fullmatch(text):
        return "text"
    try:
        convert(text)
    except ConversionError:
        return "text"
    return kind


def collect_stats(values: Iterable[Any]) -> FieldStats:
    """Statistics of decoded values."""
    root = FieldStats()
    for value in values:
        root.add(value)
    return root
