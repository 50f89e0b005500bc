"""Reopenings that cannot be made hold up no others."""

import asyncio
from types import SimpleNamespace
from typing import Any

from holdfast.log.model import QUORUM
from holdfast.log.replica_upkeep import ReplicaUpkeep
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError


async def test_a_partition_is_reopened_although_eight_others_cannot_be_published() -> None:
    """The eight become `quorum` while object storage is away: each attempt lasts longer (20 s) than the pause between two (5 s)."""

    def partition(number: int) -> Any:
        return SimpleNamespace(
            partition_id=number,
            accepting=True,
            lease=SimpleNamespace(resource=f"partition/orders/{number:05}"),
            partition_config=SimpleNamespace(level=QUORUM),
        )

    watched = [partition(number) for number in range(9)]
    reopened = asyncio.Event()

    async def reopen(which: Any) -> None:
        if which is watched[-1]:
            reopened.set()
            return
        await RealClock().sleep_ms(800)
        raise UnavailableError("partition", "it was not published in time")

    network = SimpleNamespace(listen=lambda _: lambda: None)
    upkeep = ReplicaUpkeep(
        SimpleNamespace(network=network, unannounced={}, lag_ms=1_000),  # type: ignore[arg-type]
        clock=RealClock(),
        watched=lambda: watched,
        reopen=reopen,
        on_connected=lambda: None,
        retry_ms=200,
    )
    running = asyncio.ensure_future(upkeep.run())
    try:
        await asyncio.wait_for(reopened.wait(), 15)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
