"""Client quotas: how much a user, a client id, a user's client id, or an IP address may take of a node, and which limit counts.

The one rule: the most specific limit counts, each kind of quota by itself, in Kafka's order. Who shares a limit follows from it: a
limit of a user is for all clients of that user together, a limit of all users is for each of them. Addresses have a limit of their
own (KIP-612), whoever connects from them. Pure: a table is a value.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from holdfast.security.acls import parse_address
from holdfast.security.principals import check_user_name
from holdfast.vocabulary.errors import InvalidError

DEFAULT: Final = ""  # in the place of a name: of whoever has no limit of their own
CLIENT_ID_BYTES_MAX: Final = 255
_CONNECTIONS_MAX: Final = 2**31 - 1  # an INT of Kafka's
_BYTES_MAX: Final = 2**63 - 1  # a LONG


class Quota(StrEnum):
    """What is limited, by Kafka's names: bytes per second, the share of a core in percent, or connections per second."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    CONNECTIONS = "connection_creation_rate"


CLIENT_QUOTAS: Final = (Quota.PRODUCE, Quota.FETCH, Quota.REQUEST)  # of users and client ids


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whose limits: a user's, a client id's, those of a user's client id, or an IP address's. None: it is not about users, say."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def __str__(self) -> str:
        named = {"user": self.user, "client-id": self.client_id, "ip": self.ip}
        return ", ".join(f"{kind} {name or '(default)'}" for kind, name in named.items() if name is not None)


def check_entity(entity: QuotaEntity) -> None:
    """Refuse an entity that nobody can be."""
    if entity == QuotaEntity():
        raise InvalidError("quota entity", "nobody", "a user, a client id, or both, or an ip")
    if entity.ip is not None and entity != QuotaEntity(ip=entity.ip):
        raise InvalidError("quota entity", str(entity)[:80], "an ip that is not combined with a user or client id")
    if entity.ip and canonical_ip(entity.ip) != entity.ip:
        raise InvalidError("ip", entity.ip[:80], "an IP address in its canonical form")
    if entity.user:
        check_user_name("user", entity.user)
    if entity.client_id and len(entity.client_id.encode(errors="replace")) > CLIENT_ID_BYTES_MAX:
        raise InvalidError("client id", entity.client_id[:80], f"at most {CLIENT_ID_BYTES_MAX} bytes")


def canonical_ip(text: str) -> str:
    """An IP address in the one form that is compared, without a scope. `InvalidError`: it is none; names are not resolved."""
    address = _ip(text)
    if address is None:
        raise InvalidError("ip", text[:80], "an IP address: host names are not resolved")
    return address


def _ip(host: str) -> str | None:
    address = parse_address(host)
    return None if address is None else str(address).partition("%")[0]


def check_quota(entity: QuotaEntity, quota: Quota) -> None:
    """Refuse a quota that this kind of entity does not have."""
    allowed = CLIENT_QUOTAS if entity.ip is None else (Quota.CONNECTIONS,)
    if quota not in allowed:
        raise InvalidError(f"quota of {entity}", str(quota), "one of " + ", ".join(allowed))


def check_limit(quota: Quota, value: float) -> None:
    """Refuse a limit that means nothing."""
    if not math.isfinite(value) or value <= 0:
        raise InvalidError(str(quota), value, "more than 0")
    if quota is not Quota.REQUEST and value != int(value):
        unit = "connections" if quota is Quota.CONNECTIONS else "bytes"
        raise InvalidError(str(quota), value, f"a whole number of {unit} per second")
    most = _CONNECTIONS_MAX if quota is Quota.CONNECTIONS else _BYTES_MAX
    if quota is not Quota.REQUEST and value > most:
        raise InvalidError(str(quota), value, f"at most {most}")


class Limit(NamedTuple):
    """A limit that counts for somebody, and who shares it."""

    value: float
    shared_by: QuotaEntity


Limits = Mapping[Quota, float]


class QuotaTable:
    """The limits of a cluster."""

    def __init__(self, limits: Mapping[QuotaEntity, Limits] | None = None) -> None:
        self._limits = dict(limits or {})
        self._connections = {
            entity.ip: values[Quota.CONNECTIONS]
            for entity, values in self._limits.items()
            if entity.ip is not None and Quota.CONNECTIONS in values
        }

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

    def connection_rate(self, host: str) -> tuple[str, float] | None:
        """The address of a host in its canonical form, and how many connections it may make in a second; None: it has no limit."""
        address = _ip(host) if self._connections else None
        if address is None:
            return None
        rate = self._connections.get(address, self._connections.get(DEFAULT))
        return None if rate is None else (address, rate)


def _most_specific_first(user: str, client_id: str) -> Iterator[QuotaEntity]:
    for owner in (user, DEFAULT):
        for client in (client_id, DEFAULT, None):
            yield QuotaEntity(owner, client)
    for client in (client_id, DEFAULT):
        yield QuotaEntity(None, client)
