"""A workload with self-describing records, and the verdict on the result: lost, duplicated, reordered.

The one rule: the verdict comes from the values alone, so that it holds for every client and across restarts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Item:
    """The `number`-th record of its key."""

    key: bytes
    value: bytes


def keyed(count: int, *, keys: int = 10, size: int = 40, start: int = 0) -> Iterator[Item]:
    """`count` records over `keys` keys, in turns; each value is `key:number:` and padding up to `size`."""
    for index in range(start, start + count):
        key = b"key-%04d" % (index % keys)
        yield Item(key, (b"%s:%08d:" % (key, index // keys)).ljust(size, b"."))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on a workload; all lists empty: every record once, in order."""

    lost: list[bytes] = field(default_factory=list)
    duplicated: list[bytes] = field(default_factory=list)
    reordered: list[bytes] = field(default_factory=list)
    unknown: list[bytes] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated or self.reordered or self.unknown)

    def __str__(self) -> str:
        told = [("lost", self.lost), ("duplicated", self.duplicated), ("reordered", self.reordered)]
        told.append(("unknown", self.unknown))
        return "; ".join(f"{len(values)} {name}, first {values[:3]}" for name, values in told if values) or "clean"


def judge(sent: Iterable[bytes], read: Sequence[bytes], *, maybe: Iterable[bytes] = ()) -> Verdict:
    """Compare what was acknowledged with what was read, in the order of reading (per partition).

    `maybe` are records whose outcome the producer does not know: they may be there, once, or not.
    """
    wanted, allowed = set(sent), set(maybe)
    counts = Counter(read)
    reordered: list[bytes] = []
    last: dict[bytes, bytes] = {}
    for value in read:
        key, _, _ = value.partition(b":")
        if value < last.get(key, b""):
            reordered.append(value)
        last[key] = value
    return Verdict(
        lost=sorted(wanted - counts.keys()),
        duplicated=sorted(value for value, times in counts.items() if times > 1),
        reordered=reordered,
        unknown=sorted(counts.keys() - wanted - allowed),
    )
