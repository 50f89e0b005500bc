"""A real server with logins, its users, and clients of it. Users and ACLs are written to its store, as the command line does."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
from tests.support.server_process import ServeProcess
from tests.support.waiting import WAIT_S

from holdfast.security.acls import CLUSTER_NAME, WILDCARD, Acl, Operation, Permission, ResourcePattern, ResourceType
from holdfast.security.api_keys import Scope
from holdfast.security.key_store import ApiKeyStore
from holdfast.security.principals import Principal
from holdfast.security.scram import ScramMechanism, credential_of
from holdfast.security.store import SecurityStore
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

PASSWORD = "correct horse"
LOGINS = ("--roles", "api,agent", "--sasl", "SCRAM-SHA-512,PLAIN")
Pair = tuple[Operation, ResourceType]


def everything(kind: ResourceType) -> ResourcePattern:
    return ResourcePattern(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else WILDCARD)


def allowed(name: str, *pairs: Pair, permission: Permission = Permission.ALLOW) -> list[Acl]:
    """ACLs of a user about all resources."""
    return [Acl(everything(kind), Principal(name), operation, permission) for operation, kind in pairs]


class SecuredServer(ServeProcess):
    """A server whose clients log in; everybody's password is `PASSWORD`."""

    @property
    def text(self) -> str:
        import json

        return str(json.loads(self.addresses.read_text())["text"])

    def administer(self, users: Iterable[str] = (), acls: Iterable[Acl] = ()) -> None:
        """Users and ACLs, in the store. The server sees them a moment later, in this order."""
        asyncio.run(_administer(self.data / "store.db", list(users), list(acls)))

    def create_key(self, name: str, *scopes: Scope) -> tuple[str, str]:
        """The prefix and the secret of a key of a principal."""
        made = asyncio.run(_create_key(self.data / "store.db", name, frozenset(scopes or Scope)))
        return made.key.prefix, made.secret

    def as_user(self, name: str, **more: Any) -> httpx.Client:
        return httpx.Client(base_url=self.http, timeout=WAIT_S, verify=False, auth=(name, PASSWORD), **more)

    def with_key(self, secret: str) -> httpx.Client:
        return httpx.Client(
            base_url=self.http, timeout=WAIT_S, verify=False, headers={"authorization": f"Bearer {secret}"}
        )

    def anonymous(self) -> httpx.Client:
        return httpx.Client(base_url=self.http, timeout=WAIT_S, verify=False)


async def _administer(path: Path, users: list[str], acls: list[Acl]) -> None:
    clock, random = RealClock(), SystemRandom()
    credential = credential_of(ScramMechanism.SHA_512, PASSWORD, salt=b"salt", iterations=4_096)
    async with open_store(f"sqlite:///{path}", clock=clock, random=random, create=False) as store:
        security = SecurityStore(store, clock=clock, random=random)
        await security.create_acls(acls)
        for name in users:
            await security.set_credentials(name, [credential])


async def _create_key(path: Path, name: str, scopes: frozenset[Scope]) -> Any:
    clock, random = RealClock(), SystemRandom()
    async with open_store(f"sqlite:///{path}", clock=clock, random=random, create=False) as store:
        made, _ = await ApiKeyStore(store, clock=clock, random=random).create(name, Principal(name), scopes)
        return made
