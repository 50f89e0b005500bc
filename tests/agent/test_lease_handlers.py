"""Routing leases to the handlers of their kinds."""

import logging

import pytest

from holdfast.agent.lease_handlers import LeaseRouter
from holdfast.kernel.keys import LeaseKind, placed_resource
from holdfast.kernel.lease import Lease


async def test_a_lease_of_a_kind_that_this_release_does_not_know_is_left_alone_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lease = Lease(resource=placed_resource("~heaps", 0), holder="ann", session="s", epoch=1, version=1)
    handlers: dict[LeaseKind, object] = {}
    router = LeaseRouter(handlers)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            await router.open(lease)
            await router.drain(lease)
            await router.resume(lease)
            await router.close(lease)
    assert [each for each in caplog.messages if "not served" in each] == [
        "leases of kind heaps are not served: this release does not know them"
    ]
