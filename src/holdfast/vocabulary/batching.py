"""What is many, a batch at a time."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def in_batches(items: Iterable[T], count_max: int) -> Iterator[list[T]]:
    """The items in lists of at most `count_max`: `itertools.batched` of Python 3.12."""
    left = iter(items)
    while batch := list(islice(left, count_max)):
        yield batch
