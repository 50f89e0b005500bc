"""A store whose values below some prefixes are sealed: what is written is encrypted, what is read is opened.

The one rule: a secret reaches the engine sealed, or, where no node has a master key, as before. Once a node with a key has sealed
anything, one without it neither reads nor writes there: it says which key it needs.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.forwarding_store import ForwardingStore
from holdfast.contracts.store import (
    AtVersion,
    Committed,
    Conflict,
    Entry,
    Operation,
    Put,
    Requirement,
    Scan,
    Store,
)
from holdfast.contracts.validation import prefix_end
from holdfast.security.master_keys import MasterKeys, MissingMasterKeyError, missing_key, sealed_with
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

SEAL_KEY: Final = "security-master-key"
"""Says that secrets are sealed, and with which key last."""
PLAIN: Final = "plain text"


class _Mark(msgspec.Struct, frozen=True):
    key: str


class SealedStore(ForwardingStore):
    """A store as its users see it. `keys` is None on a node without a master key. Nothing that is sealed is watched."""

    def __init__(self, store: Store, keys: MasterKeys | None, *, prefixes: tuple[str, ...], random: Random) -> None:
        super().__init__(store)
        self._keys, self._prefixes, self._random = keys, prefixes, random

    async def get(self, key: str) -> Entry | None:
        entry = await self._store.get(key)
        return None if entry is None else self._opened(entry)

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        found = await self._store.scan(start, end, limit=limit, reverse=reverse)
        return replace(found, entries=tuple(map(self._opened, found.entries)))

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        if not any(isinstance(each, Put) and each.key.startswith(self._prefixes) for each in apply):
            return await self._store.commit(require=require, apply=apply)
        if self._keys is None:
            await self._refuse_plain()
        return await self._store.commit(require=require, apply=[self._sealed(each) for each in apply])

    def _opened(self, entry: Entry) -> Entry:
        if not entry.key.startswith(self._prefixes):
            return entry
        if self._keys is None:
            if key := sealed_with(entry.value):
                raise missing_key(entry.key, key)
            return entry
        return replace(entry, value=self._keys.open(entry.key, entry.value))

    def _sealed(self, operation: Operation) -> Operation:
        if self._keys is None or not isinstance(operation, Put) or not operation.key.startswith(self._prefixes):
            return operation
        return replace(operation, value=self._keys.seal(operation.key, operation.value, self._random))

    async def _refuse_plain(self) -> None:
        marked = await self._store.get(SEAL_KEY)
        if marked is not None:
            needed = msgspec.json.decode(marked.value, type=_Mark).key
            reason = f"secrets are sealed with master key {needed} here: give it with --master-key-file"
            raise MissingMasterKeyError("secrets of pipelines", reason)


async def seal_stored(
    store: Store, keys: MasterKeys, *, prefixes: tuple[str, ...], clock: Clock, random: Random, rotate: bool
) -> int:
    """Seal what is stored in plain text, and with `rotate` what an older key has sealed; how many were changed.

    May be stopped and run again at any time: each value says how it is sealed. `MissingMasterKeyError`: a key is not here.
    """
    changed = 0
    await _mark(store, keys, clock=clock, random=random)
    for prefix in prefixes:
        for entry in (await store.scan(prefix, prefix_end(prefix))).entries:
            key = sealed_with(entry.value)
            if not key or (rotate and key != keys.current):
                changed += await _reseal(store, keys, entry, clock=clock, random=random)
    return changed


async def _reseal(store: Store, keys: MasterKeys, entry: Entry, *, clock: Clock, random: Random) -> bool:
    put = Put(entry.key, keys.seal(entry.key, keys.open(entry.key, entry.value), random))
    required = [AtVersion(entry.key, entry.version)]
    outcome = await commit_resolved(store, clock=clock, random=random, require=required, apply=[put])
    return isinstance(outcome, Committed)  # otherwise whoever changed it has sealed it, or deleted it


async def _mark(store: Store, keys: MasterKeys, *, clock: Clock, random: Random) -> None:
    marked = await store.get(SEAL_KEY)
    value = msgspec.json.encode(_Mark(key=keys.current))
    if marked is None or msgspec.json.decode(marked.value, type=_Mark).key != keys.current:
        await commit_resolved(store, clock=clock, random=random, apply=[Put(SEAL_KEY, value)])


async def count_sealed(store: Store, prefixes: tuple[str, ...]) -> Counter[str]:
    """How many values are sealed with which key, by fingerprint; `PLAIN` are not."""
    found = Counter[str]()
    for prefix in prefixes:
        for entry in (await store.scan(prefix, prefix_end(prefix))).entries:
            found[sealed_with(entry.value) or PLAIN] += 1
    return found
