"""Users, keys and ACLs in a store of this process, and an authenticator over them whose clock a test moves."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from holdfast.agent.access_control import AccessControl, watching_access_control
from holdfast.contracts.store import Store
from holdfast.security.authenticator import Authenticator
from holdfast.security.scram import ScramMechanism, credential_of
from holdfast.security.settings import SecuritySettings
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.random import SystemRandom

PASSWORD = "correct horse"
SETTINGS = SecuritySettings(login_failures_max=3, login_address_failures_max=3, login_lock_ms=10_000, cache_ms=5_000)


@dataclass
class SecurityWorld:
    store: Store
    control: AccessControl
    clock: FakeClock
    authenticator: Authenticator

    async def user(self, name: str, password: str = PASSWORD) -> None:
        made = credential_of(ScramMechanism.SHA_256, password, salt=b"salt", iterations=4_096)
        await self.control.users_seen(await self.control.store.set_credentials(name, [made]))

    def authenticator_with(self, settings: SecuritySettings) -> Authenticator:
        return Authenticator(self.control, settings, session_key="k" * 40, clock=self.clock, random=SystemRandom())


@pytest.fixture
async def world() -> AsyncIterator[SecurityWorld]:
    clock, random = RealClock(), SystemRandom()
    async with (
        open_store("memory:", clock=clock, random=random) as store,
        watching_access_control(store, super_users=(), clock=clock, random=random) as control,
    ):
        moved = FakeClock()
        authenticator = Authenticator(control, SETTINGS, session_key="k" * 40, clock=moved, random=random)
        yield SecurityWorld(store, control, moved, authenticator)
        authenticator.close()
