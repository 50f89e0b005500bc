"""Two callers with API keys: `root`, who may do everything, and `ann`, who may read and write topics."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.support.secured_server import allowed

from holdfast.agent.access_control import AccessControl, watching_access_control
from holdfast.contracts.store import Store
from holdfast.security.acls import Operation, ResourceType
from holdfast.security.api_keys import Scope
from holdfast.security.audit import AuditLog, AuditSettings
from holdfast.security.authenticator import Authenticator
from holdfast.security.principals import Principal
from holdfast.security.settings import SecuritySettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random


@dataclass(frozen=True)
class Callers:
    """Their keys by name, and what knows them."""

    keys: Mapping[str, str]
    control: AccessControl
    authenticator: Authenticator
    audit: AuditLog


@asynccontextmanager
async def known_callers(store: Store, *, clock: Clock, random: Random) -> AsyncIterator[Callers]:
    """Both, for the body; nobody is locked out."""
    async with watching_access_control(store, super_users=[Principal("root")], clock=clock, random=random) as control:
        tuning = SecuritySettings(login_failures_max=1_000_000, login_address_failures_max=1_000_000)
        authenticator = Authenticator(control, tuning, session_key="k" * 40, clock=clock, random=random)
        may = [
            *((Operation.READ, ResourceType.TOPIC), (Operation.WRITE, ResourceType.TOPIC)),
            *((Operation.DESCRIBE, ResourceType.TOPIC), (Operation.DESCRIBE, ResourceType.CLUSTER)),
        ]
        await control.acls_seen(await control.store.create_acls(allowed("ann", *may)))
        keys = {}
        for name in ("ann", "root"):
            made, version = await control.key_store.create(name, Principal(name), frozenset(Scope))
            await control.keys_seen(version)
            keys[name] = made.secret
        try:
            with AuditLog(AuditSettings(to="off"), clock=clock) as audit:
                yield Callers(keys, control, authenticator, audit)
        finally:
            authenticator.close()
