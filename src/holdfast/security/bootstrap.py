"""The first administrator, by a token that is good for one use.

    security/bootstrap   {"digest", "used"}

The one rule: one commit marks the token as used, makes the user and gives the ACLs, and it requires that the token was not used: of
two who have it, one becomes administrator. Its digest is stored: it has 160 bits, so nobody finds it by trying.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.contracts.compare_and_swap import Swap, compare_and_swap, unchanged
from holdfast.contracts.store import Absent, Entry, Put, Requirement, Store
from holdfast.security.acls import CLUSTER_NAME, WILDCARD, Acl, Operation, ResourcePattern, ResourceType
from holdfast.security.identity import AuthenticationError
from holdfast.security.principals import Principal
from holdfast.security.scram import ScramCredential
from holdfast.security.store import SECURITY, acl_key, acls_put, read_acls, user_put
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random

BOOTSTRAP: Final = SECURITY + "bootstrap"
_TOKEN_CHARS_MIN: Final = 16
MARK: Final = "hfb_"


class _Stored(msgspec.Struct):
    digest: str
    used: bool = False


_read: Final = msgspec.json.Decoder(_Stored)


def check_token(token: str) -> str:
    """A token of a file, without its line end."""
    token = token.strip()
    if len(token) < _TOKEN_CHARS_MIN or not token.isprintable() or not token.isascii():
        raise InvalidError("bootstrap token", f"{len(token)} characters", f"at least {_TOKEN_CHARS_MIN}, ASCII")
    return token


def administrator_acls(principal: Principal) -> list[Acl]:
    """Everything on everything."""
    names = dict.fromkeys(ResourceType, WILDCARD) | {ResourceType.CLUSTER: CLUSTER_NAME}
    return [Acl(ResourcePattern(kind, name), principal, Operation.ALL) for kind, name in names.items()]


class BootstrapToken:
    """The token of a cluster."""

    def __init__(self, store: Store, *, clock: Clock, random: Random) -> None:
        self._store, self._clock, self._random = store, clock, random

    async def offer(self, given: str = "") -> str:
        """The token, if this call has made it valid: `given`, or one that is made up. Empty: there was one already.

        A given token takes the place of another that nobody has used.
        """
        token = check_token(given) if given else MARK + self._random.token() + self._random.token()
        digest = _digest(token)

        async def decide(entry: Entry | None) -> Swap[str]:
            stored = _read.decode(entry.value) if entry is not None else None
            if stored is not None and (stored.used or not given or stored.digest == digest):
                return Swap("")
            return Swap(token, [Put(BOOTSTRAP, msgspec.json.encode(_Stored(digest)))])

        return (await compare_and_swap(self._store, BOOTSTRAP, decide, clock=self._clock, random=self._random))[0]

    async def check(self, token: str) -> None:
        """Raise `AuthenticationError` unless the token could be used now."""
        _check(await self._store.get(BOOTSTRAP), _digest(token))

    async def use(self, token: str, name: str, credentials: Sequence[ScramCredential]) -> int:
        """Make the first administrator: the version from which on there is one. `AuthenticationError`: the token is not valid."""
        user = user_put(name, credentials)
        digest = _digest(token)

        async def decide(entry: Entry | None) -> Swap[None]:
            _check(entry, digest)
            if await self._store.get(user.key) is not None:
                raise InvalidError("name of a new user", name, "a name that is not taken")
            puts, unchanged_acls = await self._acls(administrator_acls(Principal(name)))
            used = Put(BOOTSTRAP, msgspec.json.encode(_Stored(digest, used=True)))
            return Swap(None, [used, user, *puts], [Absent(user.key), *unchanged_acls])

        return (await compare_and_swap(self._store, BOOTSTRAP, decide, clock=self._clock, random=self._random))[1]

    async def _acls(self, acls: Sequence[Acl]) -> tuple[list[Put], list[Requirement]]:
        puts: list[Put] = []
        required: list[Requirement] = []
        for acl in acls:
            key = acl_key(acl.resource)
            entry = await self._store.get(key)
            puts.append(acls_put(acl.resource, [*(read_acls(entry) if entry is not None else ()), acl]))
            required.append(unchanged(key, entry))
        return puts, required


def _check(entry: Entry | None, digest: str) -> None:
    stored = _read.decode(entry.value) if entry is not None else None
    if stored is None or not hmac.compare_digest(stored.digest, digest):
        raise AuthenticationError("wrong bootstrap token")
    if stored.used:
        raise AuthenticationError("the bootstrap token was used before")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
