"""API keys, users and ACLs: list, create, revoke."""

from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import delete, get, post, put
from litestar.params import FromPath, JSONBody

from holdfast.gateways.http.routes.bodies import RequestBody
from holdfast.gateways.http.routes.security_dependencies import SecurityDependency, new_credentials, secured
from holdfast.security.acls import (
    ANY_HOST,
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from holdfast.security.api_keys import DEFAULT_SCOPES, ApiKey, Scope
from holdfast.security.key_store import UnknownApiKeyError
from holdfast.security.principals import Principal
from holdfast.security.store import UnknownUserError
from holdfast.vocabulary.errors import InvalidError

KEYS_PATH, USERS_PATH, ACLS_PATH = "/api/v1/keys", "/api/v1/users", "/api/v1/acls"


class NewApiKey(RequestBody, frozen=True):
    """A key to make: for whom (`User:NAME`), and what it may be used for at most. `expiresAtMs`: 0 is never."""

    name: str
    principal: str
    scopes: Sequence[Scope] = DEFAULT_SCOPES
    expires_at_ms: int = 0


class KeyDescription(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A key without its secret. `lastUsedAtMs`: within a minute; 0 is never."""

    prefix: str
    name: str
    principal: str
    scopes: Sequence[str]
    created_at_ms: int
    expires_at_ms: int
    last_used_at_ms: int


class CreatedKey(KeyDescription, frozen=True, kw_only=True, rename="camel"):
    """A key with its secret, which is shown this once."""

    secret: str


class UserDescription(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Somebody who can log in."""

    name: str
    mechanisms: Sequence[str]


class NewUser(RequestBody, frozen=True):
    """A user and a password."""

    name: str
    password: str


class NewPassword(RequestBody, frozen=True):
    """A password. Logins and sessions of the old one end."""

    password: str


class AclEntry(RequestBody, frozen=True):
    """An ACL: what a principal may do, or may not, to resources by name or prefix."""

    principal: str
    operation: Operation
    resource_type: ResourceType
    resource_name: str = CLUSTER_NAME
    pattern_type: PatternType = PatternType.LITERAL
    permission: Permission = Permission.ALLOW
    host: str = ANY_HOST


class AclSelection(RequestBody, frozen=True):
    """Which ACLs are deleted: those that have all that is given."""

    principal: str | None = None
    operation: Operation | None = None
    resource_type: ResourceType | None = None
    resource_name: str | None = None
    pattern_type: PatternType | None = None
    permission: Permission | None = None
    host: str | None = None


@get(KEYS_PATH, tags=["security"], summary="List API keys")
async def list_keys(security: SecurityDependency) -> list[KeyDescription]:
    """All keys, the oldest first, without their secrets."""
    return [KeyDescription(**_fields(key)) for key in await secured(security).control.key_store.keys()]


@post(KEYS_PATH, tags=["security"], summary="Create an API key")
async def create_key(security: SecurityDependency, data: JSONBody[NewApiKey]) -> CreatedKey:
    """Make a key. Its secret is in this answer and nowhere else."""
    control = secured(security).control
    if not data.scopes:
        raise InvalidError("scopes", "none", "of " + ", ".join(Scope))
    principal = Principal.parse("principal", data.principal)
    made, version = await control.key_store.create(
        data.name, principal, frozenset(data.scopes), expires_at_ms=data.expires_at_ms
    )
    await control.keys_seen(version)
    return CreatedKey(**_fields(made.key), secret=made.secret)


@delete(KEYS_PATH + "/{prefix:str}", tags=["security"], summary="Revoke an API key")
async def revoke_key(security: SecurityDependency, prefix: FromPath[str]) -> None:
    """Revoke a key by its prefix: requests, streams and connections with it end within a second or so, on every node."""
    control = secured(security).control
    if not prefix.isalnum():
        raise UnknownApiKeyError(prefix)
    await control.keys_seen(await control.key_store.revoke(prefix))


@get(USERS_PATH, tags=["security"], summary="List users")
async def list_users(security: SecurityDependency) -> list[UserDescription]:
    """Everybody who can log in with a password, by name."""
    users = await secured(security).control.store.users()
    return [UserDescription(name=user.name, mechanisms=[each.mechanism for each in user.credentials]) for user in users]


@post(USERS_PATH, tags=["security"], summary="Create a user")
async def create_user(security: SecurityDependency, data: JSONBody[NewUser]) -> UserDescription:
    """Make a user, who may do nothing until ACLs allow it."""
    return await _set_password(security, data.name, data.password, create=True)


@put(USERS_PATH + "/{user:str}/password", tags=["security"], summary="Set a password")
async def put_password(
    security: SecurityDependency, user: FromPath[str], data: JSONBody[NewPassword]
) -> UserDescription:
    """Set a new password of a user who exists."""
    if secured(security).control.user(user) is None:
        raise UnknownUserError(user)
    return await _set_password(security, user, data.password, create=False)


@delete(USERS_PATH + "/{user:str}", tags=["security"], summary="Delete a user")
async def delete_user(security: SecurityDependency, user: FromPath[str]) -> None:
    """Delete a user; logins and sessions end. ACLs of the user stay, and so do API keys."""
    control = secured(security).control
    version = await control.store.delete_credentials(user)
    if version is None:
        raise UnknownUserError(user)
    await control.users_seen(version)


@get(ACLS_PATH, tags=["security"], summary="List ACLs")
async def list_acls(security: SecurityDependency) -> list[AclEntry]:
    """All ACLs."""
    return [_entry(acl) for acl in await secured(security).control.store.acls()]


@post(ACLS_PATH, tags=["security"], summary="Create ACLs")
async def create_acls(security: SecurityDependency, data: JSONBody[list[AclEntry]]) -> list[AclEntry]:
    """Add ACLs; those that exist stay as they are."""
    control = secured(security).control
    acls = [
        Acl(
            ResourcePattern(each.resource_type, each.resource_name, each.pattern_type),
            Principal.parse("principal", each.principal),
            each.operation,
            each.permission,
            each.host,
        )
        for each in data
    ]
    await control.acls_seen(await control.store.create_acls(acls))
    return [_entry(acl) for acl in acls]


@delete(ACLS_PATH, tags=["security"], summary="Delete ACLs", status_code=200)
async def delete_acls(security: SecurityDependency, data: JSONBody[AclSelection]) -> list[AclEntry]:
    """Delete the ACLs that have all that is given; the answer has them."""
    if data == AclSelection():
        raise InvalidError("selection", "{}", "at least one property")
    wanted = AclFilter(
        type=data.resource_type,
        name=data.resource_name,
        pattern=data.pattern_type,
        principal=Principal.parse("principal", data.principal) if data.principal is not None else None,
        host=data.host,
        operation=data.operation,
        permission=data.permission,
    )
    control = secured(security).control
    gone, version = await control.store.delete_acls(wanted)
    await control.acls_seen(version)
    return [_entry(acl) for acl in gone]


async def _set_password(security: SecurityDependency, name: str, password: str, *, create: bool) -> UserDescription:
    control = secured(security).control
    credentials = await new_credentials(security, password)
    await control.users_seen(await control.store.set_credentials(name, credentials, create=create, replace=True))
    return UserDescription(name=name, mechanisms=[each.mechanism for each in credentials])


def _fields(key: ApiKey) -> dict[str, Any]:
    return {
        "prefix": key.prefix,
        "name": key.name,
        "principal": str(key.principal),
        "scopes": sorted(key.scopes),
        "created_at_ms": key.created_at_ms,
        "expires_at_ms": key.expires_at_ms,
        "last_used_at_ms": key.last_used_at_ms,
    }


def _entry(acl: Acl) -> AclEntry:
    return AclEntry(
        principal=str(acl.principal),
        operation=acl.operation,
        resource_type=acl.resource.type,
        resource_name=acl.resource.name,
        pattern_type=acl.resource.pattern,
        permission=acl.permission,
        host=acl.host,
    )


HANDLERS = (
    *(list_keys, create_key, revoke_key),
    *(list_users, create_user, put_password, delete_user),
    *(list_acls, create_acls, delete_acls),
)
