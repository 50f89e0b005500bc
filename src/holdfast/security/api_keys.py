"""API keys: opaque secrets with a visible prefix, `hf_{prefix}_{secret}`, that act for a principal within scopes.

The one rule: what is stored checks a key and cannot be turned into one (Argon2id). The prefix finds a key, and is no secret. Pure:
salt and secret are arguments.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.security.acls import Operation
from holdfast.security.principals import Principal, check_user_name
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random

PREFIX_CHARS: Final = 12
_SECRET_CHARS: Final = 40  # 160 bits
_FORM: Final = re.compile(r"hf_([0-9a-f]{12})_([0-9a-f]{40})")
MARK: Final = "hf_"
_SALT_BYTES: Final = 16
# Argon2id as OWASP asks for at least: 19 MiB, 2 passes, one lane; about 20 ms.
_MEMORY_KIB: Final = 19 * 1024
_PASSES: Final = 2
_HASH_BYTES: Final = 32


class Scope(StrEnum):
    """What a key may be used for at most, of what its principal may do."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


DEFAULT_SCOPES: Final = (Scope.READ, Scope.WRITE)
_OPERATIONS: Final = {
    Scope.READ: frozenset({Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS}),
    Scope.WRITE: frozenset({Operation.WRITE, Operation.IDEMPOTENT_WRITE, Operation.DESCRIBE}),
    Scope.ADMIN: frozenset(
        {
            *(Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION),
            *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
        }
    ),
}


def operations_of(scopes: frozenset[Scope]) -> frozenset[Operation]:
    """The operations within scopes."""
    return frozenset().union(*(_OPERATIONS[each] for each in scopes))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as it is stored. `expires_at_ms`: wall clock; 0: never. `last_used_at_ms`: within a minute or so; 0: never."""

    prefix: str
    name: str
    principal: Principal
    scopes: frozenset[Scope]
    hash: str
    created_at_ms: int
    expires_at_ms: int = 0
    last_used_at_ms: int = 0

    def is_expired(self, now_ms: int) -> bool:
        """Whether its time is over."""
        return 0 < self.expires_at_ms <= now_ms


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was made: its secret is shown once."""

    key: ApiKey
    secret: str


def parse_scopes(what: str, given: str) -> frozenset[Scope]:
    """`read,write`."""
    names = [name.strip().lower() for name in given.split(",") if name.strip()]
    unknown = next((name for name in names if name not in tuple(Scope)), None)
    if not names or unknown is not None:
        raise InvalidError(what, unknown or given, "of " + ", ".join(Scope))
    return frozenset(map(Scope, names))


def prefix_of(text: str) -> str | None:
    """The prefix of a key; None: it is none."""
    found = _FORM.fullmatch(text)
    return None if found is None else found[1]


def new_key(
    name: str, principal: Principal, scopes: frozenset[Scope], *, now_ms: int, expires_at_ms: int = 0, random: Random
) -> NewKey:
    """A key with a secret of its own. Slow: call it on a thread."""
    check_user_name("name of a key", name)
    if expires_at_ms and expires_at_ms <= now_ms:
        raise InvalidError("expiry of a key", expires_at_ms, "in the future")
    prefix = random.token()[:PREFIX_CHARS]
    secret = f"{MARK}{prefix}_{(random.token() + random.token())[:_SECRET_CHARS]}"
    salt = bytes.fromhex(random.token() + random.token())[:_SALT_BYTES]
    key = ApiKey(
        prefix=prefix,
        name=name,
        principal=principal,
        scopes=scopes,
        hash=hashed(secret, salt),
        created_at_ms=now_ms,
        expires_at_ms=expires_at_ms,
    )
    return NewKey(key, secret)


def hashed(secret: str, salt: bytes) -> str:
    """The Argon2id hash of a secret. Slow, and without the GIL."""
    from argon2.low_level import Type, hash_secret

    return hash_secret(secret.encode(), salt, _PASSES, _MEMORY_KIB, 1, _HASH_BYTES, Type.ID).decode()


def is_secret(stored: str, secret: str) -> bool:
    """Whether the hash is of this secret: compared in constant time, by Argon2 itself. Slow, and without the GIL."""
    from argon2.exceptions import Argon2Error
    from argon2.low_level import Type, verify_secret

    try:
        return verify_secret(stored.encode(), secret.encode(errors="replace"), Type.ID)
    except Argon2Error:
        return False
