"""Listings in pages: a page begins after the last name of the one before, whatever was added or removed meanwhile. Pure."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from holdfast.vocabulary.errors import InvalidError

T = TypeVar("T")

PAGE_SIZE: Final = 1_000
PAGE_SIZE_MAX: Final = 10_000


class PageRequest(Protocol):
    """The fields that every listing has."""

    page_size: int
    page_token: str


class Page(NamedTuple, Generic[T]):
    """Items, and the token of the next page; empty: there is none."""

    items: Sequence[T]
    next_page_token: str


def page_of(items: Sequence[T], name_of: Callable[[T], str], asked: PageRequest) -> Page[T]:
    """One page of items that are in the order of their names."""
    if not 0 <= asked.page_size <= PAGE_SIZE_MAX:
        raise InvalidError("page_size", asked.page_size, f"0 to {PAGE_SIZE_MAX}")
    first = bisect_right(items, asked.page_token, key=name_of) if asked.page_token else 0
    chosen = items[first : first + (asked.page_size or PAGE_SIZE)]
    more = first + len(chosen) < len(items)
    return Page(chosen, name_of(chosen[-1]) if more and chosen else "")
