"""Whether a server can do its work: each check answers with a reason, or with nothing if all is well."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.contracts.store import Store
from holdfast.vocabulary.errors import HoldfastError

_ANY_KEY: Final = "cluster/identity"


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """`ask` says what is in the way, or nothing."""

    name: str
    ask: Callable[[], Awaitable[str]]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one check. `reason` is empty if it holds."""

    name: str
    ok: bool
    reason: str = ""


async def run_checks(checks: Sequence[HealthCheck], *, timeout_ms: int) -> tuple[Checked, ...]:
    """All checks, at the same time; one that does not answer in time has not passed."""
    return tuple(await asyncio.gather(*(_run_check(each, timeout_ms) for each in checks)))


async def _run_check(check: HealthCheck, timeout_ms: int) -> Checked:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            reason = await check.ask()
    except TimeoutError:
        reason = f"no answer within {timeout_ms} ms"
    except HoldfastError as error:
        reason = str(error)
    return Checked(name=check.name, ok=not reason, reason=reason)


def store_check(store: Store) -> HealthCheck:
    """Whether the store can be read now."""

    async def ask() -> str:
        await store.get(_ANY_KEY)
        return ""

    return HealthCheck("store", ask)
