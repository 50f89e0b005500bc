"""Client quotas in the store.

    security/quota/{user}/{client id}   {"producer_byte_rate": …}         the limits of one entity
    security/quota/-/-/{ip}             {"connection_creation_rate": …}   those of an IP address

A name is `=` and the name percent-encoded, `*` for the default, `-` for none. The one rule: every change is a compare-and-swap of
one of these keys.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from holdfast.contracts.compare_and_swap import Swap, compare_and_swap
from holdfast.contracts.store import Delete, Entry, Put, Store
from holdfast.contracts.validation import prefix_end
from holdfast.security.client_quotas import DEFAULT, Limits, Quota, QuotaEntity, check_entity, check_limit, check_quota
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random

QUOTAS: Final = "security/quota/"
ENTITIES_MAX: Final = 10_000

_read_limits: Final = msgspec.json.Decoder(dict[Quota, float])


def quota_key(entity: QuotaEntity) -> str:
    """The limits of an entity."""
    names = (entity.user, entity.client_id) if entity.ip is None else (entity.user, entity.client_id, entity.ip)
    return QUOTAS + "/".join(map(_named, names))


def _named(name: str | None) -> str:
    if name is None:
        return "-"
    return "*" if name == DEFAULT else "=" + quote(name, safe="")


def _name(text: str) -> str | None:
    if text == "-":
        return None
    return DEFAULT if text == "*" else unquote(text.removeprefix("="))


def read_quota(entry: Entry) -> tuple[QuotaEntity, Limits]:
    """The entity of one key, and its limits."""
    names = map(_name, entry.key.removeprefix(QUOTAS).split("/"))
    return QuotaEntity(*names), _read_limits.decode(entry.value)


class QuotaStore:
    """Limits of a cluster, read and changed."""

    def __init__(self, store: Store, *, clock: Clock, random: Random) -> None:
        self._store, self._clock, self._random = store, clock, random

    async def quotas(self) -> dict[QuotaEntity, Limits]:
        """All limits."""
        found = await self._store.scan(QUOTAS, prefix_end(QUOTAS))
        return dict(read_quota(entry) for entry in found.entries)

    async def alter(
        self, entity: QuotaEntity, changes: Mapping[Quota, float | None], *, validate_only: bool = False
    ) -> int:
        """Set limits of an entity; None removes one. The version from which on they count; 0: nothing changed."""
        check_entity(entity)
        for quota, value in changes.items():
            if value is not None:
                check_quota(entity, quota)
                check_limit(quota, value)
        if validate_only:
            return 0
        key = quota_key(entity)

        async def decide(entry: Entry | None) -> Swap[None]:
            before = dict(read_quota(entry)[1]) if entry is not None else {}
            after = {quota: value for quota, value in {**before, **changes}.items() if value is not None}
            if after == before:
                return Swap(None)
            if entry is None and len((await self.quotas()).keys()) >= ENTITIES_MAX:
                raise InvalidError("number of quotas", ENTITIES_MAX + 1, f"at most {ENTITIES_MAX}")
            return Swap(None, [Put(key, msgspec.json.encode(after)) if after else Delete(key)])

        return (await compare_and_swap(self._store, key, decide, clock=self._clock, random=self._random))[1]
