"""A cluster that moves from one store and object storage to another: who may serve meanwhile, and afterwards.

    at the source   cluster/moved       `MovedRecord`: where the cluster went; from this commit on no member can register
    at the target   cluster/migration   `MigrationRecord`: whose copy this is and how far it is; `finished` in the commit that gives
                                        the target its identity

The one rule: two stores never serve one cluster. The source is closed before the first byte is copied, the target opens in the
commit that finishes the copy, and only an operator opens the source again (`holdfast objects adopt --force`).
`app.migration` does the moving.
"""

from typing import Final

import msgspec

from holdfast.contracts.store import Entry, Store
from holdfast.contracts.validation import prefix_end
from holdfast.vocabulary.errors import HoldfastError, UsageError

CLUSTER_KEYS: Final = "cluster/"
MOVED_KEY: Final = "cluster/moved"
MIGRATION_KEY: Final = "cluster/migration"


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """A store and its objects, as URLs without secrets."""

    store: str
    objects: str

    def __str__(self) -> str:
        return f"--store '{self.store}' --objects '{self.objects}'"


class CopyProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What is copied and verified: everything up to and including the key `after`. `digest` is a hash chain over all of it."""

    after: str = ""
    count: int = 0
    bytes: int = 0
    digest: str = ""
    complete: bool = False


class MovedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The value of `cluster/moved`. `token` is that of the migration."""

    token: str
    to: Location
    at_ms: int
    finished: bool = False


class MigrationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The value of `cluster/migration`. `epoch` counts the processes that took it up: an earlier one that still runs is fenced.

    `closed_at`: the source's version from which on nobody was to write there; 0: it is not closed yet.
    """

    token: str
    epoch: int
    cluster: str
    origin: Location
    at_ms: int
    closed_at: int = 0
    objects: CopyProgress = CopyProgress()
    entries: CopyProgress = CopyProgress()
    finished_at_ms: int = 0

    @property
    def finished(self) -> bool:
        """Whether the cluster lives here now."""
        return self.finished_at_ms > 0


class ClusterMovedError(UsageError):
    """The cluster of this store lives elsewhere, or has not arrived here yet. Nothing was changed."""

    def __init__(self, *, moved: MovedRecord | None, migration: MigrationRecord | None) -> None:
        HoldfastError.__init__(self, moved, migration)
        self.moved, self.migration = moved, migration
        self.what, self.given, self.allowed = str(self), None, ""

    def __reduce__(self) -> tuple[object, ...]:
        return _cluster_moved_error, (self.moved, self.migration)

    def __str__(self) -> str:
        if self.moved is not None and self.moved.finished:
            return (
                f"the cluster of this store has moved: start servers with {self.moved.to}. This store is as it was before the "
                "move, and must not serve beside the other one. Only if that one is lost for good, `holdfast objects adopt "
                "--force` makes this store the cluster again, without what was acknowledged there"
            )
        if self.moved is not None:
            return (
                f"the cluster of this store is being moved: run `holdfast migrate` again to finish, then start servers with "
                f"{self.moved.to}; or give the move up with `holdfast objects adopt --force` and serve here"
            )
        assert self.migration is not None
        return (
            f"cluster {self.migration.cluster} is being moved here from {self.migration.origin}, and not all of it has arrived: "
            "run `holdfast migrate` again to finish"
        )


def _cluster_moved_error(moved: MovedRecord | None, migration: MigrationRecord | None) -> ClusterMovedError:
    return ClusterMovedError(moved=moved, migration=migration)


def decode_moved(entry: Entry) -> MovedRecord:
    """The record at the source."""
    return msgspec.json.decode(entry.value, type=MovedRecord)


def decode_migration(entry: Entry) -> MigrationRecord:
    """The record at the target."""
    return msgspec.json.decode(entry.value, type=MigrationRecord)


async def check_not_moved(store: Store, *, moved_allowed: bool = False) -> None:
    """`ClusterMovedError` if the store's cluster lives elsewhere (unless `moved_allowed`), or has not arrived yet."""
    found = {entry.key: entry for entry in (await store.scan(CLUSTER_KEYS, prefix_end(CLUSTER_KEYS))).entries}
    if (entry := found.get(MOVED_KEY)) is not None and not moved_allowed:
        raise ClusterMovedError(moved=decode_moved(entry), migration=None)
    if (entry := found.get(MIGRATION_KEY)) is not None and not decode_migration(entry).finished:
        raise ClusterMovedError(moved=None, migration=decode_migration(entry))
