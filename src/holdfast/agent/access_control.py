"""Users and ACLs as this process sees them: mirrors of the store, slightly behind it.

The one rule: `version` changes with everything a decision may depend on, so that a decision is valid while it is the same. A change
counts here as soon as the store's watch has brought it.
"""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, Final

from holdfast.contracts.store import Store
from holdfast.kernel.mirror import OPENING_ATTEMPTS, Mirror, open_mirror
from holdfast.security.acls import Acl
from holdfast.security.authorizer import Authorizer
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
        super_users: Collection[Principal],
        *,
        store: SecurityStore,
        clock: Clock,
    ) -> None:
        self._acls, self._users, self._clock = acls, users, clock
        self.super_users, self.store = frozenset(super_users), store
        self._authorizer, self._authorizer_at = Authorizer(), -1

    @property
    def version(self) -> int:
        """Grows with every change of an ACL or a user."""
        return self._acls.version + self._users.version

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

    async def acls_seen(self, version: int) -> None:
        """Return when a commit of ACLs counts here, or after a moment: other nodes may be behind as well."""
        await self._seen(self._acls, version)

    async def users_seen(self, version: int) -> None:
        """The same for users."""
        await self._seen(self._users, version)

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
    """Users and ACLs for the body. `UnavailableError`: the store does not answer; once open, it is waited for."""
    attempts = OPENING_ATTEMPTS
    async with (
        open_mirror(store, ACLS, read_acls, clock=clock, random=random, opening_attempts=attempts) as acls,
        open_mirror(store, USERS, read_user, clock=clock, random=random, opening_attempts=attempts) as users,
    ):
        administered = SecurityStore(store, clock=clock, random=random)
        yield AccessControl(acls, users, super_users, store=administered, clock=clock)
