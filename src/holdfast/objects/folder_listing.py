"""Folder listing: a tree of folders as keys in order.

A folder's keys all start with its name and a slash, so sorting its name with that slash among its siblings puts everything below it
in the right place: a tree is listed in key order by sorting one folder at a time.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.objects.checks import check_key
from holdfast.vocabulary.errors import InvalidError


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A file or a folder, by its key (a folder's without the slash)."""

    key: str
    is_folder: bool
    size_bytes: int = 0
    modified_ms: int = 0

    @property
    def order(self) -> str:
        """Its sort key among its siblings."""
        return self.key + "/" if self.is_folder else self.key


def read_folder(root: Path, folder: str) -> Sequence[FolderEntry]:
    """The entries of a folder, in key order. Skips names that cannot be keys, and files removed meanwhile."""
    entries = []
    try:
        with os.scandir(root / folder) as found:
            for each in found:
                key = f"{folder}/{each.name}" if folder else each.name
                try:
                    check_key(key)
                    if each.is_dir():
                        entries.append(FolderEntry(key, True))
                    else:
                        stat = each.stat()
                        entries.append(FolderEntry(key, False, stat.st_size, stat.st_mtime_ns // 1_000_000))
                except (InvalidError, FileNotFoundError):
                    continue
    except (FileNotFoundError, NotADirectoryError):
        return ()
    entries.sort(key=lambda entry: entry.order)
    return entries


def may_follow(entry: FolderEntry, prefix: str, after: str) -> bool:
    """Whether the entry is, or may contain, a key with `prefix` that comes after `after`."""
    if not entry.is_folder:
        return entry.key.startswith(prefix) and entry.key > after
    inside = entry.order
    return (inside.startswith(prefix) or prefix.startswith(inside)) and (inside > after or after.startswith(inside))
