"""Text nodes with security, in this process, and their users."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.text import TextClient, TextCluster

from holdfast.agent.access_control import AccessControl, watching_access_control
from holdfast.gateways.text.security import TextSecurity
from holdfast.gateways.text.settings import TextSettings
from holdfast.security.acls import Acl, AclFilter
from holdfast.security.api_keys import Scope
from holdfast.security.audit import AuditLog, AuditSettings
from holdfast.security.authenticator import Authenticator
from holdfast.security.cluster_secret import cluster_secret
from holdfast.security.principals import Principal
from holdfast.security.settings import SecuritySettings


@dataclass
class SecuredText:
    cluster: TextCluster
    control: AccessControl
    security: TextSecurity

    async def key(self, name: str, *scopes: Scope) -> str:
        made, version = await self.control.key_store.create(name, Principal(name), frozenset(scopes or Scope))
        await self.control.keys_seen(version)
        return made.secret

    async def acls(self, *acls: Acl) -> None:
        await self.control.acls_seen((await self.control.store.delete_acls(AclFilter()))[1])
        await self.control.acls_seen(await self.control.store.create_acls(acls))

    def client(self, name: str = "ann") -> TextClient:
        return self.cluster.text[name].client()


@asynccontextmanager
async def secured_text(
    directory: Path, *names: str, settings: TextSettings | None = None
) -> AsyncIterator[SecuredText]:
    cluster = TextCluster(directory)
    clock, random = cluster.clock, cluster.random
    try:
        secret = await cluster_secret(cluster.store, clock=clock, random=random)
        async with watching_access_control(cluster.store, super_users=(), clock=clock, random=random) as control:
            authenticator = Authenticator(control, SecuritySettings(), session_key="k" * 40, clock=clock, random=random)
            with AuditLog(AuditSettings(to="off"), clock=clock) as audit:
                cluster.security = TextSecurity(authenticator=authenticator, audit=audit, secret=secret)
                for name in names or ("ann",):
                    await cluster.text_node(name, settings or TextSettings(request_ms=60_000))
                yield SecuredText(cluster, control, cluster.security)
                authenticator.close()
                await cluster.end()
    finally:
        await cluster.end()
