"""Confirmation tokens: a destructive call names one that was asked for just before it, for exactly this.

    security-confirmation/{SHA-256 of the token}   {"action", "resource", "principal", "expiresAtMs"}

The one rule: a token is good once, for one action on one resource by who asked for it, on any node, until it expires. The store has
its hash alone. Using it is the commit that deletes it, so of two calls with one token, one is refused.
"""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import AtVersion, Conflict, Delete, Put, Store
from holdfast.contracts.validation import prefix_end
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, InvalidError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import check_between, check_one_of

CONFIRMATIONS: Final = "security-confirmation/"
ANYBODY: Final = "User:ANONYMOUS"
ALL: Final = "all"
_PENDING_MAX: Final = 1_000
_PENDING_OF_PRINCIPAL_MAX: Final = 50  # nobody keeps others from confirming
_RESOURCE_CHARS_MAX: Final = 300


class Action(StrEnum):
    """What can be confirmed."""

    DELETE_TOPIC = "topic.delete"
    DELETE_GROUP = "group.delete"
    RESET_GROUP = "group.reset"
    DELETE_PIPELINE = "pipeline.delete"
    DELETE_HEAP = "heap.delete"
    PURGE_HEAP = "heap.purge"
    DELETE_DEAD_LETTERS = "heap.dlq.delete"


ALWAYS: Final = frozenset({Action.DELETE_HEAP, Action.PURGE_HEAP, Action.DELETE_DEAD_LETTERS})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationSettings:
    """`required`: actions that need a token beside those that always do, separated by commas, or `all`.

    `ttl_ms`: how long a token is good.
    """

    required: str = ""
    ttl_ms: int = 120_000

    def __post_init__(self) -> None:
        check_between("ttl_ms", self.ttl_ms, 1_000, 3_600_000)
        for each in self._listed:
            check_one_of("required", each, (ALL, *Action))

    @property
    def _listed(self) -> tuple[str, ...]:
        return tuple(each.strip().lower() for each in self.required.split(",") if each.strip())

    def needs(self, action: Action) -> bool:
        """Whether an action needs a token."""
        return action in ALWAYS or action in self._listed or ALL in self._listed


class UnconfirmedError(HoldfastError):
    """A destructive call without `force` and a token that is good for it. Ask for a token, and call again."""

    def __init__(self, action: str, resource: str, reason: str) -> None:
        super().__init__(action, resource, reason)
        self.action, self.resource, self.reason = action, resource, reason

    def __str__(self) -> str:
        return f"{self.action} of {self.resource!r} is not confirmed: {self.reason}"


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A token, which is shown once."""

    token: str
    expires_at_ms: int


class _Pending(msgspec.Struct, frozen=True, rename="camel"):
    action: str
    resource: str
    principal: str
    expires_at_ms: int


class Confirmations:
    """The tokens of a cluster."""

    def __init__(
        self, store: Store, *, clock: Clock, random: Random, settings: ConfirmationSettings | None = None
    ) -> None:
        self.settings = settings or ConfirmationSettings()
        self._store, self._clock, self._random = store, clock, random

    async def create(self, action: str, resource: str, principal: str = ANYBODY) -> Confirmation:
        """A token for one action on one resource. `InvalidError`."""
        check_one_of("action", action, tuple(Action))
        if not 0 < len(resource) <= _RESOURCE_CHARS_MAX:
            raise InvalidError("resource", resource[:50], f"a name of 1 to {_RESOURCE_CHARS_MAX} characters")
        await self._check_room(principal)
        token = self._random.token() + self._random.token()
        expires_at_ms = self._clock.now_ms() + self.settings.ttl_ms
        pending = _Pending(action, resource, principal, expires_at_ms)
        put = Put(_key(token), msgspec.json.encode(pending))
        await commit_resolved(self._store, clock=self._clock, random=self._random, apply=[put])
        return Confirmation(token, expires_at_ms)

    async def check(self, action: Action, resource: str, *, force: bool, token: str, principal: str = ANYBODY) -> None:
        """Use the token up, if the action needs one. `UnconfirmedError`: it is not confirmed, and nothing may happen."""
        if not self.settings.needs(action):
            return
        if not force or not token:
            raise UnconfirmedError(action, resource, "force=true and a confirmation_token are needed")
        entry = await self._store.get(_key(token))
        if entry is None:
            raise UnconfirmedError(action, resource, "the token is unknown, or was used")
        pending = msgspec.json.decode(entry.value, type=_Pending)
        if (pending.action, pending.resource, pending.principal) != (action, resource, principal):
            raise UnconfirmedError(action, resource, "the token is for something else")
        used = await commit_resolved(
            self._store,
            clock=self._clock,
            random=self._random,
            require=[AtVersion(entry.key, entry.version)],
            apply=[Delete(entry.key)],
        )
        if isinstance(used, Conflict):
            raise UnconfirmedError(action, resource, "the token is unknown, or was used")
        if self._clock.now_ms() >= pending.expires_at_ms:
            raise UnconfirmedError(action, resource, "the token has expired")

    async def _check_room(self, principal: str) -> None:
        """Delete tokens that nobody has used in time. `InvalidError`: too many of them are still good."""
        scan = await self._store.scan(CONFIRMATIONS, prefix_end(CONFIRMATIONS), limit=_PENDING_MAX)
        now_ms = self._clock.now_ms()
        pending = [(entry, msgspec.json.decode(entry.value, type=_Pending)) for entry in scan.entries]
        expired = [entry for entry, each in pending if each.expires_at_ms <= now_ms]
        for entry in expired[:100]:
            require, apply = [AtVersion(entry.key, entry.version)], [Delete(entry.key)]
            await commit_resolved(self._store, clock=self._clock, random=self._random, require=require, apply=apply)
        own = sum(each.principal == principal and each.expires_at_ms > now_ms for _, each in pending)
        if own >= _PENDING_OF_PRINCIPAL_MAX:
            raise InvalidError("confirmations", own, f"fewer than {_PENDING_OF_PRINCIPAL_MAX} that are not used")
        if len(pending) - len(expired) >= _PENDING_MAX:
            raise InvalidError("confirmations", len(pending), f"fewer than {_PENDING_MAX} that are not used")


def _key(token: str) -> str:
    return CONFIRMATIONS + hashlib.sha256(token.encode()).hexdigest()
