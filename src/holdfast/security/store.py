"""ACLs and users in the store: how they are kept, and how they are changed.

    security/acl/{type}/{pattern}/{name}   [{"principal", "host", "operation", "permission"}]   the ACLs of one resource pattern
    security/user/{name}                   {"credentials": {mechanism: {"salt", …}}}            what logs a user in
    security/decoys                        a secret                                             challenges of unknown users

Names are percent-encoded. The one rule: every change is a compare-and-swap of one of these keys, so that two administrators lose
nothing of each other's; what spans several resources is done one after the other, and may be repeated.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from holdfast.contracts.compare_and_swap import Swap, compare_and_swap
from holdfast.contracts.store import Delete, Entry, Put, Store
from holdfast.contracts.validation import prefix_end
from holdfast.security.acls import (
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    by_resource,
    canonical_host,
    check_acl,
)
from holdfast.security.principals import Principal, check_user_name
from holdfast.security.scram import ScramCredential, ScramMechanism
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random

SECURITY: Final = "security/"
ACLS: Final = SECURITY + "acl/"
USERS: Final = SECURITY + "user/"
RESERVED: Final = "__holdfast_"
_DECOYS: Final = SECURITY + "decoys"
_ACLS_PER_RESOURCE_MAX: Final = 1_000


class _StoredAcl(msgspec.Struct):
    principal: str
    operation: Operation
    permission: Permission
    host: str


class _StoredCredential(msgspec.Struct):
    salt: bytes  # base64 in JSON, as the other bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class _StoredUser(msgspec.Struct):
    credentials: dict[ScramMechanism, _StoredCredential]


_read_acls: Final = msgspec.json.Decoder(list[_StoredAcl])
_read_user: Final = msgspec.json.Decoder(_StoredUser)


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who can log in. `version`: of the commit that set the credentials."""

    name: str
    credentials: tuple[ScramCredential, ...]
    version: int = 0

    def credential(self, mechanism: ScramMechanism) -> ScramCredential | None:
        """What this mechanism checks."""
        return next((each for each in self.credentials if each.mechanism is mechanism), None)


def acl_key(resource: ResourcePattern) -> str:
    """The ACLs of a resource pattern."""
    return f"{ACLS}{resource.type}/{resource.pattern}/{quote(resource.name, safe='')}"


def user_key(name: str) -> str:
    """A user."""
    return USERS + quote(name, safe="")


def read_acls(entry: Entry) -> tuple[Acl, ...]:
    """The ACLs of one key."""
    kind, pattern, name = entry.key.removeprefix(ACLS).split("/")
    resource = ResourcePattern(ResourceType(kind), unquote(name), PatternType(pattern))
    return tuple(
        Acl(resource, Principal.parse("principal", each.principal), each.operation, each.permission, each.host)
        for each in _read_acls.decode(entry.value)
    )


def read_user(entry: Entry) -> User:
    """The user of one key."""
    stored = _read_user.decode(entry.value).credentials
    credentials = (
        ScramCredential(mechanism, each.salt, each.stored_key, each.server_key, each.iterations)
        for mechanism, each in stored.items()
    )
    return User(unquote(entry.key.removeprefix(USERS)), tuple(credentials), entry.version)


class UnknownUserError(InvalidError):
    """Nobody has this name."""

    def __init__(self, name: str) -> None:
        super().__init__("user", name, "a user that exists")
        self.args = (name,)

    def __str__(self) -> str:
        return f"user {self.args[0][:300]!r} does not exist"


