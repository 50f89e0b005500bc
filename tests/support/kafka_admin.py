"""Requests to a gateway: any API by its name, in any version, with responses decoded by kio."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.kafka_wire import KafkaGateway, WireClient, gateway_on, versions_of

from holdfast.gateways.kafka.api_table import APIS
from holdfast.kafka.error_codes import ErrorCode

KEYS = {api.name: key for key, api in APIS.items()}


def versions(name: str) -> list[int]:
    """Every version of an API that is implemented."""
    return versions_of(KEYS[name])


class Admin:
    """A client that sends one request at a time."""

    def __init__(self, gateway: KafkaGateway, client: WireClient) -> None:
        self.gateway, self.backend, self.client = gateway, gateway.backend, client

    async def ask(self, name: str, version: int | None = None, **given: Any) -> Any:
        """The response, in the newest version unless another is given."""
        key = KEYS[name]
        return await self.client.ask(key, APIS[key].versions[1] if version is None else version, given)

    @property
    def node(self) -> int:
        me = self.backend.me()
        assert me is not None
        return me.node


@asynccontextmanager
async def admin_of(directory: Path, **settings: Any) -> AsyncIterator[Admin]:
    """A gateway made by `gateway_on`, and a client of it."""
    async with gateway_on(directory, **settings) as gateway:
        yield Admin(gateway, await gateway.client())


def code(answer: Any) -> ErrorCode:
    """The error code of a response, or of a part of one."""
    return ErrorCode(answer.error_code.value)
