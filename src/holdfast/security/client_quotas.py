"""Client quotas: how much a user, a client id, or a user's client id may take of a node, and which of several limits counts.

The one rule: the most specific limit counts, each kind of quota by itself, in Kafka's order. Who shares a limit follows from it: a
limit of a user is for all clients of that user together, a limit of all users is for each of them. Pure: a table is a value.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from holdfast.security.principals import check_user_name
from holdfast.vocabulary.errors import InvalidError

DEFAULT: Final = ""  # in the place of a name: of whoever has no limit of their own
CLIENT_ID_BYTES_MAX: Final = 255


class Quota(StrEnum):
    """What is limited, by Kafka's names: bytes per second, or the share of a core in percent."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whose limits: a user's, a client id's, or those of a user's client id. None: it is not about users, or client ids."""

    user: str | None = None
    client_id: str | None = None

    def __str__(self) -> str:
        named = {"user": self.user, "client-id": self.client_id}
        return ", ".join(f"{kind} {name or '(default)'}" for kind, name in named.items() if name is not None)


def check_entity(entity: QuotaEntity) -> None:
    """Refuse an entity that nobody can be."""
    if entity == QuotaEntity():
        raise InvalidError("quota entity", "nobody", "a user, a client id, or both")
    if entity.user:
        check_user_name("user", entity.user)
    if entity.client_id and len(entity.client_id.encode(errors="replace")) > CLIENT_ID_BYTES_MAX:
        raise InvalidError("client id", entity.client_id[:80], f"at most {CLIENT_ID_BYTES_MAX} bytes")


def check_limit(quota: Quota, value: float) -> None:
    """Refuse a limit that means nothing."""
    if not math.isfinite(value) or value <= 0:
        raise InvalidError(str(quota), value, "more than 0")
    if quota is not Quota.REQUEST and value != int(value):
        raise InvalidError(str(quota), value, "a whole number of bytes per second")


class Limit(NamedTuple):
    """A limit that counts for somebody, and who shares it."""

    value: float
    shared_by: QuotaEntity


Limits = Mapping[Quota, float]


class QuotaTable:
    """The limits of a cluster."""

    def __init__(self, limits: Mapping[QuotaEntity, Limits] | None = None) -> None:
        self._limits = dict(limits or {})

    def __bool__(self) -> bool:
        return bool(self._limits)

    def limit(self, quota: Quota, user: str, client_id: str) -> Limit | None:
        """What counts for a client of a user; None: it has no limit."""
        for entity in _most_specific_first(user, client_id):
            value = self._limits.get(entity, {}).get(quota)
            if value is not None:
                shared_by = QuotaEntity(
                    None if entity.user is None else user, None if entity.client_id is None else client_id
                )
                return Limit(value, shared_by)
        return None


def _most_specific_first(user: str, client_id: str) -> Iterator[QuotaEntity]:
    for owner in (user, DEFAULT):
        for client in (client_id, DEFAULT, None):
            yield QuotaEntity(owner, client)
    for client in (client_id, DEFAULT):
        yield QuotaEntity(None, client)
