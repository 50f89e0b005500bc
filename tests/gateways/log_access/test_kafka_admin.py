"""Admin calls of gateways run on threads of their own."""

import asyncio
import threading

from holdfast.gateways.log_access.backend import KafkaAdmin


async def test_a_call_that_waits_for_a_coordinator_takes_no_thread_from_the_loop() -> None:
    admin = KafkaAdmin("127.0.0.1:9", timeout_s=1)
    admin._open = lambda: None  # type: ignore[method-assign, assignment, return-value]
    both_there = threading.Barrier(2)

    def wait(_: object) -> str:
        both_there.wait()
        return threading.current_thread().name

    async with asyncio.TaskGroup() as calls:  # two at once, each on a thread
        found = [calls.create_task(admin.call(wait)) for _ in range(2)]
    assert all(each.result().startswith("gateway-admin") for each in found)
