"""Users, API keys and ACLs as this process sees them: mirrors of the store, slightly behind it.

The one rule: `version` changes with everything a decision may depend on, so that a decision is valid while it is the same. A change
counts here as soon as the store's watch has brought it.
"""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, Final

from holdfast.contracts.store import Store
from holdfast.kernel.mirror import OPENING_ATTEMPTS, Mirror, open_mirror
from holdfast.security.acls import Acl
from holdfast.security.api_keys import ApiKey
from holdfast.security.authorizer import Authorizer
from holdfast.security.cluster_secret import NODE
from holdfast.security.key_store import KEYS, ApiKeyStore, key_key, read_key
from holdfast.security.principals import Principal
from holdfast.security.store import ACLS, USERS, SecurityStore, User, read_acls, read_user, user_key
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_SEEN_WITHIN_MS: Final = 2_000


class AccessControl:
    """What the mirrors show, and the store behind them."""

    def __init__(
        self,
        acls: Mirror[tuple[Acl, ...]],
        users: Mirror[User],
        keys: Mirror[ApiKey],
        super_users: Collection[Principal],
        *,
        store: SecurityStore,
        key_store: ApiKeyStore,
        clock: Clock,
        decoy_secret: bytes,
    ) -> None:
        self.decoy_secret = decoy_secret  # the cluster's: see `SecurityStore.decoy_secret`
        self._acls, self._users, self._keys, self._clock = acls, users, keys, clock
        self.super_users, self.store, self.key_store = frozenset({NODE, *super_users}), store, key_store
        self._authorizer, self._authorizer_at = Authorizer(), -1

    @property
    def version(self) -> int:
        """Grows with every change of an ACL, a user or a key."""
        return self._acls.version + self._users.version + self._keys.version

    @property
    def authorizer(self) -> Authorizer:
        """The decision function over the ACLs of now."""
        if self._authorizer_at != self._acls.version:
            listed = (acl for found in self._acls.items.values() for acl in found)
            self._authorizer = Authorizer(listed, self.super_users)
            self._authorizer_at = self._acls.version
        return self._authorizer

    def user(self, name: str) -> User | None:
        """Somebody who can log in."""
        return self._users.items.get(user_key(name))

    def key(self, prefix: str) -> ApiKey | None:
        """An API key."""
        return self._keys.items.get(key_key(prefix))

    @property
    def has_administrator(self) -> bool:
        """Whether somebody can administer this cluster: a super user, or anybody who was made before."""
        return self.super_users != {NODE} or bool(self._users.items) or bool(self._keys.items)

    async def acls_seen(self, version: int) -> None:
        """Return when a commit of ACLs counts here, or after a moment: other nodes may be behind as well."""
        await self._seen(self._acls, version)

    async def users_seen(self, version: int) -> None:
        """The same for users."""
        await self._seen(self._users, version)

    async def keys_seen(self, version: int) -> None:
        """The same for keys."""
        await self._seen(self._keys, version)

    async def _seen(self, mirror: "Mirror[Any]", version: int) -> None:
        until_ms = self._clock.boot_ms() + _SEEN_WITHIN_MS
        while mirror.version < version:
            left_ms = until_ms - self._clock.boot_ms()
            if left_ms <= 0:
                return
            await mirror.notify.wait_ms(self._clock, left_ms)


@asynccontextmanager
async def watching_access_control(
    store: Store, *, super_users: Collection[Principal], clock: Clock, random: Random
) -> AsyncIterator[AccessControl]:
    """Users, keys and ACLs for the body. `UnavailableError`: the store does not answer; once open, it is waited for."""
    attempts = OPENING_ATTEMPTS
    async with (
        open_mirror(store, ACLS, read_acls, clock=clock, random=random, opening_attempts=attempts) as acls,
        open_mirror(store, USERS, read_user, clock=clock, random=random, opening_attempts=attempts) as users,
        open_mirror(store, KEYS, read_key, clock=clock, random=random, opening_attempts=attempts) as keys,
    ):
        administered = SecurityStore(store, clock=clock, random=random)
        key_store = ApiKeyStore(store, clock=clock, random=random)
        yield AccessControl(
            acls,
            users,
            keys,
            super_users,
            store=administered,
            key_store=key_store,
            clock=clock,
            decoy_secret=await administered.decoy_secret(),
        )
