"""Readiness: a check returns the reason why the server is not ready, or nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.contracts.store import Store
from holdfast.vocabulary.errors import HoldfastError

_PROBE_KEY: Final = "health/probe"  # never written: a key that does not exist is read as fast as any other


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """`ask` returns what is wrong, or nothing."""

    name: str
    ask: Callable[[], Awaitable[str]]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a check. `reason` is empty if it passed."""

    name: str
    ok: bool
    reason: str = ""


async def run_checks(checks: Sequence[HealthCheck], *, timeout_ms: int) -> tuple[Checked, ...]:
    """Run all checks concurrently; one that does not return in time has failed."""
    return tuple(await asyncio.gather(*(_run_check(each, timeout_ms) for each in checks)))


async def _run_check(check: HealthCheck, timeout_ms: int) -> Checked:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            reason = await check.ask()
    except TimeoutError:
        reason = f"no response within {timeout_ms} ms"
    except HoldfastError as error:
        reason = str(error)
    return Checked(name=check.name, ok=not reason, reason=reason)


def store_check(store: Store) -> HealthCheck:
    """Whether the store can be read."""

    async def ask() -> str:
        await store.get(_PROBE_KEY)
        return ""

    return HealthCheck("store", ask)