class SecurityStore:
    """Users and ACLs of a cluster, read and changed."""

    def __init__(self, store: Store, *, clock: Clock, random: Random) -> None:
        self._store, self._clock, self._random = store, clock, random

    async def acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        """The ACLs that a filter accepts, or all, sorted."""
        found = await self._store.scan(ACLS, prefix_end(ACLS))
        listed = [acl for entry in found.entries for acl in read_acls(entry)]
        return sorted(acl for acl in listed if wanted is None or wanted.accepts(acl))

    async def create_acls(self, acls: Iterable[Acl]) -> int:
        """Add ACLs; those that exist stay as they are. The version from which on all of them hold; 0: they did before."""
        wanted = by_resource(replace(acl, host=canonical_host(acl.host)) for acl in acls)
        for acl in (each for listed in wanted.values() for each in listed):
            check_acl(acl)
        version = 0
        for resource, added in wanted.items():
            version = max(version, await self._create(resource, added))
        return version

    async def delete_acls(self, wanted: AclFilter) -> tuple[list[Acl], int]:
        """Delete the ACLs that a filter accepts: which they were, and the version from which on they are gone."""
        gone: list[Acl] = []
        version = 0
        for resource in by_resource(await self.acls(wanted)):
            deleted, committed = await self._delete(resource, wanted)
            gone += deleted
            version = max(version, committed)
        return sorted(gone), version

    async def users(self) -> list[User]:
        """Everybody who can log in, by name."""
        found = await self._store.scan(USERS, prefix_end(USERS))
        return sorted((read_user(entry) for entry in found.entries), key=lambda user: user.name)

    async def set_credentials(
        self, name: str, credentials: Sequence[ScramCredential], *, create: bool = False, replace: bool = False
    ) -> int:
        """Set credentials of a user, who need not exist; those of other mechanisms stay, unless all are to be replaced.

        The version from which on they count. With `create`, `InvalidError` if the user exists.
        """
        check_new_user_name(name)

        async def decide(entry: Entry | None) -> Swap[None]:
            if entry is not None and create:
                raise InvalidError("name of a new user", name, "a name that is not taken")
            kept = read_user(entry).credentials if entry is not None and not replace else ()
            return Swap(None, [user_put(name, (*kept, *credentials))])

        return (await compare_and_swap(self._store, user_key(name), decide, clock=self._clock, random=self._random))[1]

    async def delete_credentials(self, name: str, mechanisms: Collection[ScramMechanism] | None = None) -> int | None:
        """Delete a user, or its credentials of these mechanisms. The version from which on they are gone; None: there are none."""

        async def decide(entry: Entry | None) -> Swap[bool]:
            had = {each.mechanism: each for each in read_user(entry).credentials} if entry is not None else {}
            kept = {} if mechanisms is None else {key: each for key, each in had.items() if key not in mechanisms}
            if entry is None or (mechanisms is not None and len(kept) == len(had)):
                return Swap(False)
            key = user_key(name)
            return Swap(True, [Put(key, _encoded_user(kept)) if kept else Delete(key)])

        deleted, version = await compare_and_swap(
            self._store, user_key(name), decide, clock=self._clock, random=self._random
        )
        return version if deleted else None

    async def decoy_secret(self) -> bytes:
        """What challenges of unknown users are made of: the same on every node, or asking two of them would tell who exists."""
        drawn = msgspec.json.encode(self._random.token() + self._random.token())

        async def decide(entry: Entry | None) -> Swap[bytes]:
            return Swap(entry.value) if entry is not None else Swap(drawn, [Put(_DECOYS, drawn)])

        return (await compare_and_swap(self._store, _DECOYS, decide, clock=self._clock, random=self._random))[0]

    async def _create(self, resource: ResourcePattern, added: Sequence[Acl]) -> int:
        key = acl_key(resource)

        async def decide(entry: Entry | None) -> Swap[None]:
            before = dict.fromkeys(read_acls(entry) if entry is not None else ())
            after = {**before, **dict.fromkeys(added)}
            if len(after) > _ACLS_PER_RESOURCE_MAX:
                raise InvalidError(f"ACLs of {resource.name}", len(after), f"at most {_ACLS_PER_RESOURCE_MAX}")
            return Swap(None, [acls_put(resource, after)] if len(after) > len(before) else ())

        return (await compare_and_swap(self._store, key, decide, clock=self._clock, random=self._random))[1]

    async def _delete(self, resource: ResourcePattern, wanted: AclFilter) -> tuple[list[Acl], int]:
        key = acl_key(resource)

        async def decide(entry: Entry | None) -> Swap[list[Acl]]:
            before = read_acls(entry) if entry is not None else ()
            gone = [acl for acl in before if wanted.accepts(acl)]
            after = [acl for acl in before if acl not in gone]
            if not gone:
                return Swap([])
            return Swap(gone, [acls_put(resource, after) if after else Delete(key)])

        return await compare_and_swap(self._store, key, decide, clock=self._clock, random=self._random)


def acls_put(resource: ResourcePattern, acls: Iterable[Acl]) -> Put:
    """These and no other ACLs of a resource pattern."""
    stored = [_StoredAcl(str(acl.principal), acl.operation, acl.permission, acl.host) for acl in sorted(set(acls))]
    return Put(acl_key(resource), msgspec.json.encode(stored))


def user_put(name: str, credentials: Iterable[ScramCredential]) -> Put:
    """A user with these credentials, the last one of each mechanism."""
    check_new_user_name(name)
    return Put(user_key(name), _encoded_user({each.mechanism: each for each in credentials}))


def check_new_user_name(name: str) -> None:
    """Refuse names that cannot be somebody's."""
    check_user_name("user name", name)
    if name == WILDCARD:
        raise InvalidError("user name", name, "a name: User:* means everybody")
    if name.startswith(RESERVED):
        raise InvalidError("user name", name, f"a name that does not begin with {RESERVED}")


def _encoded_user(credentials: dict[ScramMechanism, ScramCredential]) -> bytes:
    stored = {
        mechanism: _StoredCredential(each.salt, each.stored_key, each.server_key, each.iterations)
        for mechanism, each in sorted(credentials.items())
    }
    return msgspec.json.encode(_StoredUser(stored))
