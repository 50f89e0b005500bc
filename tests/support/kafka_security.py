"""A gateway with logins, its users, and clients that log in by hand."""

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.kafka_admin import KEYS, code
from tests.support.kafka_wire import KafkaGateway, WireClient, gateway_on

from holdfast.gateways.kafka.api_table import APIS
from holdfast.gateways.kafka.login import ListenerSecurity
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from holdfast.security.principals import Principal
from holdfast.security.scram import ScramMechanism, credential_of

ROOT = Principal("root")
PASSWORD = "correct horse"
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"


class SecureGateway:
    """A gateway whose clients log in. Its super user is `root`; everybody's password is `PASSWORD`."""

    def __init__(self, gateway: KafkaGateway) -> None:
        self.gateway, self.backend = gateway, gateway.backend

    @property
    def security(self) -> ListenerSecurity:
        assert self.backend.security is not None
        return self.backend.security

    async def create_user(self, name: str, password: str = PASSWORD) -> None:
        credentials = [credential_of(each, password, salt=b"salt", iterations=4_096) for each in ScramMechanism]
        control = self.security.control
        await control.users_seen(await control.store.set_credentials(name, credentials))

    async def set_acls(self, acls: Iterable[Acl] = ()) -> None:
        """These ACLs and no others, seen by the gateway."""
        control = self.security.control
        await control.acls_seen((await control.store.delete_acls(AclFilter()))[1])
        await control.acls_seen(await control.store.create_acls(acls))

    async def client(self) -> WireClient:
        """One that has not logged in."""
        return await self.gateway.client()

    async def logged_in(self, name: str, mechanism: str = "SCRAM-SHA-256") -> "SecureClient":
        """A client of this user, who is created if need be."""
        if self.security.control.user(name) is None:
            await self.create_user(name)
        client = SecureClient(await self.client())
        assert await client.log_in(mechanism, name) is ErrorCode.NONE
        return client


class SecureClient:
    """A client that can log in."""

    def __init__(self, wire: WireClient) -> None:
        self.wire = wire
        self.lifetime_ms = 0

    async def ask(self, name: str, version: int | None = None, **given: Any) -> Any:
        """The response, in the newest version unless another is given."""
        key = KEYS[name]
        return await self.wire.ask(key, APIS[key].versions[1] if version is None else version, given)

    async def handshake(self, mechanism: str) -> ErrorCode:
        return code(await self.ask("SaslHandshake", mechanism=mechanism))

    async def authenticate(self, data: bytes) -> Any:
        answer = await self.ask("SaslAuthenticate", auth_bytes=data)
        self.lifetime_ms = int(answer.session_lifetime.total_seconds() * 1_000)
        return answer

    async def log_in(self, mechanism: str, name: str, password: str = PASSWORD, nonce: str = "client") -> ErrorCode:
        """The code of the last response."""
        refused = await self.handshake(mechanism)
        if refused is not ErrorCode.NONE:
            return refused
        if mechanism == "PLAIN":
            return code(await self.authenticate(f"\0{name}\0{password}".encode()))
        first = f"n={name},r={nonce}"
        answer = await self.authenticate(f"n,,{first}".encode())
        if code(answer) is not ErrorCode.NONE:
            return code(answer)
        return code(await self.authenticate(scram_final(mechanism, first, bytes(answer.auth_bytes), password)))


def scram_final(mechanism: str, first: str, challenge: bytes, password: str) -> bytes:
    """A client's last message, by the letter of RFC 5802."""
    digest = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", digest)
    unproved = f"c=biws,r={fields['r']}"
    signed = f"{first},{challenge.decode()},{unproved}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    return f"{unproved},p={base64.b64encode(proof).decode()}".encode()


@asynccontextmanager
async def secure_gateway(
    directory: Path, *, topics: dict[str, int] | None = None, **settings: Any
) -> AsyncIterator[SecureGateway]:
    """A gateway with SASL, unless the settings say otherwise."""
    given = {"sasl": MECHANISMS, "failed_login_delay_ms": 0, **settings}
    async with gateway_on(directory, topics=topics, super_users=[ROOT], **given) as gateway:
        yield SecureGateway(gateway)


def allow(
    who: str,
    operation: Operation,
    kind: ResourceType,
    name: str = CLUSTER_NAME,
    *,
    prefixed: bool = False,
    permission: Permission = Permission.ALLOW,
) -> Acl:
    """An ACL for a user, from anywhere."""
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return Acl(ResourcePattern(kind, name, pattern), Principal(who), operation, permission)
