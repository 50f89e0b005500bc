"""docs/http.md is true: every curl command is run, and its response has what the page shows."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.http_gateway import running_http_gateway

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
EXAMPLE = re.compile(r"```sh\n(?P<command>curl .*?)\n```\n\n```json\n(?P<response>.*?)\n```", re.DOTALL)


def shown(response: Any, page: Any) -> Any:
    """The response, cut down to the fields the page shows."""
    if isinstance(page, dict) and isinstance(response, dict):
        return {name: shown(response.get(name), value) for name, value in page.items()}
    if isinstance(page, list) and isinstance(response, list) and len(page) == len(response):
        return [shown(one, other) for one, other in zip(response, page, strict=True)]
    return response


@pytest.mark.slow
async def test_every_command_gets_the_response_on_the_page() -> None:
    examples = list(EXAMPLE.finditer(PAGE))
    assert len(examples) == PAGE.count("\ncurl ")
    async with running_http_gateway() as served:
        for example in examples:
            command = example["command"].replace("localhost:8080", f"localhost:{served.port}")
            process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
            output, _ = await process.communicate()
            page = json.loads(example["response"])
            assert shown(json.loads(output), page) == page, example["command"]
