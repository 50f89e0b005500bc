"""Connections are asked about their credentials when these may have changed, not again and again."""

from types import SimpleNamespace
from typing import Any, cast

from holdfast.gateways.kafka.server import KafkaServer
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.tasks import background_tasks


class AskedConnection:
    """One of many that are at rest."""

    def __init__(self) -> None:
        self.asked, self.revoked, self.is_denied, self.aborted = 0, False, False, ""

    @property
    def is_revoked(self) -> bool:
        self.asked += 1
        return self.revoked

    def abort(self, reason: str) -> None:
        self.aborted = reason


def serving(clock: FakeClock, connections: list[AskedConnection]) -> tuple[KafkaServer, Any]:
    server, control = object.__new__(KafkaServer), SimpleNamespace(version=1)
    server.backend = cast(Any, SimpleNamespace(clock=clock, security=SimpleNamespace(control=control)))
    server.connections = cast(Any, set(connections))
    return server, control


async def test_at_rest_nobody_is_asked_twice_and_a_change_ends_the_revoked_within_a_second() -> None:
    clock, connections = FakeClock(), [AskedConnection() for _ in range(2_500)]
    server, control = serving(clock, connections)
    async with background_tasks(server.end_revoked()):
        await clock.run_for_ms(60_000)
        assert {each.asked for each in connections} == {1}
        connections[7].revoked, control.version = True, 2
        await clock.run_for_ms(1_000)
        assert [each for each in connections if each.aborted] == [connections[7]]
        assert connections[7].aborted == "its credentials were revoked"
        assert {each.asked for each in connections} == {2}
        connections[8].is_denied, control.version = True, 3
        await clock.run_for_ms(1_000)
        assert connections[8].aborted == "it waits for what its client may no longer read"
