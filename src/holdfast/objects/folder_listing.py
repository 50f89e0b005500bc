"""Folder listing: a tree of folders as keys in order.

A folder's keys all start with its name and a slash, so sorting its name with that slash among its siblings puts everything below it
in the right place: a tree is listed in key order by sorting one folder at a time, a page at a time.
"""

import heapq
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.objects.checks import check_key
from holdfast.vocabulary.errors import InvalidError

PAGE: Final = 20_000


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A file or a folder, by its key (a folder's without the slash)."""

    key: str
    is_folder: bool
    size_bytes: int = 0
    modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class FolderPage:
    """The next entries of a folder in key order. `last` is where the next page begins; None: there is none."""

    folder: str
    entries: Sequence[FolderEntry]
    last: str | None


def read_page(root: Path, folder: str, *, prefix: str, after: str, last: str = "") -> FolderPage:
    """The entries that come after `last` and may have keys with `prefix` after `after`: at most `PAGE` of them.

    A file system lists in no order, so each page reads all names and keeps the first ones: time for memory. Skips names that
    cannot be keys, and files removed meanwhile.
    """
    try:
        with os.scandir(root / folder) as found:
            orders = (order for each in found if (order := _order(folder, each, last)))
            chosen = heapq.nsmallest(PAGE, (order for order in orders if _may_follow(order, prefix, after)))
    except (FileNotFoundError, NotADirectoryError):
        return FolderPage(folder, (), None)
    entries = [entry for order in chosen if (entry := _entry(root, order)) is not None]
    return FolderPage(folder, entries, chosen[-1] if len(chosen) == PAGE else None)


def _order(folder: str, found: "os.DirEntry[str]", last: str) -> str:
    """An entry's sort key among its siblings; "" if it does not come after `last`, or cannot be a key."""
    key = f"{folder}/{found.name}" if folder else found.name
    if key + "/" <= last:
        return ""
    try:
        check_key(key)
        order = key + "/" if found.is_dir() else key
    except (InvalidError, FileNotFoundError):
        return ""
    return order if order > last else ""


def _entry(root: Path, order: str) -> FolderEntry | None:
    if order.endswith("/"):
        return FolderEntry(order[:-1], True)
    try:
        stat = (root / order).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FolderEntry(order, False, stat.st_size, stat.st_mtime_ns // 1_000_000)


def _may_follow(order: str, prefix: str, after: str) -> bool:
    """Whether the entry is, or may contain, a key with `prefix` that comes after `after`."""
    if not order.endswith("/"):
        return order.startswith(prefix) and order > after
    return (order.startswith(prefix) or prefix.startswith(order)) and (order > after or after.startswith(order))
