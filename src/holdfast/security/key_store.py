"""API keys in the store: made, listed, revoked, and when each was used last.

    security/key/{prefix}        {"name", "principal", "scopes", "hash", "created_at_ms", "expires_at_ms"}
    security/key-used/{prefix}   {"at_ms"}

The one rule: a key that is revoked is gone, and its prefix is never made again. Uses are apart from
keys: writing one changes nothing that a decision depends on.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.compare_and_swap import Swap, compare_and_swap
from holdfast.contracts.store import Absent, Committed, Delete, Entry, Put, Store
from holdfast.contracts.validation import prefix_end
from holdfast.security.api_keys import ApiKey, NewKey, Scope, new_key
from holdfast.security.principals import Principal
from holdfast.security.store import SECURITY
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random

KEYS: Final = SECURITY + "key/"
USED: Final = SECURITY + "key-used/"


class _StoredKey(msgspec.Struct):
    name: str
    principal: str
    scopes: list[Scope]
    hash: str
    created_at_ms: int
    expires_at_ms: int = 0


class _Used(msgspec.Struct):
    at_ms: int


_read_key: Final = msgspec.json.Decoder(_StoredKey)
_read_used: Final = msgspec.json.Decoder(_Used)


def key_key(prefix: str) -> str:
    """Where a key is stored."""
    return KEYS + prefix


def read_key(entry: Entry) -> ApiKey:
    """The key of an entry."""
    stored = _read_key.decode(entry.value)
    return ApiKey(
        prefix=entry.key.removeprefix(KEYS),
        name=stored.name,
        principal=Principal.parse("principal", stored.principal),
        scopes=frozenset(stored.scopes),
        hash=stored.hash,
        created_at_ms=stored.created_at_ms,
        expires_at_ms=stored.expires_at_ms,
    )


class ApiKeyStore:
    """The keys of a cluster."""

    def __init__(self, store: Store, *, clock: Clock, random: Random) -> None:
        self._store, self._clock, self._random = store, clock, random

    async def create(
        self, name: str, principal: Principal, scopes: frozenset[Scope], *, expires_at_ms: int = 0
    ) -> tuple[NewKey, int]:
        """Make a key: with its secret, which is kept nowhere, and the version from which on it counts."""
        made = await asyncio.to_thread(
            new_key,
            name,
            principal,
            scopes,
            now_ms=self._clock.now_ms(),
            expires_at_ms=expires_at_ms,
            random=self._random,
        )
        at = key_key(made.key.prefix)
        committed = await commit_resolved(
            self._store,
            clock=self._clock,
            random=self._random,
            require=[Absent(at)],
            apply=[Put(at, _encoded(made.key))],
        )
        if not isinstance(committed, Committed):
            return await self.create(name, principal, scopes, expires_at_ms=expires_at_ms)  # 48 bits met by chance
        return made, committed.version

    async def keys(self) -> list[ApiKey]:
        """All keys, the oldest first, with their last uses."""
        found = await self._store.scan(KEYS, prefix_end(KEYS))
        used = await self._store.scan(USED, prefix_end(USED))
        at_ms = {entry.key.removeprefix(USED): _read_used.decode(entry.value).at_ms for entry in used.entries}
        keys = (read_key(entry) for entry in found.entries)
        listed = (replace(key, last_used_at_ms=at_ms.get(key.prefix, 0)) for key in keys)
        return sorted(listed, key=lambda key: (key.created_at_ms, key.prefix))

    async def revoke(self, prefix: str) -> int:
        """Delete a key: the version from which on it is gone. `InvalidError`: there is none."""

        async def decide(entry: Entry | None) -> Swap[bool]:
            if entry is None:
                return Swap(False)
            return Swap(True, [Delete(key_key(prefix)), Delete(USED + prefix)])

        revoked, version = await compare_and_swap(
            self._store, key_key(prefix), decide, clock=self._clock, random=self._random
        )
        if not revoked:
            raise UnknownApiKeyError(prefix)
        return version

    async def record_uses(self, used_at_ms: Mapping[str, int]) -> None:
        """Write when keys were used, in one commit."""
        if used_at_ms:
            await self._store.commit(
                apply=[Put(USED + prefix, msgspec.json.encode(_Used(at_ms))) for prefix, at_ms in used_at_ms.items()]
            )


class UnknownApiKeyError(InvalidError):
    """No key has this prefix."""

    def __init__(self, prefix: str) -> None:
        super().__init__("key", prefix, "the prefix of a key")
        self.args = (prefix,)

    def __str__(self) -> str:
        return f"key {self.given!r} does not exist"


def _encoded(key: ApiKey) -> bytes:
    return msgspec.json.encode(
        _StoredKey(key.name, str(key.principal), sorted(key.scopes), key.hash, key.created_at_ms, key.expires_at_ms)
    )
