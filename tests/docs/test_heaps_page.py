"""docs/heaps.md is true: its program runs, and it names every route of heaps."""

import asyncio
import re
from pathlib import Path
from typing import Any

from tests.support.grpc_gateway import grpc_cluster

from holdfast.gateways.http.route_rules import RULES

PAGE = (Path(__file__).parents[2] / "docs" / "heaps.md").read_text()


async def test_its_program_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(import grpc\n.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    async with grpc_cluster(tmp_path) as world:
        made = await world.gateway()
        program = code.replace("127.0.0.1:50051", made.address)
        await asyncio.to_thread(exec, program, names)
    assert names["done"] == [9, 5]


def test_it_names_every_route() -> None:
    routes = {route.partition(" ")[2] for route in RULES if " /v1/" in route} - {"/v1/confirmations"}
    assert not [route for route in routes if f"{route}`" not in PAGE]
