"""Asking a gateway about the cluster: any API by its name, any version of it, answers as kio reads them."""

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
    """A client that asks one question after the other."""

    def __init__(self, gateway: KafkaGateway, client: WireClient) -> None:
        self.gateway, self.backend, self.client = gateway, gateway.backend, client

    async def ask(self, name: str, version: int | None = None, **given: Any) -> Any:
        """The answer, in the newest version unless another is named."""
        key = KEYS[name]
        return await self.client.ask(key, APIS[key].versions[1] if version is None else version, given)

    @property
    def node(self) -> int:
        me = self.backend.me()
        assert me is not None
        return me.node


@asynccontextmanager
async def admin_of(directory: Path, **settings: Any) -> AsyncIterator[Admin]:
    """A gateway as `gateway_on` makes it, and somebody who asks."""
    async with gateway_on(directory, **settings) as gateway:
        yield Admin(gateway, await gateway.client())


def code(answer: Any) -> ErrorCode:
    """The code an answer, or a part of one, carries."""
    return ErrorCode(answer.error_code.value)
